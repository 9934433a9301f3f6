// Light, dark or the system's choice; the stylesheet does the rest through color-scheme.
import { choose, setting } from "./settings.js";

const ORDER = ["system", "light", "dark"];

function applyTheme() {
  const theme = setting("theme");
  document.documentElement.dataset.theme = theme;
}

/** Go to the next theme; the answer is its name. */
export function nextTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = setting("theme");
  const next = now === "system" ? (dark ? "light" : "dark") : ORDER[(ORDER.indexOf(now) + 1) % ORDER.length];
  choose("theme", next);
  applyTheme();
  return next;
}

export function setTheme(theme) {
  choose("theme", theme);
  applyTheme();
}

applyTheme();
