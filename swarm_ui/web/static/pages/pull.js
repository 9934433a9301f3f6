// One pull request: what it is at, its checks, reviews and comments, and the ways to bring it in.
import { away, h, icon, span } from "../dom.js";
import { empty, facts, part, row, table, when, words } from "./kit.js";
import { text } from "./said.js";

const SHAPES = {
  passed: "done",
  failed: "error",
  pending: "running",
  skipped: "idle",
  approved: "done",
  changes_requested: "error",
  commented: "idle",
};
const PULL_SHAPES = {
  merged: "done",
  closed: "idle",
  blocked: "error",
  conflict: "error",
  "checks failed": "error",
  "changes requested": "error",
  "review outdated": "error",
  "under review": "running",
  "checks pending": "running",
  approved: "done",
  "checks passed": "done",
};

const VERDICTS = { approved: "approved", needs_work: "changes_requested" };

const shaped = (state, word = words(state)) =>
  h("span", { class: `chip state-${SHAPES[state] || "idle"}` }, icon(SHAPES[state] || "idle"), ` ${word}`);
export const pullStatus = (status, stale) =>
  h(
    "span",
    { class: `chip state-${PULL_SHAPES[status] || "idle"}` },
    icon(PULL_SHAPES[status] || "idle"),
    ` ${words(status)}${stale ? " ?" : ""}`,
  );

export function checksLabel(checks) {
  if (!checks?.length) return h("span", { class: "muted" }, "none");
  return h(
    "span",
    { class: "chips" },
    ["failed", "pending", "passed", "skipped"].map((state) => {
      const n = checks.filter((check) => check.state === state).length;
      return n ? shaped(state, `${n} ${state}`) : "";
    }),
  );
}

/** How old the facts are; a question mark when they cannot be relied on. */
export function seen(pull) {
  if (pull.state !== "open") return h("span", { class: "muted" }, "over");
  if (pull.age_s == null) return h("span", { title: "Nobody has looked at it yet" }, "?");
  if (!pull.stale)
    return h("span", { class: "muted seen", title: "When the forge was last asked" }, `${span(pull.age_s)} ago`);
  return h(
    "span",
    { class: "state-error seen", title: "No answer since; what stands here may be old" },
    icon("error"),
    ` ${span(pull.age_s)} ago, no answer since`,
  );
}

/** Whether it can be merged, and why or why not. */
export function readiness(pull) {
  const texts = (pull.reasons || []).filter((one) => one.blocks !== pull.ready).map((one) => one.text);
  if (!pull.ready) return texts.join("; ");
  return h("span", { class: "muted" }, ["yes", ...texts].join("; "));
}

export function pullActs(pull) {
  if (pull.state !== "open") return [];
  const { ready } = pull;
  return [
    { act: "merge", label: "Merge", primary: ready, body: {} },
    !ready && !pull.auto_merge && { act: "merge", label: "Merge when ready", body: { auto: true } },
    { act: "enqueue", label: "Queue", body: {} },
  ].filter(Boolean);
}

export function pullTab(ctx) {
  const node = h("div", { class: "tab-body" });
  return { node, update: part(node, ({ row: one, pull }) => (pull ? draw(ctx, one, pull) : none(ctx, one))) };
}

const none = (ctx, one) =>
  empty(
    "No pull request yet.",
    "It is opened from the commits of the branch. ",
    one.kind === "review" ? "" : ctx.actions.button({ act: "pull", primary: true }, one),
  );

function draw(ctx, one, pull) {
  return [
    h(
      "div",
      { class: "bar" },
      h("h2", {}, away(pull.url, `#${pull.number} ${pull.title}`)),
      pullStatus(pull.status, one.pr?.stale),
      pull.draft ? h("span", { class: "chip" }, "draft") : "",
      h("span", { class: "grow" }),
      pullActs(pull).map((act) => ctx.actions.button(act, one)),
      pull.state === "open" ? ctx.actions.button({ act: "close_pull", label: "Close" }, one) : "",
    ),
    facts(
      ["branch", [h("code", {}, pull.head_branch), " into ", h("code", {}, pull.base_branch)]],
      ["commit", h("code", {}, (pull.head_commit || "").slice(0, 12))],
      ["ready", pull.state === "open" ? readiness(pull) : ""],
      ["merged by itself", pull.auto_merge ? `${pull.auto_merge}, when nothing hinders it` : ""],
      ["merged as", pull.merge_commit && h("code", {}, pull.merge_commit.slice(0, 12))],
      ["seen", pull.state === "open" ? seen({ ...pull, stale: one.pr?.stale }) : ""],
      ["problem", pull.problem || pull.failure],
    ),
    pull.body ? h("details", {}, h("summary", {}, "Description"), text(pull.body)) : "",
    h("h3", {}, "Checks"),
    pull.checks?.length
      ? table(
          "Checks",
          ["state", "check"],
          pull.checks.map((c) => row(shaped(c.state), checked(c))),
        )
      : h("p", { class: "muted" }, "No checks are known for this commit."),
    pull.verdicts?.length
      ? [
          h("h3", {}, "Verdicts"),
          table(
            "Verdicts",
            ["verdict", "commit", "by", "when"],
            pull.verdicts.map((one) =>
              row(
                shaped(VERDICTS[one.verdict], words(one.verdict)),
                h("code", {}, one.commit.slice(0, 12)),
                one.by,
                when(one.at),
              ),
            ),
          ),
        ]
      : "",
    h("h3", {}, "Reviews and comments"),
    pull.reviews?.length || pull.comments?.length
      ? h("ol", { class: "said" }, (pull.reviews || []).map(review), (pull.comments || []).map(comment))
      : h("p", { class: "muted" }, "Nobody has said anything at the forge."),
  ];
}

/** A check, with what it said where that is kept. */
const checked = (check) =>
  check.output
    ? h("details", {}, h("summary", {}, check.name), h("pre", { class: "quoted" }, check.output))
    : check.url
      ? away(check.url, check.name)
      : check.name;

const saidBy = (one, ...more) =>
  h(
    "li",
    { class: "said-item" },
    h(
      "div",
      { class: "said-head" },
      h("b", {}, one.author),
      more,
      one.trusted === false ? h("span", { class: "muted" }, "no say here, not told to the agent") : "",
      one.at ? when(one.at) : "",
    ),
    one.body ? text(one.body) : "",
  );
const review = (one) => saidBy(one, shaped(one.state));
const comment = (one) =>
  saidBy(
    one,
    one.path ? h("code", { class: "place" }, `${one.path}:${one.line ?? ""}`) : "",
    one.outdated ? h("span", { class: "chip" }, "outdated") : "",
    one.url ? away(one.url, "at the forge") : "",
  );
