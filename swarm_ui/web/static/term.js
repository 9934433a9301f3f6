// A live terminal: patches from the stream become lines; nothing is emulated here.
import * as actions from "./actions.js";
import * as api from "./api.js";
import { ago, aria, h, icon, replace, text } from "./dom.js";
import { finder } from "./find.js";
import { keys } from "./keys.js";
import { fillLine } from "./runs.js";
import { store } from "./store.js";
import { fail } from "./toast.js";
import { typist } from "./typing.js";

const LINE_PX = 17;
const MOST_LINES = 5000;
const QUICK = [
  ["Enter", "Enter"],
  ["Escape", "Esc"],
  ["Up", "Up", "up"],
  ["Down", "Down", "down"],
  ["y", "y"],
  ["n", "n"],
  ["C-c", "Ctrl-C"],
];

/** Show the terminal of an instance in root; the page tells the stream which one it watches. */
export function Terminal(root, { id }) {
  let following = true;
  let missed = 0;
  let frame = { rows: 0, len: 0, history: 0 };
  let ended = null;
  let scrolling = 0;
  let lastTop = 0;
  const older = h("div", { class: "term-lines" });
  const lines = h("div", { class: "term-lines" });
  const cursor = h("i", { class: "cursor", hidden: true });
  const earlier = h(
    "button",
    { class: "btn small", type: "button", hidden: true, on: { click: loadEarlier } },
    icon("up"),
    "Earlier lines",
  );
  const waiting = h("p", null, "Waiting for the terminal…");
  const view = h(
    "div",
    {
      class: "term-view",
      tabindex: "0",
      role: "group",
      aria: { label: `Screen of ${id}` },
      on: { scroll: scrolled, keydown: pressed },
    },
    waiting,
    earlier,
    older,
    lines,
  );
  const jump = h(
    "button",
    { class: "btn primary small term-jump", type: "button", hidden: true, on: { click: () => follow(true) } },
    icon("down"),
    h("span", null, "Follow"),
  );
  const followButton = h(
    "button",
    {
      class: "btn",
      type: "button",
      title: "Follow the end (.)",
      aria: { pressed: "true" },
      on: { click: () => follow(!following) },
    },
    icon("down"),
    "Follow",
  );
  const findButton = h(
    "button",
    { class: "btn", type: "button", title: "Search the terminal (/)", on: { click: () => find.open() } },
    icon("search"),
    "Find",
  );
  const typeButton = h(
    "button",
    {
      class: "btn",
      type: "button",
      title: "Type into the terminal (i)",
      dataset: { act: "keys", key: `keys:${id}` },
      on: { click: () => typing.enter() },
    },
    icon("keyboard"),
    "Type",
  );
  const note = h("div", { class: "term-note", hidden: true });
  const node = h("div", { class: "term", role: "group", aria: { label: `Terminal of ${id}` } });
  const find = finder(view, [older, lines], () => follow(false));
  const typing = typist(node, { id, left: () => view.focus({ preventScroll: true }) });
  const quick = QUICK.map(([name, label, sign]) =>
    h(
      "button",
      {
        class: "btn",
        type: "button",
        dataset: { act: "keys", key: `keys:${id}` },
        aria: { label: `Press ${label}` },
        on: { click: () => typing.press(name) },
      },
      sign ? icon(sign) : label,
    ),
  );
  node.append(
    h(
      "div",
      { class: "term-bar", role: "toolbar", aria: { label: "Terminal" } },
      followButton,
      findButton,
      typeButton,
      h("span", { class: "sep" }),
      quick,
    ),
    find.node,
    typing.node,
    view,
    jump,
    note,
  );
  root.append(node);
  actions.refresh();

  const off = [
    store.on("term", (data) => data.id === id && apply(data)),
    store.on("rows", (changed) => changed.has(id) && showEnd()),
    keys.bind(
      {
        ".": ["Follow the end", () => follow(!following)],
        i: ["Type into it", () => !ended && store.may() && typing.enter()],
        "/ ": ["Search, when it has the focus", () => {}],
        "n N ": ["Next and previous hit", () => {}],
        "Ctrl+]": ["Stop typing", () => typing.leave()],
      },
      "Terminal",
    ),
  ];
  const sized = new ResizeObserver(() => settle());
  sized.observe(view);
  showEnd();

  /** Take a frame: lines dropped from the front, the new length, lines set anew. */
  function apply(data) {
    if (data.ended) return end(data);
    if (ended) ((ended = null), showEnd());
    waiting.hidden = true;
    if (data.full) (lines.replaceChildren(), older.replaceChildren());
    const before = lines.childElementCount;
    dropped(data.drop || 0);
    const length = data.len ?? lines.childElementCount;
    while (lines.childElementCount > length) lines.lastChild.remove();
    if (lines.childElementCount < length)
      lines.append(...Array.from({ length: length - lines.childElementCount }, newLine));
    for (const [index, runs] of data.set || []) if (lines.children[index]) fillLine(lines.children[index], runs);
    frame = { ...frame, ...data };
    if (!following) missed += (data.drop || 0) + Math.max(0, length - before);
    placeCursor();
    cutEnd();
    find.renew();
    settle();
  }

  /** Lines that leave the live part stay readable when earlier ones are shown too. */
  function dropped(count) {
    if (!count) return;
    const gone = [...lines.children].slice(0, count);
    if (older.childElementCount) {
      older.append(...gone);
      while (older.childElementCount > MOST_LINES) older.firstChild.remove();
      return;
    }
    for (const line of gone) line.remove();
    if (!following) view.scrollTop -= count * LINE_PX;
  }

  function placeCursor() {
    const [x, y] = frame.cursor || [];
    const line =
      y === undefined ? null : lines.children[Math.max(0, lines.childElementCount - (frame.rows || 0)) + y];
    cursor.hidden = !line || ended;
    if (!line) return;
    cursor.style.left = `${x}ch`;
    line.append(cursor);
  }

  /** The empty rest of a screen is not shown: the end is where something is. */
  function cutEnd() {
    let last = lines.childElementCount - 1;
    while (last > 0 && !lines.children[last].textContent.trim() && !lines.children[last].contains(cursor)) last--;
    lines.style.height = `${(last + 1) * LINE_PX}px`;
  }

  function settle() {
    if (scrolling) return;
    scrolling = requestAnimationFrame(() => {
      scrolling = 0;
      if (following) view.scrollTop = view.scrollHeight;
      jump.hidden = following;
      text(jump.lastChild, missed ? `${missed} new lines` : "Follow");
      earlier.hidden =
        older.childElementCount > 0 || (frame.history || 0) + (frame.rows || 0) <= lines.childElementCount;
    });
  }

  /** Only a person scrolls up; growth and a new size of the page do not. */
  function scrolled() {
    const atEnd = view.scrollHeight - view.scrollTop - view.clientHeight < LINE_PX;
    const up = view.scrollTop < lastTop;
    lastTop = view.scrollTop;
    if (atEnd && !following) follow(true, false);
    else if (!atEnd && up && following) follow(false, false);
  }

  function follow(on, moves = true) {
    following = on;
    if (on) missed = 0;
    aria(followButton, "pressed", String(on));
    if (on && moves) view.scrollTop = view.scrollHeight;
    settle();
  }

  /** Fetch what has scrolled away, and join it where the live part begins. */
  async function loadEarlier() {
    const wanted = Math.min(MOST_LINES, (frame.history || 0) + (frame.rows || 0) + 50);
    earlier.disabled = true;
    try {
      const all = await api.get(`instances/${encodeURIComponent(id)}/terminal?lines=${wanted}`);
      const until = seam(all.lines);
      const before = view.scrollHeight - view.scrollTop;
      follow(false, false);
      older.replaceChildren(...all.lines.slice(0, until).map(filledLine));
      earlier.hidden = true;
      view.scrollTop = view.scrollHeight - before;
    } catch (error) {
      fail(error, loadEarlier);
    }
    earlier.disabled = false;
  }

  function seam(all) {
    const first = [...lines.children].slice(0, 4).map((line) => line.textContent);
    const said = (runs) => (runs || []).map((run) => run[0]).join("");
    for (let at = all.length - first.length; at >= 0; at--)
      if (first.every((wanted, i) => said(all[at + i]) === wanted)) return at;
    return Math.max(0, all.length - lines.childElementCount);
  }

  async function end(data) {
    ended ??= new Date(store.now()).toISOString();
    frame = { ...frame, exit: data.exit };
    typing.leave();
    showEnd();
    if (lines.textContent.trim()) return;
    const last = await api.get(`instances/${encodeURIComponent(id)}/terminal?lines=200`).catch(() => null);
    if (!ended || lines.textContent.trim()) return;
    lines.replaceChildren(...(last?.lines || []).map(filledLine));
    waiting.hidden = Boolean(lines.textContent.trim());
    text(waiting, "Nothing of its screen was kept.");
    cutEnd();
    settle();
  }

  function showEnd() {
    const row = store.rows.get(id);
    const over = Boolean(ended || row?.ended);
    node.classList.toggle("ended", over);
    for (const button of [typeButton, ...quick]) button.hidden = over;
    note.hidden = !over;
    if (!over) return;
    const exit = frame.exit ?? row?.exit;
    const since = ago(row?.ended || ended, store.now());
    const when = since && (since === "now" ? " just now" : ` ${since} ago`);
    const said = `Ended${when}${exit === null || exit === undefined ? "" : `, exit ${exit}`}`;
    if (note.dataset.said === said) return;
    note.dataset.said = said;
    replace(
      note,
      icon("done"),
      h("span", null, said),
      row && actions.ACTIONS.restart.when(row) && actions.button("restart", row, { small: true }),
    );
  }

  function pressed(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "/") find.open();
    else if (event.key === "n" && find.active()) find.next(1);
    else if (event.key === "N" && find.active()) find.next(-1);
    else if (event.key === "Escape" && find.active()) find.close();
    else return;
    event.preventDefault();
  }

  return {
    apply,
    follow,
    search: (wanted) => find.open(wanted),
    destroy() {
      for (const stop of off) stop();
      sized.disconnect();
      typing.leave();
      find.close();
      node.remove();
    },
  };
}

function newLine() {
  const line = document.createElement("div");
  line.className = "term-line";
  return line;
}

function filledLine(runs) {
  const line = newLine();
  fillLine(line, runs);
  return line;
}
