// Nodes made without markup strings: under Trusted Types there is no innerHTML, and text stays text.

const SVG = "http://www.w3.org/2000/svg";
const SPRITE = new URL("icons.svg", import.meta.url).pathname;

/** h("button", {class, on: {click}, aria: {label}, dataset, ...properties or attributes}, ...children) */
export function h(tag, props, ...children) {
  const node = document.createElement(tag);
  if (props) for (const [name, value] of Object.entries(props)) set(node, name, value);
  append(node, children);
  return node;
}

function set(node, name, value) {
  if (value === undefined || value === null || value === false) return;
  if (name === "class") node.className = value;
  else if (name === "on")
    for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
  else if (name === "aria") for (const [key, text] of Object.entries(value)) aria(node, key, text);
  else if (name === "dataset") Object.assign(node.dataset, value);
  else if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
  else if (value === true) node.setAttribute(name, "");
  else if (name === "value" || name === "checked") node[name] = value;
  else node.setAttribute(name, value);
}

export function aria(node, key, value) {
  if (value === null || value === undefined) node.removeAttribute(`aria-${key}`);
  else node.setAttribute(`aria-${key}`, value);
}

function append(node, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(node, child);
    else node.append(child instanceof Node ? child : String(child));
  }
}

/** Put these children into the node instead of what it has. */
export function replace(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

/** Set the text of a node, touching the document only when it differs. */
export function text(node, value) {
  const wanted = value === null || value === undefined ? "" : String(value);
  if (node.textContent !== wanted) node.textContent = wanted;
  return node;
}

export function icon(name, label) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("viewBox", "0 0 16 16");
  if (label) {
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", label);
  } else svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `${SPRITE}#${name}`);
  svg.append(use);
  return svg;
}

export function setIcon(svg, name) {
  const wanted = `icon icon-${name}`;
  if (svg.getAttribute("class") === wanted) return;
  svg.setAttribute("class", wanted);
  svg.firstChild.setAttribute("href", `${SPRITE}#${name}`);
}

/** An SVG element, for drawings. */
export function s(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "on")
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value);
  }
  append(node, children);
  return node;
}

/** "now", "42s", "7m", "3h", "2d": the age of an ISO time. */
export function ago(iso, now = Date.now()) {
  if (!iso) return "";
  const seconds = Math.max(0, ((typeof now === "number" ? now : Date.parse(now)) - Date.parse(iso)) / 1000);
  if (Number.isNaN(seconds)) return "";
  if (seconds < 5) return "now";
  return span(seconds);
}

/** A duration in seconds in its largest unit. */
export function span(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

/** The local wall-clock time of an ISO time. */
export function clock(iso) {
  const at = new Date(iso);
  return Number.isNaN(at.getTime()) ? "" : at.toTimeString().slice(0, 8);
}

export function bytes(count) {
  if (count === null || count === undefined) return "";
  const units = ["B", "KB", "MB", "GB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) ((count /= 1024), unit++);
  return `${unit && count < 10 ? count.toFixed(1) : Math.round(count)} ${units[unit]}`;
}

const KEY = Symbol("key");

/** Make parent's children follow items: new ones are made, known ones updated and moved only when out of order. */
export function keyed(parent, items, keyFn, make, update) {
  const known = new Map();
  for (const child of parent.children) if (child[KEY] !== undefined) known.set(child[KEY], child);
  const wanted = new Set(items.map(keyFn));
  for (const [key, child] of known) if (!wanted.has(key)) (child.remove(), known.delete(key));
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyFn(item);
    let child = known.get(key);
    if (!child) {
      child = make(item);
      child[KEY] = key;
      parent.insertBefore(child, next);
    } else if (child !== next) move(parent, child, next);
    else next = next.nextElementSibling;
    if (update) update(child, item);
  }
}

function move(parent, child, before) {
  if (parent.moveBefore && child.isConnected) return parent.moveBefore(child, before);
  const focused = child.contains(document.activeElement) ? document.activeElement : null;
  parent.insertBefore(child, before);
  if (focused) focused.focus({ preventScroll: true });
}

/** A link to another host; only http addresses become one, whatever an agent or a forge wrote. */
export function away(url, ...children) {
  if (!/^https?:\/\//i.test(url || "")) return h("span", null, ...children);
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

/** A button that puts a text on the clipboard and says so. */
export function copyButton(value, label = "Copy") {
  const button = h(
    "button",
    { class: "btn quiet copy", type: "button", aria: { label: `${label}: ${value}` }, title: label },
    icon("copy"),
  );
  button.addEventListener("click", async () => {
    const done = await copy(value);
    setIcon(button.firstChild, done ? "done" : "error");
    setTimeout(() => setIcon(button.firstChild, "copy"), 1200);
  });
  return button;
}

async function copy(value) {
  try {
    await navigator.clipboard.writeText(value);
    return true;
  } catch {
    return false;
  }
}

/** A state as shape, colour and word. */
export function stateBadge(state, word) {
  return h("span", { class: `chip badge state-${state}` }, icon(state), h("span", null, word || state));
}
