// Search in lines of text; hits are painted with the Highlight API, so no node changes.
import { h, icon, text } from "./dom.js";

const MOST = 2000;
const RENEW_MS = 250;

/** finder(view, [containers of lines], onMove) -> {node, open(text), next(by), close(), active(), renew()} */
export function finder(view, containers, onMove) {
  let hits = [];
  let at = -1;
  let timer = 0;
  const input = h("input", {
    type: "search",
    placeholder: "Find in the terminal",
    aria: { label: "Find in the terminal" },
    on: { input: () => search(), keydown: pressed },
  });
  const count = h("span", { class: "muted", role: "status" });
  const step = (sign, label, by) =>
    h(
      "button",
      { class: "btn quiet small", type: "button", aria: { label }, on: { click: () => next(by) } },
      icon(sign),
    );
  const node = h(
    "div",
    { class: "term-find", hidden: true },
    input,
    step("up", "Previous hit", -1),
    step("down", "Next hit", 1),
    count,
    h("span", { class: "grow" }),
    h(
      "button",
      { class: "btn quiet small", type: "button", aria: { label: "Close search" }, on: { click: close } },
      icon("close"),
    ),
  );

  function pressed(event) {
    if (event.key === "Enter") next(event.shiftKey ? 1 : -1);
    else if (event.key === "Escape") (close(), view.focus());
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Look from the end: what is new is what people look for. */
  function search(keep = false) {
    const wanted = input.value.toLowerCase();
    hits = [];
    if (wanted)
      for (const container of containers)
        for (const line of container.children) {
          const said = line.textContent.toLowerCase();
          for (
            let found = said.indexOf(wanted);
            found >= 0 && hits.length < MOST;
            found = said.indexOf(wanted, found + wanted.length)
          )
            hits.push([line, found, wanted.length]);
        }
    at = keep ? Math.min(at, hits.length - 1) : hits.length - 1;
    paint();
    if (!keep) show();
  }

  function next(by) {
    if (!hits.length) return;
    at = (at + by + hits.length) % hits.length;
    paint();
    show();
  }

  function show() {
    if (!hits[at]) return;
    onMove();
    hits[at][0].scrollIntoView({ block: "center", inline: "nearest" });
  }

  function paint() {
    text(count, input.value ? (hits.length ? `${at + 1} of ${hits.length}` : "nothing found") : "");
    if (!CSS.highlights) return;
    const ranges = hits.map(([line, from, length]) => rangeOf(line, from, from + length));
    CSS.highlights.set("found", new Highlight(...ranges));
    CSS.highlights.set("found-now", new Highlight(...(ranges[at] ? [ranges[at]] : [])));
  }

  function open(wanted) {
    node.hidden = false;
    if (wanted !== undefined) input.value = wanted;
    input.focus();
    input.select();
    search();
  }

  function close() {
    node.hidden = true;
    hits = [];
    clearTimeout(timer);
    CSS.highlights?.delete("found");
    CSS.highlights?.delete("found-now");
  }

  return {
    node,
    open,
    next,
    close,
    active: () => !node.hidden,
    renew() {
      if (node.hidden) return;
      clearTimeout(timer);
      timer = setTimeout(() => search(true), RENEW_MS);
    },
  };
}

function rangeOf(line, from, to) {
  const range = new Range();
  const walker = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
  let seen = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const end = seen + node.length;
    if (from >= seen && from < end) range.setStart(node, from - seen);
    if (to > seen && to <= end) {
      range.setEnd(node, to - seen);
      break;
    }
    seen = end;
  }
  return range;
}
