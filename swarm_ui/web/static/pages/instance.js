// One instance: who it is, what it needs, what it does; every tab is made when it is first opened.
import { h, replace } from "../dom.js";
import { Terminal } from "../term.js";
import { costTab } from "./cost.js";
import { diff } from "./diff.js";
import { errorsTab } from "./errors.js";
import { header } from "./instancehead.js";
import { instancePath } from "../paths.js";
import { all, later, loader, query, setQuery, ticking } from "./kit.js";
import { pullTab } from "./pull.js";
import { receiptsTab } from "./receipts.js";
import { thread } from "./said.js";
import { tasksTab } from "./tasks.js";
import { timeline } from "./timeline.js";

const TABS = [
  ["terminal", "Terminal", terminalTab],
  ["timeline", "Timeline", timeline],
  ["feedback", "Feedback", feedbackTab],
  ["tasks", "Tasks", tasksTab],
  ["diff", "Diff", diff],
  ["pull", "Pull request", pullTab],
  ["messages", "Messages", receiptsTab],
  ["errors", "Errors", errorsTab],
  ["cost", "Cost", costTab],
];

export const title = ({ id }) => id;

export function mount(root, { id }, ctx) {
  const page = h("div", { class: "page instance" });
  const heading = h("h1", { class: "unseen" }, id);
  replace(root, heading, page);
  const head = header(ctx);
  const tabs = tabList(ctx, id);
  let detail = null;
  const show = () => {
    if (!detail) return;
    detail.row = { ...detail.row, ...ctx.store.rows.get(id) };
    head.update(detail);
    tabs.update(detail);
  };
  const begin = () => {
    heading.remove();
    page.append(head.node, tabs.node);
    tabs.open(query().tab);
  };
  const load = loader(
    page,
    id,
    () => ctx.api.get(`instances/${encodeURIComponent(id)}`),
    (answer, fresh) => {
      detail = answer;
      if (fresh) begin();
      show();
    },
  );
  const renew = later(() => {
    load();
    tabs.renew();
  }, 300);
  const step = (find) => () => {
    const next = detail && find(detail);
    if (next) ctx.go(instancePath(next));
  };
  const offs = [
    ctx.store.on("rows", (changed) => (!changed.size || changed.has(id)) && show()),
    ctx.store.on("events", (events) => [...events].some((event) => event.instance === id) && renew()),
    ctx.keys.bind(
      {
        ...Object.fromEntries(
          TABS.map(([name, label], i) => [String(i + 1), [`Tab ${label}`, () => tabs.open(name, true)]]),
        ),
        "[": ["Parent", step((d) => d.row.parent)],
        "]": ["First child", step((d) => idOf(d.children?.[0]))],
        m: ["Message", () => detail && ctx.actions.run("message", detail.row)],
        a: ["Approve or answer", () => head.primary()],
        r: ["Restart", () => detail && ctx.actions.run("restart", detail.row, null, { sure: true })],
        s: ["Stop", () => detail && ctx.actions.run("stop", detail.row)],
        f: ["Fork", () => detail && ctx.actions.run("fork", detail.row)],
      },
      "Instance",
    ),
    ticking(page),
    renew.stop,
    load.stop,
    tabs.destroy,
  ];
  ctx.store.select(id);
  // The row is known before everything that hangs on it has been asked for.
  const row = ctx.store.rows.get(id);
  if (row) {
    load.has();
    begin();
    head.update({ row });
  }
  load();
  return { destroy: all(offs) };
}

const idOf = (one) => one?.id ?? one;

function tabList(ctx, id) {
  const panels = new Map();
  let current = null;
  let detail = null;
  const buttons = TABS.map(([name, label]) =>
    h(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${name}`,
        tabindex: "-1",
        aria: { selected: "false", controls: `panel-${name}` },
        on: { click: () => open(name), keydown: (event) => walk(event, name) },
      },
      label,
    ),
  );
  const bar = h("div", { class: "tabs", role: "tablist", aria: { label: `Parts of ${id}` } }, buttons);
  const box = h("div", { class: "tab-panels" });

  function open(wanted, focus) {
    const at = Math.max(
      0,
      TABS.findIndex(([name]) => name === wanted),
    );
    const [name, , make] = TABS[at];
    if (name === current) return;
    leave();
    current = name;
    buttons.forEach((button, i) => {
      button.setAttribute("aria-selected", String(i === at));
      button.tabIndex = i === at ? 0 : -1;
    });
    if (!panels.has(name)) {
      const made = make(ctx, id);
      made.panel = h(
        "div",
        {
          role: "tabpanel",
          dataset: made.update ? { pending: "" } : {},
          id: `panel-${name}`,
          class: `panel-${name}`,
          aria: { labelledby: `tab-${name}` },
        },
        made.node,
      );
      panels.set(name, made);
      box.append(made.panel);
    }
    const panel = panels.get(name);
    panel.panel.hidden = false;
    panel.enter?.();
    if (detail) fill(panel);
    setQuery({ ...query(), tab: at ? name : "" });
    buttons[at].scrollIntoView({ block: "nearest", inline: "nearest" });
    if (focus) buttons[at].focus({ preventScroll: true });
  }
  function fill(panel) {
    panel.update?.(detail);
    delete panel.panel.dataset.pending;
  }
  function leave() {
    const panel = panels.get(current);
    if (!panel) return;
    panel.panel.hidden = true;
    panel.leave?.();
  }
  function walk(event, name) {
    const moves = { ArrowRight: 1, ArrowLeft: -1 };
    if (!moves[event.key]) return;
    event.preventDefault();
    const at = TABS.findIndex(([one]) => one === name);
    open(TABS[(at + moves[event.key] + TABS.length) % TABS.length][0], true);
  }
  return {
    node: h("div", { class: "tabbed" }, bar, box),
    open,
    update(next) {
      detail = next;
      fill(panels.get(current));
    },
    renew: () => panels.get(current)?.renew?.(),
    destroy() {
      leave();
      for (const panel of panels.values()) panel.destroy?.();
    },
  };
}

function terminalTab(ctx, id) {
  const node = h("div", { class: "term-host" });
  let terminal = null;
  return {
    node,
    enter() {
      terminal = Terminal(node, { id });
      ctx.stream.watch(id);
    },
    leave() {
      ctx.stream.watch(null);
      terminal.destroy();
    },
  };
}

/** A reviewer's words stand in the thread of the work it reviews. */
function feedbackTab(ctx, id) {
  const node = h("div", { class: "tab-body" });
  let load = null;
  return {
    node,
    update({ row }) {
      if (load) return;
      const work = row.kind === "review" && row.parent ? row.parent : id;
      const shown = thread(ctx, work);
      load = loader(
        node,
        "the thread",
        () => ctx.api.get(`threads/${encodeURIComponent(work)}`),
        (answer, fresh) => {
          if (fresh) node.append(shown.node);
          shown.show(answer);
        },
      );
      load();
    },
    renew: () => load?.(),
    destroy: () => load?.stop(),
  };
}
