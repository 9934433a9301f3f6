// The last lines of every running agent, side by side; who waits for you comes first.
import { h, icon, keyed, replace, setIcon, text } from "../dom.js";
import { summary } from "../needs.js";
import { fillLine } from "../runs.js";
import { instancePath } from "../paths.js";
import { all, button, empty, head } from "./kit.js";

const LINES = 8;

export const title = () => "Wall";

export function mount(root, params, ctx) {
  const { store } = ctx;
  const wall = h("div", { class: "wall", role: "list", aria: { label: "Running agents" } });
  const note = h("div", {});
  replace(
    root,
    h(
      "div",
      { class: "page" },
      head("Wall", h("span", { class: "muted" }, "The last lines of every agent that runs, once a second.")),
      note,
      wall,
    ),
  );
  const screens = new Map();

  function draw() {
    const rows = store
      .sorted()
      .filter(
        (row) =>
          !row.ended &&
          row.state !== "done" &&
          row.activity !== "exited" &&
          (!store.state || row.state === store.state),
      );
    replace(note, rows.length ? "" : nothing(store));
    keyed(wall, rows, (row) => row.id, tile, renew);
  }
  function fill(tiles) {
    for (const { id, lines } of tiles) {
      screens.set(id, lines);
      const screen = wall.querySelector(`[data-tile="${CSS.escape(id)}"] pre`);
      if (screen) paint(screen, lines);
    }
    for (const id of screens.keys()) if (!store.rows.has(id)) screens.delete(id);
  }
  const tile = (row) => {
    const node = h(
      "div",
      { role: "listitem", dataset: { tile: row.id } },
      h(
        "a",
        { class: "tile-head", href: instancePath(row.id) },
        icon(row.state),
        h("b", { class: "mono" }, row.id),
        " ",
        h("span", { class: "name" }),
        h("span", { class: "unseen" }),
      ),
      h("span", { class: "reason" }),
      h("pre", { aria: { hidden: "true" }, inert: true, dataset: { none: "No terminal" } }),
    );
    paint(node.querySelector("pre"), screens.get(row.id) || []);
    return node;
  };
  const renew = (node, row) => {
    node.className = `tile state-${row.state}`;
    setIcon(node.querySelector("svg"), row.state);
    text(node.querySelector(".name"), row.title === row.id ? row.kind : row.title);
    const need = row.needs?.[0];
    const reason = (need && summary(need)) || row.reason || row.detail || row.activity;
    text(node.querySelector(".reason"), `${row.state}${reason && reason !== row.state ? ` · ${reason}` : ""}`);
    text(node.querySelector(".unseen"), `, ${row.state}${reason ? `, ${reason}` : ""}`);
  };
  const move = (by) => () => {
    const tiles = [...wall.querySelectorAll("a")];
    const at = tiles.indexOf(document.activeElement);
    tiles[Math.min(Math.max(at + by, 0), tiles.length - 1)]?.focus();
  };
  const offs = [
    store.on("rows", draw),
    store.on("filter", draw),
    store.on("tiles", fill),
    () => ctx.stream.tiles(false),
    ctx.keys.bind(
      {
        j: ["Next tile", move(1)],
        k: ["Previous tile", move(-1)],
        ArrowRight: ["Next tile", move(1)],
        ArrowLeft: ["Previous tile", move(-1)],
      },
      "Wall",
    ),
  ];
  ctx.stream.tiles(true);
  draw();
  return { destroy: all(offs) };
}

function nothing(store) {
  if (store.state)
    return empty(
      `No running agent is ${store.state}.`,
      button("Show all", () => store.filterState(store.state)),
    );
  return empty("No agent is running.", "Press n to spawn one, or run swarm work in a terminal.");
}

function paint(screen, lines) {
  const last = lines.slice(-LINES);
  while (screen.childElementCount > last.length) screen.lastChild.remove();
  while (screen.childElementCount < last.length) screen.append(h("span", { class: "tile-line" }));
  last.forEach((runs, i) => {
    const [line, key] = [screen.children[i], JSON.stringify(runs)];
    if (line.runs === key) return;
    line.runs = key;
    fillLine(line, runs);
  });
}
