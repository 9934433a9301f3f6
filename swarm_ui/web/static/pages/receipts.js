// Messages to an agent with their receipts: how far each is known to have come, and how.
import { clock, h, icon } from "../dom.js";
import { empty, part, when, words } from "./kit.js";
import { replyBox, text } from "./said.js";

const STEPS = [
  ["accepted", "created_at"],
  ["injected", "injected_at"],
  ["seen", "seen_at"],
  ["acknowledged", "acknowledged_at"],
];
const STUCK = { held: "waiting", failed: "error", expired: "error" };
const SHORT = 600;

export function receiptsTab(ctx, id) {
  const list = h("div", {});
  const update = part(list, ({ messages }) =>
    messages.length
      ? h("ol", { class: "said" }, messages.slice().reverse().map(one))
      : empty("No messages yet.", "What you or a reviewer writes to the agent stands here with its receipt."),
  );
  return { node: h("div", { class: "tab-body" }, replyBox(ctx, id), list), update };
}

function one(message) {
  return h(
    "li",
    { class: "said-item" },
    h(
      "div",
      { class: "said-head" },
      h("b", {}, message.sender),
      h("span", { class: "chip" }, words(message.kind)),
      h("span", { class: "muted grow" }, when(message.created_at)),
    ),
    message.body.length > SHORT
      ? h("details", {}, h("summary", {}, `${message.body.slice(0, 120)}…`), text(message.body))
      : text(message.body),
    h(
      "ol",
      { class: "receipt", aria: { label: "Receipt" } },
      STEPS.map(([name, at]) => step(name, message[at])),
    ),
    STUCK[message.state]
      ? h(
          "p",
          { class: `state-${STUCK[message.state]}` },
          icon(STUCK[message.state]),
          ` ${message.state}${message.error ? `: ${message.error}` : ""}`,
          message.next_at ? `, tried again at ${clock(message.next_at)}` : "",
        )
      : "",
    message.how
      ? h(
          "p",
          { class: "muted small" },
          `by ${message.how}${message.attempts > 1 ? `, ${message.attempts} attempts` : ""}`,
        )
      : "",
  );
}

const step = (name, at) =>
  h(
    "li",
    { class: at ? "reached" : "ahead" },
    icon(at ? "done" : "idle"),
    ` ${name} `,
    at ? h("time", { datetime: at, class: "mono" }, clock(at)) : h("span", { class: "unseen" }, "not yet"),
  );
