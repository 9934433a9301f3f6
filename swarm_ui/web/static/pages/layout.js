// Places for a forest of instances.
// A pure function of the rows: what is there keeps its place in its band when more come.

/** Bands in the order in which their first instance was made; in each, a column for every generation.
 * A node takes the first free line of its column that is not above its parent. */
export function forest(rows, { collapse = false } = {}) {
  const known = new Map(rows.map((row) => [row.id, row]));
  const bands = new Map();
  for (const row of [...rows].sort(byAge)) {
    const root = rootOf(row, known);
    if (!bands.has(root)) bands.set(root, { root, nodes: [], width: 0, height: 0 });
    bands
      .get(root)
      .nodes.push({ row, id: row.id, parent: row.id !== root && known.has(row.parent) ? row.parent : null });
  }
  return [...bands.values()].map((band) =>
    place(
      collapse && band.nodes.length > 1 && band.nodes.every((node) => node.row.state === "done")
        ? folded(band)
        : band,
    ),
  );
}

const byAge = (a, b) =>
  (a.created_at || "").localeCompare(b.created_at || "") || a.id.localeCompare(b.id, "en", { numeric: true });

/** Parents that form a ring, which nobody should write down, end at the smallest id. */
function rootOf(row, known) {
  const seen = new Set();
  let one = row;
  while (known.has(one.parent)) {
    if (seen.has(one.id)) return [...seen].sort()[0];
    seen.add(one.id);
    one = known.get(one.parent);
  }
  return one.id;
}

function folded(band) {
  const root = band.nodes.find((node) => node.id === band.root);
  return { ...band, nodes: [{ ...root, hidden: band.nodes.length - 1 }] };
}

function place(band) {
  const placed = new Map();
  const free = [];
  let waiting = band.nodes;
  // A child may be older than its parent by the clock; it is placed in a later round.
  while (waiting.length) {
    const ready = waiting.filter((node) => !node.parent || placed.has(node.parent));
    if (!ready.length) ready.push({ ...waiting[0], parent: null });
    for (const node of ready) {
      const parent = placed.get(node.parent);
      const column = parent ? parent.column + 1 : 0;
      const line = Math.max(parent ? parent.line : 0, free[column] ?? 0);
      free[column] = line + 1;
      placed.set(node.id, { ...node, column, line });
    }
    waiting = waiting.filter((node) => !placed.has(node.id));
  }
  const nodes = [...placed.values()];
  return {
    ...band,
    nodes,
    width: Math.max(...nodes.map((n) => n.column)) + 1,
    height: Math.max(...nodes.map((n) => n.line)) + 1,
  };
}

/** The bands in as many stacks as have room for `columns`, dealt out in turn: a new band moves none. */
export function stacked(bands, columns) {
  let widths = [];
  for (let stacks = Math.max(1, Math.min(columns, bands.length)); stacks; stacks--) {
    widths = Array(stacks).fill(1);
    bands.forEach((band, i) => (widths[i % stacks] = Math.max(widths[i % stacks], band.width)));
    if (sum(widths) <= columns) break;
  }
  const next = widths.map(() => 0);
  const nodes = bands.flatMap((band, i) => {
    const stack = i % widths.length;
    const [x, y] = [sum(widths.slice(0, stack)), next[stack]];
    next[stack] += band.height + 0.35;
    return band.nodes.map((node) => ({ ...node, x: x + node.column, y: y + node.line }));
  });
  return { nodes, columns: sum(widths), lines: Math.max(0, ...next) };
}

const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);

/** The node that an arrow key means: the nearest on that side, straight on before aslant. */
export function neighbour(nodes, from, [dx, dy]) {
  let best = null;
  let least = Infinity;
  for (const node of nodes) {
    const [x, y] = [node.x - from.x, node.y - from.y];
    const ahead = x * dx + y * dy;
    const aside = Math.abs(x * dy) + Math.abs(y * dx);
    if (ahead <= 0.01 || (dx && aside > ahead * 40)) continue;
    const far = ahead + aside * (dy ? 6 : 1.5);
    if (far < least) [best, least] = [node, far];
  }
  return best;
}
