// Events as lines: any number of them, drawn only where one looks; one at a time shows all of its fields.
import { clock, h, icon } from "../dom.js";
import { keepingFocus, toInstance } from "./kit.js";

const LINE = 30;
const SPARE = 12;
const MEMBERS = 50;
const SIGNS = { error: "error", warning: "waiting" };

/** Neighbours of the same kind of the same instance are one line. */
export function grouped(events) {
  const lines = [];
  for (const event of events) {
    const last = lines.at(-1);
    if (
      last &&
      last.event.name === event.name &&
      last.event.instance === event.instance &&
      last.event.level === event.level
    )
      last.members.push(event);
    else lines.push({ event, members: [event] });
  }
  return lines;
}

export const single = (events) => events.map((event) => ({ event, members: [event] }));

export function eventList(name, { nearEnd, foot } = {}) {
  const sheet = h("div", { class: "sheet", role: "list", aria: { label: name }, on: { keydown: walk } });
  const node = h(
    "div",
    { class: "event-list", tabindex: "0", role: "region", aria: { label: `${name}, scrollable` } },
    sheet,
    foot,
  );
  let lines = [];
  let opened = null;
  let extra = 0;
  function walk(event) {
    const way = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const line = event.target.closest(".ev-line");
    if (!way || !line) return;
    event.preventDefault();
    line.parentNode[way]?.firstChild.focus();
  }
  const toggle = (id) => {
    opened = opened === id ? null : id;
    extra = 0;
    draw();
  };
  /** A line that scrolls away with the focus leaves it to the list. */
  const draw = () => {
    const held = sheet.contains(document.activeElement);
    keepingFocus(sheet, paint);
    if (held && !sheet.contains(document.activeElement)) node.focus({ preventScroll: true });
  };
  const paint = () => {
    const at = opened === null ? -1 : lines.findIndex((line) => keyOf(line) === opened);
    if (at < 0) extra = 0;
    const top = (i) => i * LINE + (at >= 0 && i > at ? extra : 0);
    const from = Math.max(0, Math.floor((node.scrollTop - extra) / LINE) - SPARE);
    const to = Math.min(lines.length, Math.ceil((node.scrollTop + (node.clientHeight || 600)) / LINE) + SPARE);
    const shown = lines.slice(from, to).map((line, i) => {
      const one = lineNode(line, from + i === at, lines.length, from + i, toggle);
      one.style.top = `${top(from + i)}px`;
      return one;
    });
    sheet.replaceChildren(...shown);
    if (at >= from && at < to && !extra) {
      extra = shown[at - from].offsetHeight - LINE;
      for (let i = at + 1; i < to; i++) shown[i - from].style.top = `${top(i)}px`;
    }
    sheet.style.height = `${lines.length * LINE + extra}px`;
  };
  let waiting = false;
  node.addEventListener(
    "scroll",
    () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        draw();
        if (node.scrollTop + node.clientHeight > node.scrollHeight - 400) nearEnd?.();
      });
    },
    { passive: true },
  );
  const sized = new ResizeObserver(draw);
  sized.observe(node);
  return {
    node,
    atTop: () => node.scrollTop < LINE,
    toTop: () => {
      node.scrollTop = 0;
    },
    /** What is looked at stays where it is when lines come in above it. */
    show(next) {
      const above =
        node.scrollTop >= LINE && lines.length ? next.findIndex((line) => keyOf(line) === keyOf(lines[0])) : 0;
      lines = next;
      if (above > 0) ((sheet.style.height = `${lines.length * LINE + extra}px`), (node.scrollTop += above * LINE));
      draw();
    },
    destroy: () => sized.disconnect(),
  };
}

/** The oldest member names a group: younger ones join it at its head. */
const keyOf = (line) => line.members.at(-1).id;

function lineNode(line, open, all, index, toggle) {
  const { event, members } = line;
  return h(
    "div",
    { class: `ev level-${event.level}`, role: "listitem", aria: { setsize: all, posinset: index + 1 } },
    h(
      "button",
      {
        type: "button",
        class: "ev-line",
        aria: { expanded: String(open) },
        dataset: { key: `e${keyOf(line)}` },
        on: { click: () => toggle(keyOf(line)) },
      },
      h("time", { datetime: event.at, class: "mono" }, clock(event.at)),
      h("span", { class: "mono ev-who" }, event.instance || event.actor),
      h(
        "span",
        { class: "ev-name" },
        SIGNS[event.level] ? [icon(SIGNS[event.level], event.level), " "] : "",
        event.name,
        members.length > 1 ? h("b", {}, ` ×${members.length}`) : "",
      ),
      h("span", { class: "ev-text" }, told(event)),
    ),
    open
      ? h(
          "div",
          { class: "ev-more" },
          members.slice(0, MEMBERS).map(fields),
          members.length > MEMBERS
            ? h("p", { class: "muted" }, `and ${members.length - MEMBERS} more: switch to “every event”`)
            : "",
        )
      : "",
  );
}

const told = ({ from, to, tool, code, text }) =>
  [tool, to && (from ? `${from} → ${to}` : to), code, text].filter(Boolean).join(" · ");

function fields(event) {
  const shown = Object.entries(event).filter(([, value]) => value != null && value !== "");
  return h(
    "dl",
    { class: "facts" },
    shown.map(([name, value]) =>
      h(
        "div",
        {},
        h("dt", {}, name),
        h(
          "dd",
          {},
          name === "instance"
            ? toInstance(value)
            : typeof value === "object"
              ? JSON.stringify(value)
              : String(value),
        ),
      ),
    ),
  );
}
