// Who works, who reviews whom, what was forked from what: a drawing with fixed places, and the same as a table.
import { h, icon, keyed, replace, s, setIcon, text } from "../dom.js";
import { STATES } from "../store.js";
import { instancePath } from "../paths.js";
import { all, button, empty, head, plural, query, row, select, setQuery, table, toInstance, when } from "./kit.js";
import { forest, neighbour, stacked } from "./layout.js";

const [WIDE, HIGH, GAP, EDGE] = [190, 44, 40, 12];
const MANY = 150;
const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

export const title = () => "Graph";

export function mount(root, params, ctx) {
  const { store } = ctx;
  let chosen = fromAddress(store);
  let shown = null;
  let current = store.selected;
  const tools = h("div", { class: "bar" });
  const edges = s("svg", { class: "edges", "aria-hidden": "true" });
  const nodes = h("div", {
    class: "nodes",
    on: { keydown: walk, focusin: (event) => focusOn(event.target.closest("[data-id]")?.dataset.id) },
  });
  const sheet = h("div", { class: "graph-sheet" }, edges, nodes);
  const box = h(
    "div",
    { class: "graph-box", role: "region", aria: { label: "Graph of instances" }, tabindex: "0" },
    sheet,
  );
  const body = h("div", { class: "graph-body" }, box);
  replace(
    root,
    h(
      "div",
      { class: "page" },
      head("Graph", tools, h("span", { class: "muted small legend" }, "— review  - - fork")),
      body,
    ),
  );

  function choose(change) {
    chosen = { ...chosen, ...change };
    drawTools();
    filtered();
  }
  function filtered() {
    setQuery({ ...chosen, state: store.state, repo: store.repo });
    if (!tools.contains(document.activeElement)) drawTools();
    draw();
  }
  const rows = () =>
    store
      .sorted()
      .filter(
        (one) =>
          (!store.state || one.state === store.state) && (!chosen.mission || one.mission === chosen.mission),
      );

  function drawTools() {
    const everything = [...store.rows.values()];
    const missions = [...new Set(everything.map((one) => one.mission).filter(Boolean))].sort();
    replace(
      tools,
      select("Filter by state", [["", "All states"], ...STATES.map((one) => [one, one])], store.state, (state) =>
        store.filterState(state || store.state),
      ),
      missions.length > 0 &&
        select(
          "Filter by mission",
          [["", "All missions"], ...missions.map((one) => [one, one])],
          chosen.mission,
          (mission) => choose({ mission }),
        ),
      everything.length > MANY &&
        button(chosen.all ? "Fold finished" : "Show finished", () => choose({ all: chosen.all ? "" : "1" })),
      button(
        chosen.view === "table" ? "Show as graph" : "Show as table",
        () => (choose({ view: chosen.view === "table" ? "" : "table" }), tools.lastChild.focus()),
      ),
    );
  }

  function draw() {
    const found = rows();
    if (!found.length) return replace(body, nothing(ctx, chosen, choose));
    if (chosen.view === "table") return drawTable(body, found);
    if (!box.isConnected) replace(body, box);
    const bands = forest(found, { collapse: found.length > MANY && !chosen.all });
    shown = stacked(bands, Math.floor(((box.clientWidth || innerWidth) - 2 * EDGE + GAP) / (WIDE + GAP)));
    sheet.style.width = `${shown.columns * (WIDE + GAP) - GAP + 2 * EDGE}px`;
    sheet.style.height = `${shown.lines * HIGH + 2 * EDGE}px`;
    if (!shown.nodes.some((node) => node.id === current)) current = shown.nodes[0].id;
    keyed(nodes, shown.nodes, (node) => node.id, nodeOf, renewNode);
    drawEdges(edges, shown.nodes);
  }

  function renewNode(node, one) {
    const { row: of, hidden } = one;
    [node.style.left, node.style.top] = [`${left(one)}px`, `${top(one)}px`];
    node.className = `node state-${of.state}${one.id === store.selected ? " selected" : ""}`;
    node.tabIndex = one.id === current ? 0 : -1;
    setIcon(node.firstChild, of.state);
    const [id, word, name, more] = node.querySelectorAll("span");
    text(id, of.id);
    text(word, hidden ? `+${hidden} done` : of.state);
    text(name, of.title === of.id ? of.kind : of.title);
    text(
      more,
      `, ${of.parent ? `${of.kind} of ${of.parent}` : of.kind}${hidden ? `, with ${hidden} finished` : ""}`,
    );
  }
  function focusOn(id) {
    if (!id || id === current) return;
    current = id;
    for (const node of nodes.children) node.tabIndex = node.dataset.id === id ? 0 : -1;
  }
  function walk(event) {
    if (!ARROWS[event.key]) return;
    event.preventDefault();
    const next = neighbour(
      shown.nodes,
      shown.nodes.find((node) => node.id === current),
      ARROWS[event.key],
    );
    if (next) [...nodes.children].find((node) => node.dataset.id === next.id).focus();
  }
  const wide = new ResizeObserver(() => box.isConnected && draw());
  wide.observe(box);
  const offs = [
    store.on("rows", () => (drawTools.due(), draw())),
    store.on("filter", filtered),
    store.on("selected", draw),
    () => wide.disconnect(),
    ctx.keys.bind(
      { v: ["Graph or table", () => choose({ view: chosen.view === "table" ? "" : "table" })] },
      "Graph",
    ),
  ];
  let size = store.rows.size;
  drawTools.due = () => {
    if (size !== (size = store.rows.size) && !tools.contains(document.activeElement)) drawTools();
  };
  drawTools();
  draw();
  return { destroy: all(offs) };
}

/** State and repository are filters of the whole dashboard; an address may set them. */
function fromAddress(store) {
  const { state, repo, ...own } = query();
  if (state && state !== store.state && STATES.includes(state)) store.filterState(state);
  if (repo) store.filterRepo(repo);
  return own;
}

const left = (node) => EDGE + node.x * (WIDE + GAP);
const top = (node) => EDGE + node.y * HIGH;
const nodeOf = (node) =>
  h(
    "a",
    { href: instancePath(node.id), dataset: { id: node.id } },
    icon(node.row.state),
    h("b", {}, h("span", { class: "mono" }), " ", h("span", { class: "word" })),
    " ",
    h("span", { class: "name" }),
    h("span", { class: "unseen" }),
  );

function nothing({ store }, chosen, choose) {
  if (!store.rows.size)
    return empty("No instances yet.", "Press n to spawn one, or run swarm work in a terminal.");
  return empty(
    "No instance matches this filter.",
    button(
      "Clear the filter",
      () => (
        store.state && store.filterState(store.state),
        store.repo && store.filterRepo(""),
        choose({ mission: "" })
      ),
    ),
  );
}

/** Solid to a review, dashed to a fork. */
function drawEdges(edges, nodes) {
  const places = new Map(nodes.map((node) => [node.id, node]));
  edges.replaceChildren(
    ...nodes
      .filter((node) => places.has(node.parent))
      .map((node) => {
        const from = places.get(node.parent);
        const [x1, y1, x2, y2] = [
          left(from) + WIDE,
          top(from) + HIGH / 2 - 3,
          left(node),
          top(node) + HIGH / 2 - 3,
        ];
        const middle = (x1 + x2) / 2;
        return s("path", {
          class: node.row.kind === "review" ? "edge" : "edge dashed",
          d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2 - 5} ${y2}m-4 -4l5 4l-5 4`,
        });
      }),
  );
}

function drawTable(body, found) {
  const lines = forest(found).flatMap((band) => band.nodes);
  const cells = (node) =>
    row(
      toInstance(node.id),
      h("span", { class: `state-${node.row.state}` }, icon(node.row.state), ` ${node.row.state}`),
      node.row.kind,
      node.parent ? toInstance(node.parent) : node.row.parent || "",
      node.row.title,
      node.row.repo,
      when(node.row.created_at),
    );
  const key = JSON.stringify(lines.map(({ id, row: one }) => [id, one.state, one.title]));
  if (body.firstChild?.dataset?.key === key) return;
  const at = body.firstChild?.scrollTop;
  replace(
    body,
    table(
      `Instances and where they come from: ${plural(lines.length, "instance")}`,
      ["instance", "state", "kind", "comes from", "task", "repository", "started"],
      lines.map(cells),
    ),
  );
  body.firstChild.dataset.key = key;
  body.firstChild.scrollTop = at || 0;
}
