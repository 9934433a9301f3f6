// Pull requests with whether they can be merged and why, and the merge queue in its order.
import { away, h, replace } from "../dom.js";
import { all, empty, head, later, loader, part, row, table, ticking, toInstance, when, words } from "./kit.js";
import { checksLabel, pullActs, pullStatus, readiness, seen } from "./pull.js";

const OVER = new Set(["merged", "closed"]);

export const title = () => "Pull requests";

export function mount(root, params, ctx) {
  const body = h("div", {});
  const page = h("div", { class: "page" }, head("Pull requests"), body);
  replace(root, page);
  const sections = h("div", {});
  const show = part(sections, (known) => draw(ctx, known));
  const ask = async () => {
    const [{ pulls }, queue] = await Promise.all([ctx.api.get("pulls?include_over=true"), ctx.api.get("queue")]);
    return { pulls, queue };
  };
  const load = loader(body, "pull requests", ask, (answer, fresh) => {
    if (fresh) body.append(sections);
    show(answer);
  });
  const renew = later(load, 300);
  const concerns = (event) => /^(pull|queue|forge):/.test(event.name);
  const offs = [
    ctx.store.on("pulls", renew),
    ctx.store.on("events", (events) => [...events].some(concerns) && renew()),
    ticking(page),
    renew.stop,
    load.stop,
  ];
  load();
  return { destroy: all(offs) };
}

function draw(ctx, { pulls, queue }) {
  const open = pulls.filter((pull) => !OVER.has(pull.state));
  const over = pulls.filter((pull) => OVER.has(pull.state));
  const queued = new Set(queue.items.map((entry) => entry.instance_id));
  return [
    h("h2", {}, `Open (${open.length})`),
    open.length
      ? table(
          "Open pull requests",
          ["pull request", "instance", "status", "checks", "ready", "seen", "act"],
          open.map((pull) => openRow(ctx, pull, queued)),
          { stack: true },
        )
      : empty(
          "No pull request is open.",
          "An agent opens one when its work is approved; Pull request on an instance's page opens it by hand.",
        ),
    h("h2", {}, `Merge queue (${queue.items.length})`),
    queue.items.length
      ? table(
          "Merge queue, in its order",
          ["#", "pull request", "instance", "into", "state", "what would happen", "act"],
          queue.items.map((entry, i) => queueRow(ctx, entry, i)),
          { stack: true },
        )
      : h(
          "p",
          { class: "muted" },
          "The queue is empty. What is queued is checked together and merged one at a time.",
        ),
    over.length || queue.over?.length ? h("h2", {}, "Recently over") : "",
    over.length
      ? table(
          "Pull requests that are over",
          ["pull request", "instance", "status", "merged as"],
          over.map((pull) =>
            row(
              named(pull),
              toInstance(pull.instance_id),
              pullStatus(pull.status),
              pull.merge_commit ? h("code", {}, pull.merge_commit.slice(0, 12)) : "",
            ),
          ),
        )
      : "",
    queue.over?.length
      ? table(
          "Left the queue",
          ["instance", "how", "why", "when"],
          queue.over.map((entry) =>
            row(toInstance(entry.instance_id), words(entry.state), entry.detail, when(entry.updated_at)),
          ),
        )
      : "",
  ];
}

const named = (pull) => away(pull.url, `#${pull.number} ${pull.title || ""}`);
const target = (ctx, id) => ctx.store.rows.get(id) || { id };

function openRow(ctx, pull, queued) {
  const acts = pullActs(pull).filter((act) => act.act !== "enqueue" || !queued.has(pull.instance_id));
  const stale = ctx.store.rows.get(pull.instance_id)?.pr?.stale;
  return row(
    named(pull),
    toInstance(pull.instance_id),
    [
      pullStatus(pull.status, stale),
      pull.auto_merge ? h("span", { class: "muted" }, ` ${pull.auto_merge} when ready`) : "",
    ],
    checksLabel(pull.checks),
    readiness(pull),
    seen({ ...pull, stale }),
    h(
      "div",
      { class: "bar" },
      acts.map((act) => ctx.actions.button(act, target(ctx, pull.instance_id), { small: true })),
    ),
  );
}

function queueRow(ctx, entry, i) {
  const conflicts = Object.entries(entry.conflicts || {}).map(
    ([who, files]) => `conflicts with ${who} in ${files.slice(0, 3).join(", ")}`,
  );
  const outlook = [...new Set([entry.detail, ...(entry.hindrances || []), ...conflicts].filter(Boolean))].join(
    "; ",
  );
  return row(
    String(i + 1),
    named(entry),
    toInstance(entry.instance_id),
    h("code", {}, entry.base_branch),
    words(entry.state),
    outlook || "merges cleanly",
    ctx.actions.button({ act: "dequeue", label: "Take out" }, target(ctx, entry.instance_id), { small: true }),
  );
}
