// The life of an instance: groups of events as bars on a time axis, and the same groups as a list.
import { clock, h, span } from "../dom.js";
import { empty, loader, part, plural, row, table, words } from "./kit.js";

const LANES = ["status", "activity", "tool", "message", "review", "pull"];
const TICKS = 4;

export function timeline(ctx, id) {
  const node = h("div", { class: "tab-body" });
  const body = h("div", {});
  const show = part(body, draw);
  const load = loader(
    node,
    "the timeline",
    () => ctx.api.get(`instances/${id}/timeline`),
    (answer, fresh) => {
      if (fresh) node.append(body);
      show(answer.groups ?? answer);
    },
  );
  load();
  return { node, renew: load, destroy: load.stop };
}

function draw(groups) {
  if (!groups.length) return empty("Nothing has happened yet.", "What the agent does appears here as it happens.");
  const times = groups.flatMap((g) => [Date.parse(g.from), Date.parse(g.to || g.from)]);
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const scale = (iso) => ((Date.parse(iso) - first) / Math.max(last - first, 1)) * 100;
  return [chart(groups, scale, first, last), list(groups)];
}

function chart(groups, scale, first, last) {
  const lanes = LANES.filter((kind) => groups.some((g) => g.kind === kind));
  const ticks = Array.from({ length: TICKS + 1 }, (_, i) =>
    at(h("span", { class: "tick" }, clock(new Date(first + ((last - first) * i) / TICKS))), (i * 100) / TICKS),
  );
  return h(
    "div",
    { class: "chart", "aria-hidden": "true" },
    ...lanes.map((kind) =>
      h(
        "div",
        { class: "lane" },
        h("span", { class: "lane-name" }, kind),
        h("div", { class: "lane-bars" }, ...groups.filter((g) => g.kind === kind).map((g) => bar(g, scale))),
      ),
    ),
    h(
      "div",
      { class: "lane" },
      h("span", { class: "lane-name" }),
      h("div", { class: "lane-bars axis" }, ...ticks),
    ),
  );
}

function bar(group, scale) {
  const from = scale(group.from);
  const node = at(
    h("span", {
      class: `bar bar-${group.kind} level-${group.level}`,
      title: `${clock(group.from)} ${said(group)}`,
    }),
    from,
  );
  node.style.width = `${Math.max(scale(group.to || group.from) - from, 0)}%`;
  return node;
}

function at(node, percent) {
  node.style.left = `${percent}%`;
  return node;
}

const said = (g) => `${words(g.label)}${g.count > 1 ? ` ×${g.count}` : ""}`;

function list(groups) {
  const lines = groups
    .slice()
    .reverse()
    .map((g) => {
      const seconds = (Date.parse(g.to || g.from) - Date.parse(g.from)) / 1000;
      return row(
        h("time", { datetime: g.from, class: "mono" }, clock(g.from)),
        g.kind,
        h("span", { class: `level-${g.level}` }, said(g)),
        seconds >= 1 ? span(seconds) : "",
      );
    });
  return table(
    `Timeline, newest first: ${plural(groups.length, "group")}`,
    ["from", "kind", "what", "for"],
    lines,
  );
}
