// Keys: one listener, a stack of tables. A later table wins; "g n" is a sequence, "Ctrl+k" a chord.
import { setting } from "./settings.js";

const SEQUENCE_MS = 1200;
const EARLY_MS = 3000;
const tables = [];
let pending = "";
let pendingAt = 0;
let early = null;
let earlyTimer = 0;

export const keys = {
  /** bind({j: ["Next instance", fn]}, "Group") -> off */
  bind(table, group = "This page") {
    const entry = { table, group };
    tables.push(entry);
    return () => {
      const at = tables.indexOf(entry);
      if (at >= 0) tables.splice(at, 1);
    };
  },
  /** A dialog is on its way: what is typed until then is meant for it, and is no key of the page. */
  hold() {
    early = "";
    clearTimeout(earlyTimer);
    earlyTimer = setTimeout(keys.release, EARLY_MS);
  },
  /** What was typed since; the dialog is there. */
  release() {
    const said = early || "";
    early = null;
    clearTimeout(earlyTimer);
    return said;
  },
  /** What is bound now: [[group, [[key, description]...]]...], each key once. */
  bound() {
    const seen = new Set();
    const groups = new Map();
    for (const { table, group } of [...tables].reverse())
      for (const [key, [description]] of Object.entries(table)) {
        if (seen.has(key)) continue;
        seen.add(key);
        groups.set(group, [...(groups.get(group) || []), [key, description]]);
      }
    return [...groups];
  },
};

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.isComposing || event.altKey) return;
  const name = named(event);
  const chord = event.ctrlKey || event.metaKey;
  if (document.querySelector("dialog[open]") && !(chord && name === "Ctrl+k")) return;
  const typing = isField(event.target);
  if (early !== null && !chord && !typing) {
    if (name.length === 1) early += name;
    else if (name === "Backspace") early = early.slice(0, -1);
    return event.preventDefault();
  }
  if (typing && name === "Escape") return event.target.blur();
  if (!chord && (typing || (!setting("letters") && name.length === 1))) return;
  if (
    !chord &&
    name === "Enter" &&
    event.target.closest?.("a, button, summary, [role=button], [role=tab]") &&
    !event.target.closest("[data-id]")
  )
    return;
  const sequence = Date.now() - pendingAt < SEQUENCE_MS && pending ? `${pending} ${name}` : "";
  pending = "";
  const found = (sequence && find(sequence)) || find(name);
  if (found) {
    event.preventDefault();
    found[1](event);
  } else if (!chord && tables.some(({ table }) => Object.keys(table).some((key) => key.startsWith(`${name} `)))) {
    pending = name;
    pendingAt = Date.now();
  }
});

function named(event) {
  return event.ctrlKey || event.metaKey ? `Ctrl+${event.key.toLowerCase()}` : event.key;
}

function find(name) {
  for (let i = tables.length - 1; i >= 0; i--) if (tables[i].table[name]) return tables[i].table[name];
  return null;
}

export function isField(node) {
  return (
    node instanceof Element &&
    node.matches("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]")
  );
}
