// What an instance has used: models, tokens, an estimate in dollars, and its budget.
import { h } from "../dom.js";
import { button, count, empty, part, row, table, usd } from "./kit.js";

const COUNTS = [
  ["input", "input_tokens"],
  ["output", "output_tokens"],
  ["cache read", "cache_read_tokens"],
  ["cache written", "cache_write_tokens"],
];

export function costTab(ctx) {
  const shown = h("div", {});
  const amount = h("input", {
    type: "number",
    min: "0.01",
    step: "0.01",
    value: "5",
    aria: { label: "Dollars to raise the budget by" },
  });
  let one;
  const raise = button(
    "Raise budget",
    () => amount.reportValidity() && ctx.actions.run("budget", one, { raise_by: Number(amount.value) }),
  );
  const update = part(shown, ({ cost }) => draw(cost));
  const bar = h(
    "div",
    { class: "bar" },
    h("label", {}, "$ ", amount),
    raise,
    button("No budget", () => ctx.actions.run("budget", one, { none: true })),
  );
  return {
    node: h("div", { class: "tab-body" }, shown, bar),
    update(detail) {
      one = detail.row;
      update(detail);
    },
  };
}

function draw(cost) {
  if (!cost?.tokens_used)
    return [
      empty(
        "Nothing used yet, or this agent does not tell.",
        "Tokens appear when the agent's own log shows them.",
      ),
      budget(cost || {}),
    ];
  return [
    h(
      "p",
      { class: "big" },
      usd(cost.cost_usd),
      h("span", { class: "muted" }, " estimated · "),
      `${count(cost.tokens_used)} tokens`,
    ),
    budget(cost),
    cost.unknown_price?.length
      ? h("p", { class: "note" }, `No price is known for ${cost.unknown_price.join(", ")}; the sum leaves it out.`)
      : "",
    table(
      "Use by model",
      ["model", "answers", ...COUNTS.map(([name]) => name), "cost"],
      (cost.models || []).map((m) =>
        row(
          h("code", {}, m.model),
          count(m.answers),
          ...COUNTS.map(([, field]) => count(m[field])),
          m.cost_usd == null ? "?" : usd(m.cost_usd),
        ),
      ),
    ),
  ];
}

function budget({ budget_usd: limit, budget_is_default: byDefault, budget_state: state, cost_usd: used = 0 }) {
  if (limit == null)
    return h("p", { class: "muted" }, "No budget is set: nothing stops this agent from using more.");
  const share = limit > 0 ? used / limit : 1;
  return h(
    "div",
    { class: "budget" },
    h("meter", {
      min: "0",
      max: "1",
      low: "0.8",
      high: "0.999",
      optimum: "0",
      value: String(Math.min(share, 1)),
      aria: { label: "Budget used" },
    }),
    h(
      "span",
      {},
      `${Math.round(share * 100)} % of ${usd(limit)}${byDefault ? " (by default)" : ""}${state ? ` · ${state}` : ""}`,
    ),
  );
}
