// Who needs a person, on every page, with what can be done about it.
import * as actions from "./actions.js";
import { ago, h, icon, keyed, setIcon, text } from "./dom.js";
import { summary } from "./needs.js";
import { instancePath, nowPath } from "./paths.js";
import { store } from "./store.js";
import { say } from "./toast.js";

const SHOWN = 40;
const AGE_MS = 15000;
let spoken = null;

export function strip({ go }) {
  const list = h("ul", { role: "list" });
  const node = h(
    "section",
    { id: "strip", role: "region", hidden: true, tabindex: "0", aria: { label: "Needs you" } },
    list,
  );
  const show = () => {
    const items = store.waiting();
    node.hidden = !items.length;
    keyed(
      list,
      items.slice(0, SHOWN),
      (item) => item.id,
      (item) => make(item, go),
      update,
    );
    speak(items);
  };
  store.on("inbox", show);
  store.on("filter", show);
  store.on("rows", (changed) => changed.size && !node.hidden && show());
  setInterval(() => !document.hidden && store.waiting().length && show(), AGE_MS);
  return node;
}

function make(item, go) {
  const open = (event) => {
    event.preventDefault();
    event.stopPropagation();
    if (location.pathname === "/") store.pick(item.instance);
    else go(nowPath(item.instance));
  };
  return h(
    "li",
    { class: "need", dataset: { need: item.id } },
    h(
      "div",
      { class: "need-text" },
      h(
        "a",
        { href: instancePath(item.instance), on: { click: open } },
        icon("waiting"),
        " ",
        h("b", { class: "mono" }, item.instance),
        " ",
        h("span"),
      ),
      h("small", { class: "ellipsis" }),
    ),
    h("div", { class: "need-acts" }),
  );
}

function update(node, item) {
  const bad = store.rows.get(item.instance)?.state === "error";
  node.classList.toggle("bad", bad);
  const [link, more] = node.firstChild.children;
  setIcon(link.firstChild, bad ? "error" : "waiting");
  text(link.lastChild, summary(item));
  link.title = item.more || item.text;
  text(
    more,
    [item.title !== item.instance && item.title, store.repos.length > 1 && item.repo, ago(item.since, store.now())]
      .filter(Boolean)
      .join(" · "),
  );
  const acts = offered(item);
  const said = JSON.stringify(acts);
  if (node.dataset.acts === said) return;
  node.dataset.acts = said;
  node.lastChild.replaceChildren(...acts.map((act) => actions.button(act, item, { plain: true })));
}

/** The first thing to do about it; of a choice the first and the last: yes and no. */
function offered(item) {
  const acts = (item.acts || []).filter((act) => act.act !== "open");
  const choices = acts.filter((act) => act.act === "answer" && act.body?.choice !== undefined);
  return choices.length > 1 ? [choices[0], choices.at(-1)] : acts.slice(0, 1);
}

/** Only what is new is spoken. */
function speak(items) {
  const ids = new Set(items.map((item) => item.id));
  const fresh = spoken ? items.filter((item) => !spoken.has(item.id)) : [];
  spoken = ids;
  if (fresh.length === 1) say(`${fresh[0].instance} needs you: ${summary(fresh[0])}`);
  else if (fresh.length) say(`${fresh.length} more need you`);
}
