// The whole history: filters that stand in the address, pages by cursor, new events on top as they happen.
import { h, replace } from "../dom.js";
import { eventList, grouped, single } from "./eventlist.js";
import { all, asQuery, button, empty, failed, head, ID, later, query, select, setQuery } from "./kit.js";

const PAGE = 200;
const MOST = 4000;
const FEW = 50;
const FIELDS = ["instance", "name", "actor", "q"];
const NAMES = { instance: "Instance", name: "Event name", actor: "Actor", q: "Text" };
const FILTERS = [...FIELDS, "level"];

export const title = () => "Events";

export function mount(root, params, ctx) {
  const { store } = ctx;
  let chosen = query();
  if (chosen.repo) store.filterRepo(chosen.repo);
  let items = [];
  let next = null;
  let busy = false;
  let turn = 0;
  const tools = h("div", { class: "bar filters", role: "search", aria: { label: "Filter events" } });
  const note = h("div", {});
  const more = button("Older", () => older());
  const list = eventList("Events", { nearEnd: () => older(), foot: h("div", { class: "bar foot" }, more) });
  const fresh = button("", () => (list.toTop(), renew()), "fresh");
  const page = h(
    "div",
    { class: "page events" },
    head("Events", tools),
    note,
    h("div", { class: "event-box" }, fresh, list.node),
  );
  replace(root, page);
  fresh.hidden = true;

  const filters = () => ({
    ...Object.fromEntries(FILTERS.map((name) => [name, chosen[name]])),
    repo: store.repo,
    instance: ID.test(chosen.instance) ? chosen.instance : "",
  });
  /** A filter may let little of a page through: so many more are asked for until there is something to see. */
  async function ask(before) {
    const found = [];
    for (let pages = 0; pages < 20; pages++) {
      const answer = await ctx.api.get(`events?${asQuery({ ...filters(), limit: PAGE, before })}`);
      found.push(...answer.items);
      before = answer.next;
      if (!before || found.length >= FEW) break;
    }
    return { items: found, next: before };
  }

  async function reload() {
    const mine = ++turn;
    busy = true;
    try {
      const answer = await ask();
      if (mine !== turn) return;
      [items, next] = [answer.items, answer.next];
      replace(note);
      list.toTop();
      show();
      if (!items.length) replace(note, nothing());
    } catch (error) {
      if (mine === turn) replace(note, failed(error, reload));
    } finally {
      if (mine === turn) busy = false;
    }
  }
  async function older() {
    if (busy || !next) return;
    const mine = turn;
    busy = true;
    try {
      const answer = await ask(next);
      if (mine !== turn) return;
      items = items.concat(answer.items);
      next = answer.next;
      show();
    } catch (error) {
      ctx.fail(error, older);
    } finally {
      busy = false;
    }
  }
  function show() {
    list.show(chosen.raw ? single(items) : grouped(items));
    more.hidden = !next;
    if (list.atTop()) fresh.hidden = true;
  }
  /** What the stream brought and the filter lets through; a gap means that the first page is asked for again. */
  function renew() {
    if (busy) return;
    const newest = items[0]?.id ?? 0;
    const known = store.events.filter((event) => event.id > newest);
    if (!known.length) return;
    if (known.length === store.events.length && newest) return void reload();
    const passing = known.filter(passes);
    if (!passing.length) return;
    if (!list.atTop()) {
      fresh.textContent = `${passing.length} new`;
      fresh.hidden = false;
      return;
    }
    items = passing.concat(items);
    if (items.length > MOST) {
      items = items.slice(0, MOST / 2);
      next = items.at(-1).id;
    }
    replace(note);
    show();
  }
  function passes(event) {
    const { instance, name, actor, q, level, repo } = { ...chosen, ...filters() };
    return (
      (!instance || event.instance === instance) &&
      (!name || event.name.startsWith(name)) &&
      (!actor || event.actor === actor) &&
      (!level || event.level === level) &&
      (!repo || store.rows.get(event.instance)?.repo_path === repo) &&
      (!q || JSON.stringify(event).toLowerCase().includes(q.toLowerCase()))
    );
  }
  function choose(change, redraw) {
    chosen = { ...chosen, ...change };
    setQuery({ ...chosen, repo: store.repo });
    if (redraw) drawTools();
    exporting();
    reload();
  }
  const nothing = () =>
    store.repo || FILTERS.some((name) => chosen[name])
      ? empty(
          "No events for this filter.",
          button(
            "Clear the filter",
            () => (
              store.repo && store.filterRepo(""),
              choose(Object.fromEntries(FILTERS.map((name) => [name, ""])), true)
            ),
          ),
        )
      : empty("Nothing has happened yet.", "Every change of every instance is written down here.");

  const link = h("a", { class: "btn", download: "events.jsonl" }, "Export JSONL");
  const exporting = () => link.setAttribute("href", `/api/v1/events/export?${asQuery(filters())}`);
  const typed = later(
    () => choose(Object.fromEntries(inputs.map((input) => [input.name, input.value.trim()]))),
    350,
  );
  let inputs = [];
  function drawTools() {
    inputs = FIELDS.map((name) =>
      h("input", {
        type: "search",
        name,
        value: chosen[name] || "",
        placeholder: NAMES[name],
        aria: { label: NAMES[name] },
        list: name === "instance" && "ids",
        on: { [name === "actor" ? "change" : "input"]: typed },
      }),
    );
    const ids = h(
      "datalist",
      { id: "ids" },
      [...store.rows.keys()].map((id) => h("option", { value: id })),
    );
    const toggle = h(
      "label",
      { class: "check" },
      h("input", {
        type: "checkbox",
        checked: Boolean(chosen.raw),
        on: {
          change: (event) => (
            (chosen.raw = event.target.checked ? "1" : ""),
            setQuery({ ...chosen, repo: store.repo }),
            show()
          ),
        },
      }),
      "every event",
    );
    replace(
      tools,
      ids,
      inputs,
      select(
        "Level",
        [
          ["", "All levels"],
          ["info", "info"],
          ["warning", "warning"],
          ["error", "error"],
        ],
        chosen.level,
        (level) => choose({ level }),
      ),
      toggle,
      link,
    );
    exporting();
  }
  const offs = [
    store.on("events", renew),
    store.on("filter", () => choose({})),
    ctx.keys.bind({ "/": ["Filter", () => inputs.at(-1).focus()] }, "Events"),
    typed.stop,
    () => turn++,
    list.destroy,
  ];
  drawTools();
  reload();
  return { destroy: all(offs) };
}
