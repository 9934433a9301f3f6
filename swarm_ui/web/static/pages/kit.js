// What every page is built of: states of loading, links, times, tables, and renewal that keeps the focus.
import { ago, copyButton, h, icon, replace } from "../dom.js";
import { instancePath } from "../paths.js";
import { store } from "../store.js";

export const words = (text) => String(text ?? "").replaceAll("_", " ");
export const plural = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;
/** What an instance's id looks like. */
export const ID = /^[a-z]+(-\d+)?-a\d+(-r\d+)?$/;
export const toInstance = (id) => h("a", { href: instancePath(id), class: "mono" }, id);

const age = (iso, suffix) => {
  const text = ago(iso, store.now());
  return text === "now" ? (suffix ? "just now" : "0s") : text + suffix;
};

export function when(iso, suffix = " ago") {
  if (!iso) return h("span", { class: "muted" }, "–");
  return h(
    "time",
    { datetime: iso, title: new Date(iso).toLocaleString(), dataset: { suffix } },
    age(iso, suffix),
  );
}

/** Ages grow while nothing else changes. */
export function ticking(root) {
  const timer = setInterval(() => {
    if (document.hidden) return;
    for (const node of root.querySelectorAll("time[data-suffix]")) {
      const text = age(node.dateTime, node.dataset.suffix);
      if (node.textContent !== text) node.textContent = text;
    }
  }, 5000);
  return () => clearInterval(timer);
}

export const usd = (value) => (value == null ? "–" : `$${Number(value).toFixed(2)}`);
export const count = (value) => (value ?? 0).toLocaleString("en-US");

export const command = (text) =>
  h("span", { class: "command" }, h("code", { class: "mono" }, text), copyButton(text, "Copy the command"));

/** Nothing to show, and what to do about it. */
export const empty = (title, ...next) =>
  h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), h("p", {}, ...next));

export function failed(error, retry) {
  return h(
    "div",
    { class: "empty failed", role: "alert" },
    h("p", { class: "empty-title" }, icon("error"), ` ${error.message || error}`),
    h(
      "p",
      { class: "muted" },
      h("code", {}, error.code || "FAILED"),
      error.recovery_hint ? ` · ${error.recovery_hint}` : "",
    ),
    h("button", { type: "button", class: "btn", on: { click: retry } }, "Retry"),
  );
}

/** A table that scrolls inside its own box, so that the page never does; `stack`: on a phone a row is a card. */
export function table(name, head, rows, { stack = false } = {}) {
  if (stack) for (const line of rows) [...line.cells].forEach((cell, i) => (cell.dataset.label = head[i]));
  return h(
    "div",
    { class: `table-box${stack ? " stack" : ""}`, role: "region", aria: { label: name }, tabindex: "0" },
    h(
      "table",
      { class: "table" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          head.map((cell) => h("th", { scope: "col" }, cell)),
        ),
      ),
      h("tbody", {}, rows),
    ),
  );
}

export const row = (...cells) =>
  h(
    "tr",
    {},
    cells.map((cell) => h("td", {}, cell)),
  );

/** Names and values; pairs without a value are left out. */
export const facts = (...pairs) =>
  h(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value != null && value !== "")
      .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );

export function button(label, click, kind = "") {
  return h("button", { type: "button", class: `btn ${kind}`, on: { click } }, label);
}

/** A part that is built again only when what it shows has changed; the focus and open details stay. */
export function part(node, build) {
  let shown;
  return (data) => {
    const key = JSON.stringify(data);
    if (key === shown) return;
    shown = key;
    keepingFocus(node, () => replace(node, build(data)));
  };
}

const sign = (one) => `${one.tagName} ${one.dataset.key || one.getAttribute("aria-label") || one.textContent}`;

export function keepingFocus(node, change) {
  const held =
    node.contains(document.activeElement) && node !== document.activeElement ? document.activeElement : null;
  const mark = held && sign(held);
  const open = new Set([...node.querySelectorAll("details[open] > summary")].map(sign));
  change();
  for (const summary of node.querySelectorAll("details > summary"))
    if (open.has(sign(summary))) summary.parentNode.open = true;
  if (!mark || held.isConnected) return;
  const all = node.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]");
  [...all].find((one) => sign(one) === mark)?.focus({ preventScroll: true });
}

export function later(fn, ms = 250) {
  let timer;
  const run = () => {
    clearTimeout(timer);
    timer = setTimeout(fn, ms);
  };
  run.stop = () => clearTimeout(timer);
  return run;
}

/** Asks and shows: loading first, then the answer or the failure with Retry; a renewal keeps what is shown meanwhile.
 * `show(answer, fresh)`: fresh when the node is empty. After `has()` the node counts as filled. */
export function loader(node, what, ask, show) {
  let turn = 0;
  let have = false;
  const load = async () => {
    const mine = ++turn;
    if (!have) replace(node, h("p", { class: "empty", role: "status" }, `Loading ${what}…`));
    try {
      const answer = await ask();
      if (mine !== turn) return;
      const fresh = !have;
      if (fresh) replace(node);
      have = true;
      show(answer, fresh);
    } catch (error) {
      if (mine !== turn || (have && error.retry)) return;
      have = false;
      replace(node, failed(error, load));
    }
  };
  load.stop = () => turn++;
  load.has = () => {
    have = true;
  };
  return load;
}

/** The query of the address, as filters: what is empty is left out. */
export const query = () => Object.fromEntries(new URLSearchParams(location.search));
export const asQuery = (values) =>
  new URLSearchParams(Object.entries(values).filter(([, value]) => value)).toString();
export function setQuery(values) {
  const text = asQuery(values);
  history.replaceState(history.state, "", location.pathname + (text ? `?${text}` : ""));
}

export function select(label, options, value, change) {
  const all = !value || options.some(([one]) => one === value) ? options : [...options, [value, value]];
  const node = h(
    "select",
    { aria: { label }, on: { change: () => change(node.value) } },
    all.map(([one, text]) => h("option", { value: one }, text)),
  );
  node.value = value ?? "";
  return node;
}

export const head = (title, ...more) => h("header", { class: "page-head" }, h("h1", {}, title), ...more);
export const all = (offs) => () => offs.forEach((off) => off?.());
