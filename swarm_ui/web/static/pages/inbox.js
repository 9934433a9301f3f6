// Everything that waits for a person, oldest first, to be worked off with the keyboard.
import { h, icon, keyed, replace } from "../dom.js";
import { asked } from "../needs.js";
import { instancePath } from "../paths.js";
import { all, command, empty, head, part, plural, ticking, toInstance, when } from "./kit.js";

export const title = () => "Inbox";

export function mount(root, params, ctx) {
  const { store } = ctx;
  const counted = h("span", { class: "muted", role: "status" });
  const list = h("div", { class: "inbox", role: "list", aria: { label: "What waits for you, oldest first" } });
  const none = h(
    "div",
    {},
    empty("Nobody needs you.", "Questions, approvals and failures appear here the moment they happen."),
  );
  const keysHint = h(
    "p",
    { class: "muted small keys-hint" },
    ...hint("j", "k"),
    " move · ",
    ...hint("a"),
    " first answer · ",
    ...hint("m"),
    " write · ",
    ...hint("x"),
    " dismiss · ",
    ...hint("Enter"),
    " open",
  );
  const page = h("div", { class: "page" }, head("Inbox", counted), keysHint, none, list);
  replace(root, page);
  let current = null;

  const items = () => store.waiting();
  const rowOf = (item) =>
    store.rows.get(item.instance) || { id: item.instance, title: item.title, repo: item.repo, needs: [item] };
  const cards = () => [...list.children];
  const cardOf = (id) => cards().find((card) => card.dataset.item === id);

  function draw() {
    const found = items();
    none.hidden = found.length > 0;
    keysHint.hidden = !found.length;
    counted.textContent = found.length ? `${plural(found.length, "thing waits", "things wait")} for you` : "";
    const before = cards().map((card) => card.dataset.item);
    const had = list.contains(document.activeElement);
    keyed(
      list,
      found,
      (item) => item.id,
      card,
      (node, item) => node.renew(item),
    );
    if (!found.some((item) => item.id === current)) {
      // What was acted on is gone: the next one takes its place, and the focus if it had it.
      const at = before.indexOf(current);
      const next =
        before.slice(at + 1).find((id) => cardOf(id)) ||
        found[Math.min(Math.max(at, 0), found.length - 1)]?.id ||
        null;
      choose(next, had || (at >= 0 && document.activeElement === document.body));
    }
  }
  function choose(id, focus) {
    current = id;
    for (const node of cards()) {
      node.classList.toggle("selected", node.dataset.item === id);
      node.tabIndex = node.dataset.item === id ? 0 : -1;
      if (node.dataset.item === id && focus) {
        node.focus({ preventScroll: true });
        node.scrollIntoView({ block: "nearest" });
      }
    }
    const item = items().find((one) => one.id === id);
    if (item) store.select(item.instance);
  }
  function card(item) {
    const node = h("div", {
      class: "card",
      role: "listitem",
      tabindex: "-1",
      dataset: { item: item.id },
      on: { focusin: () => current !== item.id && choose(item.id) },
    });
    node.renew = part(node, (one) => drawCard(ctx, rowOf(one), one));
    return node;
  }
  const now = () => items().find((item) => item.id === current);
  const move = (by) => () => {
    const found = items();
    const at = found.findIndex((item) => item.id === current);
    if (found.length) choose(found[Math.min(Math.max(at + by, 0), found.length - 1)].id, true);
  };
  const withItem = (fn) => () => {
    const item = now();
    if (item) fn(item);
  };
  const first = (item) => cardOf(item.id)?.querySelector(".btn.primary, .btn[data-act]")?.click();
  const write = (item) => {
    const free = item.acts.find((act) => act.act === "answer" && act.body?.text === null);
    ctx.actions.run(free ? "answer" : "message", rowOf(item), free?.body);
  };
  const offs = [
    store.on("inbox", draw),
    store.on("rows", draw),
    store.on("filter", draw),
    ctx.keys.bind(
      {
        j: ["Next", move(1)],
        k: ["Previous", move(-1)],
        ArrowDown: ["Next", move(1)],
        ArrowUp: ["Previous", move(-1)],
        a: ["First answer, approve", withItem(first)],
        m: ["Answer in words, or message", withItem(write)],
        x: ["Dismiss", withItem((item) => ctx.actions.run("dismiss", item))],
        Enter: ["Open", withItem((item) => ctx.go(instancePath(item.instance)))],
      },
      "Inbox",
    ),
    ticking(page),
  ];
  draw();
  return { destroy: all(offs) };
}

const hint = (...names) => names.map((name) => h("kbd", {}, name));

function drawCard(ctx, row, item) {
  const sign = row.state === "error" ? "error" : "waiting";
  return [
    h(
      "div",
      { class: `card-head state-${sign}`, dataset: { sign } },
      icon(sign, row.state === "error" ? "error" : "waiting"),
      toInstance(item.instance),
      h("h2", {}, item.text),
      h("span", { class: "muted grow" }, when(item.since)),
    ),
    h("p", { class: "muted" }, item.title || row.title || "", item.repo ? ` · ${item.repo}` : ""),
    asked(item, item.title) && h("pre", { class: "quoted" }, asked(item, item.title)),
    h(
      "div",
      { class: "bar" },
      item.acts.map((act) => ctx.actions.button(act, item)),
      ctx.actions.button({ act: "dismiss" }, item),
      h("span", { class: "grow" }),
      item.command && command(item.command),
    ),
  ];
}
