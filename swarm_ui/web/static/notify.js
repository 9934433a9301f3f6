// Browser notifications, for those who asked: which instance, why, and the question.
import { asked } from "./needs.js";
import { nowPath } from "./paths.js";
import { setting } from "./settings.js";
import { store } from "./store.js";

let known = null;
let show = () => {};

export function startNotices({ go }) {
  show = (item) => {
    const said = new Notification(`${item.instance}: ${item.text}`, {
      body: asked(item) || item.title || "",
      tag: item.id,
    });
    said.onclick = () => {
      window.focus();
      go(nowPath(item.instance));
      said.close();
    };
  };
  known = new Set(store.inbox.map((item) => item.id));
}

/** Tell of items that were not there before. */
export function notice() {
  const items = store.waiting();
  const fresh = known ? items.filter((item) => !known.has(item.id)) : [];
  known = new Set(items.map((item) => item.id));
  if (!setting("notify") || globalThis.Notification?.permission !== "granted" || document.hasFocus()) return;
  for (const item of fresh.slice(0, 3)) show(item);
}
