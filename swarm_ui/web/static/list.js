// The instances, those whose waiting costs most first. Rows off the screen cost nothing: content-visibility.
import { aria, h, icon, keyed, setIcon, text } from "./dom.js";
import { summary } from "./needs.js";
import { instancePath } from "./paths.js";
import { store } from "./store.js";

const STEP = 400;
const HOT = new Set(["waiting", "error"]);

/** instanceList({onPick}) -> {node, search, show(), ids(), destroy()} */
export function instanceList({ onPick }) {
  let most = STEP;
  let wanted = "";
  const box = h("ul", { id: "list", role: "list", aria: { label: "Instances" } });
  const search = h("input", {
    type: "search",
    placeholder: "Filter instances",
    aria: { label: "Filter instances" },
    on: { input: () => ((wanted = search.value.trim().toLowerCase()), show()) },
  });
  const more = h("button", {
    class: "btn list-more",
    type: "button",
    hidden: true,
    on: { click: () => ((most += STEP), show()) },
  });
  const empty = h("div", { class: "empty", hidden: true });
  const node = h(
    "section",
    { class: "pane list-pane", aria: { label: "Instance list" } },
    h("div", { class: "pane-head" }, search, h("kbd", { aria: { hidden: "true" } }, "/")),
    empty,
    box,
    more,
  );
  box.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    onPick(link.parentElement.dataset.id);
  });

  function shown() {
    return store
      .sorted()
      .filter((row) => (!store.state || row.state === store.state) && (!wanted || matches(row, wanted)));
  }

  function show() {
    const rows = shown();
    keyed(box, rows.slice(0, most), (row) => row.id, makeRow, updateRow);
    more.hidden = rows.length <= most;
    text(more, more.hidden ? "" : `Show ${rows.length - most} more`);
    empty.hidden = rows.length > 0;
    box.hidden = !rows.length;
    if (!rows.length) empty.replaceChildren(...nothing());
  }

  function nothing() {
    if (store.rows.size && (wanted || store.state || store.repo))
      return [
        icon("filter"),
        h("h2", null, "No instance fits"),
        h("button", { class: "btn", type: "button", on: { click: clear } }, "Clear the filter"),
      ];
    if (!store.loaded) return [h("p", null, "Loading…")];
    return [
      icon("now"),
      h("h2", null, "No agents yet"),
      h("p", null, "Press ", h("kbd", null, "n"), " to start one, or run"),
      h("code", { class: "command" }, 'swarm work "…"'),
    ];
  }

  function clear() {
    search.value = wanted = "";
    if (store.state) store.filterState(store.state);
    if (store.repo) store.filterRepo("");
    show();
  }

  function mark() {
    for (const link of box.querySelectorAll("[aria-current]"))
      if (link.parentElement.dataset.id !== store.selected) aria(link, "current", null);
    const row = store.selected && box.querySelector(`[data-id="${CSS.escape(store.selected)}"]`);
    if (!row) return;
    aria(row.firstChild, "current", "true");
    row.scrollIntoView({ block: "nearest" });
  }

  const off = [store.on("rows", show), store.on("selected", mark)];
  show();
  return {
    node,
    search,
    show,
    mark,
    ids: () => shown().map((row) => row.id),
    destroy: () => off.forEach((stop) => stop()),
  };
}

function matches(row, wanted) {
  return [
    row.id,
    row.title,
    row.reason,
    row.agent,
    row.branch,
    row.repo,
    row.state,
    row.kind,
    row.issue && `#${row.issue}`,
    row.pr && `#${row.pr.number}`,
  ].some((field) => field && String(field).toLowerCase().includes(wanted));
}

function makeRow(row) {
  return h(
    "li",
    { dataset: { id: row.id } },
    h(
      "a",
      { class: "row", href: instancePath(row.id) },
      icon(row.state),
      h("span", { class: "row-title ellipsis" }, h("b", null, row.id), " ", h("span")),
      h("span", { class: "row-side" }),
      h("span", { class: "row-more ellipsis" }, h("span", { class: "unseen" }), h("span")),
      h("span", { class: "row-side" }, h("span", { class: "added" }), " ", h("span", { class: "deleted" })),
    ),
  );
}

const drawn = new WeakMap();

function updateRow(node, row) {
  if (drawn.get(node) === row) return;
  drawn.set(node, row);
  const link = node.firstChild;
  const [sign, title, pull, more, changes] = link.children;
  if (link.dataset.state !== row.state) {
    link.dataset.state = row.state;
    link.className = `row state-${row.state}`;
    setIcon(sign, row.state);
  }
  text(title.lastChild, row.title && row.title !== row.id ? row.title : "");
  text(pull, row.pr ? `#${row.pr.number}${row.pr.stale ? " ?" : ""}` : "");
  text(more.firstChild, HOT.has(row.state) ? `${row.state}: ` : "");
  text(more.lastChild, story(row));
  text(changes.firstChild, row.added ? `+${row.added}` : "");
  text(changes.lastChild, row.deleted ? `−${row.deleted}` : "");
  if (row.id === store.selected) aria(link, "current", "true");
  bar(link, row);
}

/** Why it waits or what it does; else what it is. */
function story(row) {
  const need = row.needs?.[0] ? summary(row.needs[0]) : row.reason;
  if (HOT.has(row.state) && need) return need;
  const kind = row.parent ? `${row.kind} ← ${row.parent}` : row.kind;
  return [row.state, row.detail || null, kind, row.agent].filter(Boolean).join(" · ");
}

function bar(link, row) {
  let node = link.querySelector(".bar");
  if (!row.budget || !row.cost) return node?.remove();
  if (!node) link.append((node = h("span", { class: "bar", aria: { hidden: "true" } }, h("i"))));
  node.classList.toggle("over", row.cost >= row.budget);
  node.firstChild.style.width = `${Math.min(100, (100 * row.cost) / row.budget)}%`;
}
