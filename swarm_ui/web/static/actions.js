// What people do: the right dialog, the action, its progress, and what came of it.
import * as api from "./api.js";
import { h, icon, replace, text } from "./dom.js";
import { keys } from "./keys.js";
import { instancePath, nowPath } from "./paths.js";
import { RUNNING, store } from "./store.js";
import { fail, toast } from "./toast.js";

/** name -> label, icon, what it asks for first, what the toast says, when it makes sense. */
export const ACTIONS = {
  spawn: { label: "Spawn", sign: "plus", form: true, said: "Spawning" },
  message: { label: "Message", sign: "message", form: true, said: "Sent to", when: alive },
  answer: { label: "Answer", sign: "message", form: true, said: "Answered" },
  approve: { label: "Approve", sign: "done", said: "Approved" },
  rescope: { label: "Rescope", sign: "message", form: true, said: "Rescoped" },
  abandon: {
    label: "Abandon",
    sign: "close",
    confirms: true,
    danger: true,
    said: "Abandoned",
    when: (row) => alive(row) && row.kind !== "review",
  },
  restart: { label: "Restart", sign: "restart", said: "Restarted", when: (row) => row.status !== "pr_merged" },
  stop: { label: "Stop", sign: "stop", confirms: true, danger: true, said: "Stopped", when: alive },
  fork: { label: "Fork", sign: "fork", form: true, said: "Forked" },
  review: {
    label: "Review",
    sign: "review",
    form: true,
    said: "Review asked for",
    when: (row) => row.kind !== "review",
  },
  feedback: { label: "Feedback", sign: "message", form: true, said: "Feedback sent to" },
  clean: {
    label: "Clean up",
    sign: "clean",
    confirms: true,
    danger: true,
    said: "Cleaned up",
    when: (row) => !alive(row),
  },
  restore: { label: "Restore", sign: "restart", said: "Restored" },
  budget: { label: "Budget", sign: "budget", form: true, said: "Budget changed for" },
  pull: {
    label: "Open pull request",
    sign: "pulls",
    form: true,
    said: "Pull request opened for",
    when: (row) => !hasPull(row) && row.kind !== "review" && row.status !== "pr_merged",
  },
  merge: { label: "Merge", sign: "merge", confirms: true, said: "Merged", when: hasPull },
  enqueue: { label: "Queue for merging", sign: "merge", said: "Queued", when: hasPull },
  dequeue: {
    label: "Take out of the queue",
    sign: "close",
    said: "Taken out of the queue:",
    when: (row) => row.pr?.status === "queued",
  },
  close_pull: {
    label: "Close pull request",
    sign: "close",
    confirms: true,
    danger: true,
    said: "Pull request closed:",
    when: hasPull,
  },
  dismiss: { label: "Dismiss", sign: "close", said: "Dismissed" },
  open: { label: "Open", sign: "open" },
};
const busy = new Set();
let visit = (path) => location.assign(path);
let spawned = 0;

/** Called once by the frame with its own way to show a path. */
export function useRouter(go) {
  visit = go;
}

/**
 * Do one thing: run("stop", row), or run(need.acts[0], row).
 * `item` of the inbox may stand for the row. Resolves with the result, or null when it was not done.
 */
export async function run(act, row = null, body = null, { sure = false } = {}) {
  const wanted = typeof act === "string" ? { act, body } : { ...act, body: body || act.body };
  const name = wanted.act;
  const known = ACTIONS[name] || { label: wanted.label || name, said: "Done:" };
  const id = row ? row.instance || row.id : null;
  if (name === "open") return (visit(instancePath(id)), null);
  if (store.why()) return (toast(store.why(), { kind: "info" }), null);
  let full = Object.fromEntries(Object.entries(wanted.body || {}).filter(([, value]) => value !== null));
  const subject = (id && store.rows.get(id)) || row;
  if (known.confirms || sure || (known.form && wants(name, full))) keys.hold();
  if (known.confirms) full = merged(full, await (await forms()).confirmed(name, known, subject, full));
  else if (known.form && wants(name, full)) full = await (await forms()).FORMS[name](subject, full, wanted.label);
  else if (sure && !(await (await forms()).certain(known, id))) return null;
  return full && attempt(name, known, name === "dismiss" ? row.id : id, full);
}

/** `wish` is the idempotency key: what may have been heard is asked for again with the same one. */
async function attempt(name, known, id, body, wish = crypto.randomUUID()) {
  const key = id ? `${name}:${id}` : `${name}:${++spawned}`;
  const about = id ? id.split(":")[0] : "";
  if (busy.has(key)) return (toast(`${known.label}: ${about} is still under way`, { kind: "info" }), null);
  mark(key, true);
  try {
    const result = await api.act(name, id, body, { key: wish });
    toast(`${known.said} ${about}`.trim(), { kind: "done" });
    if (["spawn", "fork", "review"].includes(name)) shown(result);
    return result;
  } catch (error) {
    if (error.code === "CONFIRM_NEEDED") {
      mark(key, false);
      const sure = merged(body, await (await forms()).confirmed(name, known, { id }, body, error));
      return sure && (await attempt(name, known, id, sure));
    }
    fail(error, () => attempt(name, known, id, body, error.code === "OFFLINE" ? wish : undefined));
    return null;
  } finally {
    mark(key, false);
  }
}

/** Forms are fetched when somebody needs the first one. */
async function forms() {
  try {
    return await import("./forms.js");
  } catch (error) {
    keys.release();
    throw error;
  }
}

function merged(body, extra) {
  return extra && { ...body, ...extra };
}

/** Whether something has still to be asked for before the action can be sent. */
function wants(name, body) {
  if (name === "answer") return body.choice === undefined && !body.text;
  if (name === "budget") return body.usd === undefined && !body.raise_by && !body.none;
  if (name === "message" || name === "feedback") return !body.body;
  if (name === "rescope") return !body.task;
  return true;
}

function shown(result) {
  const id = result?.instances?.[0]?.id || result?.instance?.id;
  if (id) visit(nowPath(id));
}

function alive(row) {
  return !row.ended && row.state !== "done";
}

function hasPull(row) {
  return Boolean(row.pr) && !["merged", "closed"].includes(row.pr.state || row.pr.status);
}

// Buttons

/** A button that does it; it is off while it runs, while the page is not live, and for those who may only read. */
export function button(act, row, { small = false, plain = false } = {}) {
  const wanted = typeof act === "string" ? { act } : act;
  const known = ACTIONS[wanted.act] || {};
  const id = row ? row.instance || row.id : null;
  const label = wanted.label || known.label || wanted.act;
  const danger = wanted.danger || known.danger;
  const style = `${wanted.primary ? " primary" : ""}${danger ? " danger" : ""}${small ? " small" : ""}`;
  const node = h(
    "button",
    {
      class: `btn${style}`,
      type: "button",
      dataset: { act: wanted.act, key: `${wanted.act}:${wanted.act === "dismiss" ? row.id : id}` },
      aria: { label: id ? `${label}: ${id}` : label },
      on: { click: (event) => (event.stopPropagation(), run(wanted, row)) },
    },
    !plain && wanted.act !== "answer" && known.sign && icon(known.sign),
    h("span", null, label),
  );
  settle(node);
  return node;
}

export function spawnButton() {
  const node = button({ act: "spawn", primary: true }, null);
  node.dataset.hint = "n";
  return node;
}

/** What can be done with an instance besides answering its needs, most used first. */
export function offered(row) {
  const needed = new Set((row.needs || []).flatMap((need) => need.acts || []).map((act) => act.act));
  const names = [
    "message",
    "restart",
    "stop",
    "fork",
    "review",
    "pull",
    "merge",
    "enqueue",
    "dequeue",
    "budget",
    "clean",
    "close_pull",
    "abandon",
  ];
  return names.filter((name) => !needed.has(name) && (ACTIONS[name].when?.(row) ?? true));
}

function settle(node) {
  const why = node.dataset.act === "open" ? "" : store.why();
  const running = busy.has(node.dataset.key);
  node.disabled = Boolean(why) || running;
  node.title = why || (node.textContent.length > 22 ? node.textContent : "");
  if (running) node.setAttribute("aria-busy", "true");
  else node.removeAttribute("aria-busy");
}

/** Bring every action button up to date with what may be done now. */
export function refresh() {
  for (const node of document.querySelectorAll("button[data-act]")) settle(node);
}

function mark(key, on) {
  if (on) busy.add(key);
  else busy.delete(key);
  for (const node of document.querySelectorAll(`button[data-key="${CSS.escape(key)}"]`)) settle(node);
}

// Progress

const list = h("ul", { hidden: true });
const counter = h(
  "button",
  {
    class: "btn small",
    type: "button",
    aria: { expanded: "false" },
    on: {
      click: () => {
        list.hidden = !list.hidden;
        counter.setAttribute("aria-expanded", String(!list.hidden));
      },
    },
  },
  h("span"),
);
export const progress = h("div", { id: "progress", hidden: true }, counter, list);

store.on("action", () => {
  const running = [...store.actions.values()].filter(
    (action) => RUNNING.has(action.state) && action.name !== "keys",
  );
  progress.hidden = !running.length;
  text(counter.firstChild, `${running.length} running`);
  replace(
    list,
    running.map((action) =>
      h(
        "li",
        null,
        h(
          "span",
          null,
          ACTIONS[action.name]?.label || action.name,
          " ",
          h("span", { class: "mono" }, action.instance || ""),
        ),
        h("small", { class: "muted" }, action.text || "accepted"),
      ),
    ),
  );
});

// What ended while the stream was away was not told.
store.on("hello", () => {
  for (const action of store.actions.values())
    if (RUNNING.has(action.state))
      api
        .get(`actions/${action.id}`)
        .then((found) => store.apply("action", found.action))
        .catch(() => {});
});
