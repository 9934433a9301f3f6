// What reviewers, agents and people said to each other: rounds, verdicts, places in files and a reply box.
import { h, icon } from "../dom.js";
import { count, empty, ID, part, toInstance, when, words } from "./kit.js";

const PLACE = /([\w./-]*\w\.\w{1,8}:\d{1,7}(?:-\d{1,7})?)/;
const LONG = 20000;
const LONG_LINE = 2000;
const LABELS = { needs_work: "error", approved: "done", none: "idle" };
const RECEIPTS = {
  seen: "seen",
  acknowledged: "acknowledged",
  injected: "handed over, not seen yet",
  accepted: "waiting to be handed over",
  held: "held: a dialog is open",
  failed: "failed",
  expired: "not seen in time",
};

/** A thread that follows its data; the reply box is never built again. */
export function thread(ctx, id, { replyTo = id } = {}) {
  const list = h("div", { class: "said" });
  const show = part(list, (found) =>
    found.items.length
      ? rounds(found)
      : empty("Nothing was said yet.", "A review starts a thread; a message to the agent stands here too."),
  );
  return { node: h("div", { class: "thread" }, list, replyBox(ctx, replyTo)), show };
}

/** What a reviewer says belongs to its round; what others say, to the round in which they say it. */
function* byRound({ items, reviews = [] }) {
  const known = new Map(reviews.map((review) => [review.id, review.round]));
  let current = null;
  for (const item of items) {
    const round = item.round ?? known.get(item.from) ?? known.get(item.to) ?? null;
    if (current && (round === null || round === current.round)) current.items.push(item);
    else {
      if (current) yield current;
      current = { round, items: [item] };
    }
  }
  if (current) yield current;
}

const rounds = (found) =>
  [...byRound(found)].map(({ round, items: said }) =>
    h(
      "section",
      { class: "round" },
      round == null ? null : h("h2", {}, `Round ${round}`),
      h("ol", {}, ...said.map(one)),
    ),
  );

function one(item) {
  const verdict = item.type === "verdict" ? item.state : LABELS[item.type] ? item.type : "";
  const who = (name) => (ID.test(name || "") ? toInstance(name) : h("b", {}, name || "unknown"));
  return h(
    "li",
    { class: `said-item said-${verdict}` },
    h(
      "div",
      { class: "said-head" },
      who(item.from),
      item.to ? [" → ", who(item.to)] : "",
      " ",
      h(
        "span",
        { class: `chip state-${LABELS[verdict] || "idle"}` },
        LABELS[verdict] ? icon(LABELS[verdict]) : "",
        words({ none: "no verdict" }[verdict] || verdict || item.type),
      ),
      item.priority ? h("span", { class: "muted" }, `${item.priority} priority`) : "",
      item.commit ? h("code", { class: "muted" }, `at ${item.commit.slice(0, 8)}`) : "",
      item.stale ? h("span", { class: "chip" }, "the work has moved on since") : "",
      h("span", { class: "muted grow" }, when(item.at)),
    ),
    item.body ? text(item.body) : "",
    item.state && item.type !== "verdict"
      ? h("p", { class: "muted small" }, RECEIPTS[item.state] || words(item.state))
      : "",
  );
}

/** Text as it was written; quotes stand in, places in files stand out. Of very long ones the rest is folded. */
export function text(body) {
  const said = String(body);
  const rest = said.length - LONG;
  return h(
    "div",
    { class: "prose" },
    said.slice(0, LONG).split("\n").map(line),
    rest > 0 && h("details", {}, h("summary", {}, `${count(rest)} more characters`), said.slice(LONG)),
  );
}

function line(said) {
  const quoted = said.startsWith(">");
  const plain = quoted ? said.replace(/^>\s?/, "") : said;
  const pieces = plain.length > LONG_LINE ? [plain] : plain.split(PLACE);
  return h(
    "div",
    { class: quoted ? "quote" : "" },
    pieces.map((piece, i) => (i % 2 ? h("code", { class: "place" }, piece) : piece)),
    said ? "" : "\u00a0",
  );
}

export function replyBox(ctx, id) {
  const kind = h(
    "select",
    { "aria-label": "Kind of reply" },
    h("option", { value: "" }, "Message"),
    h("option", { value: "suggestions" }, "Feedback: suggestions"),
    h("option", { value: "clarification" }, "Feedback: question"),
    h("option", { value: "needs_work" }, "Feedback: needs work"),
  );
  const box = h("textarea", {
    rows: "3",
    "aria-label": `Reply to ${id}`,
    placeholder: "Write to the agent…  (Ctrl+Enter sends)",
  });
  const button = h("button", { type: "submit", class: "btn primary" }, "Send");
  const send = async (event) => {
    event.preventDefault();
    const body = box.value.trim();
    if (!body) return box.focus();
    const given = kind.value ? { body, feedback_type: kind.value, priority: "medium" } : { body };
    if ((await ctx.actions.run(kind.value ? "feedback" : "message", { id }, given)) && box.value.trim() === body)
      box.value = "";
  };
  if (!ctx.store.me.may_write) return h("p", { class: "muted" }, "This link may read, not write.");
  return h(
    "form",
    {
      class: "reply",
      on: {
        submit: send,
        keydown: (e) => {
          if (e.key === "Enter" && e.ctrlKey) send(e);
        },
      },
    },
    box,
    h("div", { class: "bar" }, kind, button),
  );
}
