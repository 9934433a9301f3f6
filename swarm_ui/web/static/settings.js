// The few choices a browser remembers.
import { remember, remembered } from "./store.js";

const DEFAULTS = { letters: true, notify: false, theme: "system" };
let chosen = { ...DEFAULTS, ...read() };

export function setting(name) {
  return chosen[name];
}

export function choose(name, value) {
  chosen = { ...chosen, [name]: value };
  remember("swarm.settings", JSON.stringify(chosen));
}

function read() {
  try {
    return JSON.parse(remembered("swarm.settings", "{}"));
  } catch {
    return {};
  }
}
