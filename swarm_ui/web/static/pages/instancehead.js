// The head of an instance's page: its facts, what it needs with the answer in place, and what can be done with it.
import { away, copyButton, h, icon, stateBadge } from "../dom.js";
import { asked } from "../needs.js";
import { count, facts, part, plural, toInstance, usd, when, words } from "./kit.js";
import { checksLabel, pullStatus } from "./pull.js";

const NARROW = 700;
const IN_HEAD = new Set(["message", "restart", "stop", "fork", "review", "pull", "merge", "clean"]);
const IN_WORKTREE = new Set(["message", "restart", "fork", "review", "pull", "clean"]);

export function header(ctx) {
  const [title, needs, acts, about] = [
    h("div", { class: "inst-title" }),
    h("div", { class: "needs" }),
    h("div", { class: "bar acts", role: "group", aria: { label: "Actions" } }),
    h("div", { class: "about-parts" }),
  ];
  const more = h(
    "details",
    { class: "about", open: innerWidth > NARROW },
    h("summary", {}, "About this instance"),
    about,
  );
  const parts = [
    part(title, ({ row }) => [
      h(
        "h1",
        {},
        h("span", { class: "mono" }, row.id),
        " ",
        h("span", { class: "inst-name" }, row.title === row.id ? "" : row.title),
      ),
      stateBadge(row.state, row.state),
      h("span", { class: "muted" }, words(row.status), row.detail ? ` · ${row.detail}` : ""),
    ]),
    part(needs, ({ row }) => (row.needs || []).map((need) => needCard(ctx, row, need))),
    part(acts, (known) =>
      offered(ctx, known)
        .map((act) => ctx.actions.button(act, known.row))
        .concat(attach(known)),
    ),
    part(about, (known) => described(ctx, known)),
  ];
  return {
    node: h("header", { class: "inst-head" }, title, needs, acts, more),
    update(detail) {
      const { row, detail: more = {}, pull, children, overlaps, cost } = detail;
      const group = row.group
        ? [...ctx.store.rows.values()]
            .filter((one) => one.group === row.group && one.id !== row.id)
            .map((one) => one.id)
        : [];
      // What changes with every look, and is not shown here, must not rebuild the head.
      const { updated_at, since, ...steady } = row;
      const known = {
        row: steady,
        more,
        pull: pull && { ...pull, age_s: null },
        children,
        overlaps,
        cost,
        group,
        preserved: detail.preserved,
      };
      parts.forEach((show) => show(known));
    },
    primary: () => (needs.querySelector(".btn.primary") || needs.querySelector(".btn"))?.click(),
  };
}

const needCard = (ctx, row, need) => {
  const bad = row.state === "error";
  return h(
    "section",
    { class: `ask${bad ? " bad" : ""}`, aria: { label: need.text } },
    h(
      "div",
      { class: "ask-text" },
      h(
        "p",
        { class: `state-${bad ? "error" : "waiting"}` },
        icon(bad ? "error" : "waiting"),
        " ",
        h("b", {}, need.text),
        " ",
        need.since ? h("span", { class: "muted" }, when(need.since)) : "",
      ),
      asked(need, row.title) && h("pre", { class: "quoted" }, asked(need, row.title)),
    ),
    h(
      "div",
      { class: "ask-acts" },
      need.acts.filter((act) => act.act !== "open").map((act) => ctx.actions.button(act, row)),
    ),
  );
};

/** What applies to it now, beside what its needs offer; without a worktree there is less to do. */
function offered(ctx, { row, more, preserved }) {
  const cleaned = Boolean(more.cleaned_at);
  const names = ctx.actions
    .offered(row)
    .filter((name) => IN_HEAD.has(name) && !(cleaned && IN_WORKTREE.has(name)));
  return cleaned || preserved?.some((one) => !one.restored_at) ? [...names, "restore"] : names;
}

const attach = ({ more }) =>
  more.attach
    ? h(
        "span",
        { class: "command" },
        h("span", { class: "muted" }, "attach"),
        copyButton(more.attach, "Copy the attach command"),
      )
    : [];

const idOf = (one) => one?.id ?? one;
const listed = (ids) => (ids?.length ? ids.map((id, i) => [i ? ", " : "", toInstance(idOf(id))]) : "");
const copied = (text, what) =>
  text && [h("code", { class: "mono cut", title: text }, text), copyButton(text, `Copy the ${what}`)];

function described(ctx, { row, more, pull, children, group, overlaps, cost }) {
  const limit = row.budget ?? cost?.budget_usd;
  const used = row.tokens ? `${usd(row.cost)} · ${count(row.tokens)} tokens` : "";
  const budget = limit ? `budget ${usd(limit)}${row.budget_state ? ` (${row.budget_state})` : ""}` : "";
  const spent = [used, budget].filter(Boolean).join(" · ");
  return [
    facts(
      ["branch", copied(row.branch, "branch")],
      ["worktree", copied(more.worktree_path, "path of the worktree")],
      [
        "what",
        `${row.kind}, ${row.agent}${row.repo ? `, ${row.repo}` : ""}${row.issue ? `, issue #${row.issue}` : ""}`,
      ],
      [
        "changes",
        row.files
          ? [
              `${plural(row.files, "file")} `,
              h("span", { class: "added" }, `+${row.added}`),
              " ",
              h("span", { class: "deleted" }, `−${row.deleted}`),
            ]
          : "",
      ],
      ["parent", row.parent && toInstance(row.parent)],
      ["children", listed(children)],
      ["other attempts", listed(group)],
      [
        "pull request",
        row.pr && [
          away(row.pr.url, `#${row.pr.number}`),
          " ",
          pullStatus(row.pr.status, row.pr.stale),
          " ",
          pull?.checks?.length ? checksLabel(pull.checks) : "",
        ],
      ],
      ["age", when(row.created_at, "")],
      ["cost", spent],
      ["overlaps", row.overlap || (overlaps?.length ? listed(overlaps.map((one) => one.instance_id)) : "")],
    ),
    more.prompt
      ? h("details", { class: "prompt" }, h("summary", {}, "Task"), h("pre", { class: "quoted" }, more.prompt))
      : "",
  ];
}
