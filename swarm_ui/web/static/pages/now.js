// Now: who is there, the one you look at, and what happens.
import { ago, aria, away, copyButton, h, icon, replace, stateBadge, text } from "../dom.js";
import { eventFeed } from "../feed.js";
import { instanceList } from "../list.js";
import { menu } from "../menu.js";
import { answers, asked } from "../needs.js";
import { instancePath, nowPath } from "../paths.js";
import { remember, remembered } from "../store.js";
import { Terminal } from "../term.js";
import { part } from "./kit.js";

const VIEWS = [
  ["list", "List"],
  ["instance", "Instance"],
  ["events", "Events"],
];
const IN_HEAD = ["message", "restart", "stop"];

export function title() {
  return "";
}

export function mount(root, params, ctx) {
  const { store, stream, keys, go } = ctx;
  const list = instanceList({ onPick: store.pick });
  const feed = eventFeed();
  const centre = centrePane(ctx);
  const tabs = h(
    "div",
    { class: "tabs view-tabs", role: "tablist", aria: { label: "Panels" } },
    VIEWS.map(([name, label]) =>
      h(
        "button",
        { type: "button", role: "tab", dataset: { view: name }, on: { click: () => view(name) } },
        label,
      ),
    ),
  );
  replace(root, h("h1", { class: "unseen" }, "Now"), tabs, list.node, centre.node, feed.node);

  function view(name) {
    root.dataset.view = name;
    for (const tab of tabs.children) aria(tab, "selected", String(tab.dataset.view === name));
  }

  function selected() {
    const id = store.selected;
    remember("swarm.selected", id || "");
    history.replaceState(null, "", id ? nowPath(id) : "/");
    stream.watch(id && store.rows.has(id) ? id : null);
    centre.show(id);
    list.mark();
  }

  /** Select something sensible once there are rows; never take away what a person chose. */
  function settle() {
    if (store.selected && store.rows.has(store.selected)) return;
    if (!store.loaded) return;
    const ids = list.ids();
    const known = [params.query.get("i"), remembered("swarm.selected")].find((id) => id && store.rows.has(id));
    const next = known || ids[0] || null;
    if (next === store.selected) centre.show(next);
    store.select(next);
  }

  function step(by) {
    const ids = list.ids();
    if (!ids.length) return;
    const at = ids.indexOf(store.selected);
    store.select(ids[at < 0 ? 0 : Math.max(0, Math.min(ids.length - 1, at + by))]);
  }

  function relative(kind) {
    const row = store.rows.get(store.selected);
    const id =
      kind === "parent" ? row?.parent : [...store.rows.values()].find((one) => one.parent === row?.id)?.id;
    if (id && store.rows.has(id)) store.select(id);
  }

  const withRow = (work) => () => store.rows.has(store.selected) && work(store.rows.get(store.selected));
  const off = [
    store.on("selected", selected),
    store.on("picked", () => view("instance")),
    store.on("rows", settle),
    keys.bind({
      j: ["Next instance", () => step(1)],
      k: ["Previous instance", () => step(-1)],
      Enter: [
        "Open it",
        (event) => {
          const id = event.target.closest?.("#list [data-id]")?.dataset.id || store.selected;
          if (store.rows.has(id)) go(instancePath(id));
        },
      ],
      "/": ["Filter", () => (view("list"), list.search.focus())],
      a: [
        "Take the first action it needs",
        withRow((row) => {
          const act = firstAct(row);
          if (act) ctx.actions.run(act, row, null, { sure: act.act === "restart" });
          else ctx.toast(`${row.id} needs nothing`, { kind: "info" });
        }),
      ],
      m: ["Message", withRow(() => (view("instance"), centre.write()))],
      r: ["Restart", withRow((row) => ctx.actions.run("restart", row, null, { sure: true }))],
      s: ["Stop", withRow((row) => ctx.actions.run("stop", row))],
      f: ["Fork", withRow((row) => ctx.actions.run("fork", row))],
      "[": ["Parent", () => relative("parent")],
      "]": ["Child", () => relative("child")],
      1: ["List", () => view("list")],
      2: ["Instance", () => view("instance")],
      3: ["Events", () => view("events")],
    }),
  ];
  const asked = params.query.get("i");
  view(asked ? "instance" : "list");
  if (asked && store.rows.has(asked)) store.selected = asked;
  if (store.selected && store.rows.has(store.selected)) selected();
  else settle();
  return {
    destroy() {
      for (const stop of off) stop();
      list.destroy();
      feed.destroy();
      centre.destroy();
      stream.watch(null);
      delete root.dataset.view;
    },
  };
}

function firstAct(row) {
  const acts = answers(row);
  return acts.find((act) => act.primary) || acts[0];
}

/** The selected instance: who it is, what it needs, its terminal, a box to write to it. */
function centrePane({ store, actions }) {
  let id = null;
  let terminal = null;
  const drafts = new Map();
  const title = h("h2", { class: "head-title" });
  const meta = h("div", { class: "head-meta" });
  const acts = h("div", { class: "head-acts" });
  const head = h("div", { class: "head" }, title, meta, acts);
  const ask = h("div", { class: "ask", role: "group", aria: { label: "What it needs" }, hidden: true });
  const screen = h("div", { class: "centre-term" });
  const box = h("textarea", {
    rows: "1",
    placeholder: "Message the agent",
    aria: { label: "Message the agent" },
    on: {
      keydown: (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) (event.preventDefault(), send());
      },
    },
  });
  const sender = h(
    "button",
    { class: "btn", type: "button", dataset: { act: "message" }, on: { click: send } },
    "Send",
  );
  const say = h(
    "div",
    { class: "say" },
    box,
    h("kbd", { aria: { hidden: "true" }, title: "Ctrl+Enter sends" }, "m"),
    sender,
  );
  const empty = h("div", { class: "empty grow" });
  const node = h(
    "section",
    { class: "pane centre-pane", aria: { label: "Selected instance" } },
    empty,
    head,
    ask,
    screen,
    say,
  );

  function show(next) {
    if (next !== id) {
      terminal?.destroy();
      terminal = null;
      if (box.value) drafts.set(id, box.value);
      else drafts.delete(id);
      box.value = drafts.get(next) || "";
    }
    id = next;
    const row = store.rows.get(id);
    for (const one of [head, screen, say]) one.hidden = !row;
    empty.hidden = Boolean(row);
    if (!row) {
      ask.hidden = true;
      return replace(empty, nothing());
    }
    terminal ??= Terminal(screen, { id });
    sender.dataset.key = `message:${id}`;
    showHead(row);
    showNeeds(row);
    actions.refresh();
  }

  function nothing() {
    if (store.rows.size) return [icon("now"), h("p", null, "Choose an instance")];
    if (!store.loaded) return h("p", null, "Loading…");
    return [
      icon("brand"),
      h("h2", null, "Nothing runs yet"),
      h("p", null, "Give an agent a task; it works in its own worktree."),
      actions.spawnButton(),
      h("p", null, "or in a terminal:"),
      h("p", { class: "command" }, h("code", null, 'swarm work "…"'), copyButton('swarm work ""', "Copy command")),
    ];
  }

  const showTitle = part(title, (row) => [
    h("a", { class: "id", href: instancePath(row.id) }, row.id),
    h("span", { class: "name" }, row.title && row.title !== row.id ? row.title : ""),
    stateBadge(row.state),
  ]);

  const showMeta = part(meta, (row) => [
    row.branch &&
      h("span", null, icon("branch"), h("code", null, row.branch), copyButton(row.branch, "Copy branch")),
    h("span", null, row.kind),
    row.agent && h("span", null, row.agent),
    row.parent && h("span", null, h("a", { href: nowPath(row.parent) }, `← ${row.parent}`)),
    store.repos.length > 1 && h("span", null, row.repo),
    row.issue && h("span", null, `issue #${row.issue}`),
    row.pr && h("span", null, pullLink(row.pr)),
    row.added || row.deleted
      ? h(
          "span",
          { class: "mono" },
          h("span", { class: "added" }, `+${row.added || 0}`),
          h("span", { class: "deleted" }, `−${row.deleted || 0}`),
        )
      : null,
    row.cost ? h("span", null, `$${Number(row.cost).toFixed(2)}${row.budget ? ` of $${row.budget}` : ""}`) : null,
    row.overlap && h("span", { class: "state-waiting" }, row.overlap),
    h("span", { class: "head-age" }),
  ]);

  const showActs = part(acts, ({ id: of, names }) => {
    const rest = ["message", ...names.filter((name) => !IN_HEAD.includes(name))].filter((name) =>
      names.includes(name),
    );
    const button = (name) => actions.button(name, { id: of });
    return [
      IN_HEAD.filter((name) => name !== "message" && names.includes(name)).map(button),
      menu("More actions", rest.map(button)),
      h(
        "a",
        { class: "btn square", href: instancePath(of), title: "Open (Enter)", aria: { label: `Open ${of}` } },
        icon("open"),
      ),
    ];
  });

  /** What is not shown in a part must not rebuild it: an open menu would close. */
  function showHead(row) {
    const { branch, kind, agent, parent, repo, issue, pr, added, deleted, cost, budget, overlap } = row;
    showTitle({ id: row.id, title: row.title, state: row.state });
    showMeta({ branch, kind, agent, parent, repo, issue, pr, added, deleted, cost, budget, overlap });
    showActs({ id: row.id, names: actions.offered(row) });
    showAge();
  }

  function showNeeds(row) {
    const need = (row.needs || [])[0];
    ask.hidden = !need;
    const said = JSON.stringify([row.id, row.needs]);
    if (!need || ask.dataset.said === said) return;
    ask.dataset.said = said;
    ask.className = `ask${row.state === "error" ? " bad" : ""}`;
    const sign = row.state === "error" ? "error" : "waiting";
    replace(
      ask,
      row.needs.map((one) => [
        h(
          "div",
          { class: "ask-text" },
          h("b", { class: `state-${sign}` }, icon(sign), " ", one.text),
          asked(one, row.title) && h("div", { class: "muted" }, asked(one, row.title)),
        ),
        h(
          "div",
          { class: "ask-acts" },
          (one.acts || [])
            .filter((act) => act.act !== "open")
            .map((act) => actions.button(act, row, { plain: true })),
        ),
      ]),
    );
  }

  function showAge() {
    const row = store.rows.get(id);
    const age = head.querySelector(".head-age");
    if (row && age) text(age, row.since ? `${row.activity || row.state} ${ago(row.since, store.now())}` : "");
  }

  async function send() {
    const row = store.rows.get(id);
    const body = box.value.trim();
    if (!row || !body) return box.focus();
    const sent = await actions.run("message", row, { body });
    if (sent && box.value.trim() === body) box.value = "";
  }

  const off = [store.on("rows", (changed) => (!changed.size || changed.has(id)) && id && show(id))];
  const clock = setInterval(() => document.hidden || showAge(), 5000);
  return {
    node,
    show,
    write: () => box.focus(),
    destroy() {
      clearInterval(clock);
      off.forEach((stop) => stop());
      terminal?.destroy();
    },
  };
}

function pullLink(pr) {
  const state = pr.state || pr.status || "";
  const label = `#${pr.number} ${state}${pr.stale ? ` ? ${pr.age_s ? `${Math.round(pr.age_s / 60)}m old` : ""}` : ""}`;
  return away(pr.url, label);
}
