// What an action asks for before it is sent, and what it shows that it takes away.
import * as api from "./api.js";
import { ask } from "./dialogs.js";
import { bytes, h, replace } from "./dom.js";
import { store } from "./store.js";

const PULLS = new Set(["merge", "close_pull"]);
const NAMES = {
  dirty_files: "Unsaved files",
  own_commits: "Commits nowhere else",
  bytes: "Disk space",
  worktree_path: "Worktree",
  waiting: "Waits for it",
  head_branch: "From",
  base_branch: "Into",
  number: "Pull request",
  hindrances: "Not ready",
  now: "It is",
};
const TAKES = {
  stop: "This ends the agent; its files and commits stay.",
  clean: "This removes the worktree. Files that are not committed are preserved and can be restored.",
  abandon: "This gives the work up; its files and commits stay.",
  merge: "This merges the pull request.",
  close_pull: "This closes the pull request without merging it.",
};

const ANYWAY = {
  name: "anyway",
  label: "Merge anyway, because",
  hint: "Verdicts and checks do not stop it then; the reason goes into the merge message",
};

/** What a confirmation may ask besides. */
const EXTRA = {
  abandon: [{ name: "why", label: "Why", kind: "area", hint: "Told to whoever looks at it later" }],
  merge: [
    {
      name: "method",
      label: "Method",
      kind: "select",
      options: [
        ["", "As the repository prefers"],
        ["squash", "Squash"],
        ["merge", "Merge commit"],
        ["rebase", "Rebase"],
      ],
    },
    { name: "auto", label: "As soon as nothing hinders it", kind: "check" },
  ],
};

/** (row, body so far, label) -> the whole body, or null. */
export const FORMS = {
  spawn,
  message: words("Message", "body", "Send"),
  answer: words("Answer", "text", "Answer"),
  rescope: words("New task", "task", "Rescope"),
  fork,
  review,
  feedback,
  budget,
  pull,
};

/** Ask once more: a key alone does nothing that cannot be taken back. */
export function certain(known, id) {
  return ask({ title: `${known.label} ${id}?`, send: known.label });
}

/** Show what would be taken away; the fields to add when the person is sure, or null. */
export async function confirmed(name, known, row, body, error = null) {
  const list = h("div", null);
  const more = h("div", { class: "dialog-more" }, h("p", null, error?.message || TAKES[name]), list);
  list.append(takes(error?.details || knownOf(name, row)));
  const until = name === "clean" && !error ? lookAt(row, list) : null;
  const refused = name === "merge" && (error?.details?.pull || row.pr)?.ready === false;
  const fields = [...(EXTRA[name] || []), ...(refused && !body.auto ? [ANYWAY] : [])];
  const said = await ask({
    title: `${known.label} ${row.id}?`,
    more,
    fields,
    send: known.label,
    danger: known.danger,
    check: (said) => {
      const decided = !refused || body.auto || said.auto || said.anyway;
      return decided ? "" : "It is not ready: say why to merge it anyway, or let it be merged as soon as it is";
    },
    until,
  });
  return said && { ...filled(said), confirm: true };
}

function takes(details) {
  const facts = Object.entries(details)
    .flatMap(flat)
    .filter(([key, value]) => shownFact(key, value));
  if (!facts.length) return "";
  return h(
    "dl",
    { class: "takes" },
    facts.flatMap(([key, value]) => [h("dt", null, NAMES[key] || sentence(key)), h("dd", null, fact(key, value))]),
  );
}

/** What the page itself knows of it. */
function knownOf(name, row) {
  if (PULLS.has(name)) {
    const { number, status, reasons } = row.pr || {};
    if (!number) return {};
    const about = { number, status, title: row.title, head_branch: row.branch, base_branch: row.base };
    return name === "merge" ? { ...about, hindrances: reasons || [] } : about;
  }
  const waiting = [...store.rows.values()]
    .filter((one) => one.parent === row.id && !one.ended)
    .map((one) => one.id);
  return { now: [row.activity, row.detail].filter(Boolean).join(": "), branch: row.branch, waiting };
}

/** Ask what lies in the worktree, if there still is one, and show it in the list. */
async function lookAt(row, list) {
  const path = `instances/${encodeURIComponent(row.id)}`;
  replace(list, h("p", { class: "muted" }, "Looking at what is in the worktree…"));
  try {
    const { detail } = await api.get(path);
    if (detail.cleaned_at) return replace(list, h("p", null, "Its worktree was removed before."));
    replace(list, takes({ worktree_path: detail.worktree_path, ...(await api.get(`${path}/leftovers`)) }));
  } catch (error) {
    replace(list, h("p", { class: "state-error" }, `What is in the worktree is not known: ${error.message}`));
  }
}

/** Groups of facts are shown as facts. */
function flat([key, value]) {
  return value && typeof value === "object" && !Array.isArray(value) ? Object.entries(value) : [[key, value]];
}

function shownFact(key, value) {
  return (
    value !== null &&
    value !== "" &&
    !["confirm", "instance", "instance_id", "action", "url", "head_commit"].includes(key) &&
    !(Array.isArray(value) && !value.length)
  );
}

function fact(key, value) {
  if (key === "bytes") return bytes(value);
  if (Array.isArray(value))
    return value.slice(0, 12).map(one).join("\n") + (value.length > 12 ? `\n… and ${value.length - 12} more` : "");
  return one(value);
}

function one(value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (value && typeof value === "object")
    return Object.entries(value)
      .map(([key, inner]) => `${sentence(key)}: ${one(inner)}`)
      .join(", ");
  return String(value);
}

function sentence(key) {
  const words = key.replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
}

function words(title, field, send) {
  return async (row, body, label) => {
    const need = (row.needs || []).find((one) =>
      (one.acts || []).some((act) => act.body?.digest && act.body.digest === body.digest),
    );
    const said = await ask({
      title: `${label || title}: ${row.instance || row.id}`,
      question: need ? need.more || need.text : "",
      fields: [{ name: field, label: title, kind: "area", needed: true }],
      send,
    });
    return said && { ...body, [field]: said[field] };
  };
}

async function spawn(_row, body) {
  let repo = store.repo || store.rows.get(store.selected)?.repo_path || store.repos[0]?.path || "";
  const propose = async (form) => form.options("issue", await loadIssues(repo));
  const said = await ask({
    title: "Spawn",
    fields: [
      store.repos.length
        ? {
            name: "repo",
            label: "Repository",
            kind: "select",
            options: store.repos.map(({ path, name }) => [path, name]),
            value: repo,
            change: (path, form) => ((repo = path), form.options("issue", [])),
          }
        : {
            name: "repo",
            label: "Repository",
            hint: "The whole path of a folder with a git repository",
            needed: true,
          },
      { name: "prompt", label: "Task", kind: "area", first: true, hint: "What is to be done; or choose an issue" },
      { name: "issue", label: "Issue", kind: "pick", hint: "Its number", entered: propose },
      {
        pair: [
          { name: "agent", label: "Agent", kind: "select", options: [["", "Default"]] },
          { name: "count", label: "How many attempts", kind: "number", value: 1, min: 1, max: 8 },
        ],
      },
    ],
    ready: (form) => proposeAgents(form, (agents) => `Default${agents.default ? ` (${agents.default})` : ""}`),
    check: (said) =>
      said.prompt || Number.parseInt(said.issue.replace("#", ""), 10) ? "" : "Write a task, or choose an issue",
    send: "Spawn",
  });
  if (!said) return null;
  const wanted = { ...body, repo: said.repo };
  if (said.prompt) wanted.prompt = said.prompt;
  if (said.issue) wanted.issue = Number.parseInt(said.issue.replace("#", ""), 10);
  if (said.agent) wanted.agent = said.agent;
  if (Number(said.count) > 1) wanted.count = Number(said.count);
  return wanted;
}

async function loadIssues(repo) {
  if (!repo) return [];
  try {
    const listing = await api.get(`issues?repo=${encodeURIComponent(repo)}`);
    return listing.items.map((issue) => [String(issue.number), issue.title]);
  } catch {
    return [];
  }
}

async function proposeAgents(form, unchosen) {
  const agents = await api.get("agents").catch(() => null);
  if (!agents) return;
  const named = ({ name, title = name, installed }) => [name, installed ? title : `${title} (not installed)`];
  form.options("agent", [["", unchosen(agents)], ...agents.items.map(named)]);
}

async function fork(row, body) {
  const said = await ask({
    title: `Fork ${row.id}`,
    fields: [
      { name: "prompt", label: "Task of the fork", kind: "area", hint: "Empty: the same task" },
      { name: "agent", label: "Agent", kind: "select", options: [["", "The same"]] },
    ],
    ready: (form) => proposeAgents(form, () => "The same"),
    send: "Fork",
  });
  return said && { ...body, ...filled(said) };
}

async function review(row, body) {
  const said = await ask({
    title: `Review ${row.id}`,
    fields: [{ name: "focus", label: "Look especially at", kind: "area", hint: "Empty: everything" }],
    send: "Ask for a review",
  });
  return said && { ...body, ...filled(said) };
}

async function feedback(row, body) {
  const said = await ask({
    title: `Feedback on ${row.id}`,
    fields: [
      { name: "body", label: "Feedback", kind: "area", needed: true },
      {
        pair: [
          {
            name: "feedback_type",
            label: "Kind",
            kind: "select",
            options: [
              ["needs_work", "Needs work"],
              ["suggestions", "Suggestions"],
              ["clarification", "Clarification"],
            ],
          },
          {
            name: "priority",
            label: "Priority",
            kind: "select",
            options: [
              ["medium", "Medium"],
              ["low", "Low"],
              ["high", "High"],
            ],
          },
        ],
      },
    ],
    send: "Send",
  });
  return said && { ...body, ...said };
}

async function budget(row, body) {
  const said = await ask({
    title: `Budget of ${row.id}`,
    fields: [
      {
        name: "usd",
        label: "Most it may cost, in USD",
        kind: "number",
        value: row.budget ?? "",
        min: 0,
        step: "0.01",
        needed: true,
        hint: row.cost ? `Used so far: $${row.cost}` : "",
      },
    ],
    send: "Set",
  });
  return said && { ...body, usd: Number(said.usd) };
}

async function pull(row, body) {
  const said = await ask({
    title: `Pull request of ${row.id}`,
    fields: [
      { name: "title", label: "Title", value: row.title || "" },
      { name: "description", label: "Description", kind: "area" },
      { name: "draft", label: "As a draft", kind: "check" },
    ],
    send: "Open",
  });
  return said && { ...body, ...filled(said) };
}

function filled(said) {
  return Object.fromEntries(Object.entries(said).filter(([, value]) => value !== "" && value !== false));
}
