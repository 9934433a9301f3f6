// Whether everything is well, and for what is not, the command that mends it.
import { bytes, h, icon, replace, span } from "../dom.js";
import { eventList, single } from "./eventlist.js";
import { all, command, empty, facts, head, loader, part, ticking, when } from "./kit.js";

const AGAIN_MS = 10000;
const said = (problem) =>
  (problem && typeof problem === "object" ? problem.message || problem.code : problem) || "";

export const title = () => "Health";

export function mount(root, params, ctx) {
  const body = h("div", {});
  const page = h("div", { class: "page" }, head("Health"), body);
  replace(root, page);
  const cards = h("div", { class: "health" });
  const errors = h("div", {});
  const list = eventList("Last errors");
  const show = part(cards, (health) => draw(health));
  const showErrors = part(errors, (found) => [
    h("h2", {}, "Last errors"),
    found.length ? list.node : empty("No errors were recorded.", ""),
  ]);
  const load = loader(
    body,
    "health",
    () => ctx.api.get("health"),
    (answer, fresh) => {
      if (fresh) body.append(cards, errors, sharing());
      renew(answer);
    },
  );
  function renew(health) {
    // An age that grows is no news.
    show({
      ...health,
      errors: null,
      coordinator: {
        ...health.coordinator,
        age_s: health.coordinator?.age_s == null ? null : Math.floor(health.coordinator.age_s / 10) * 10,
      },
    });
    showErrors((health.errors || []).map((event) => event.id));
    list.show(single(health.errors || []));
  }
  const timer = setInterval(() => document.hidden || load(), AGAIN_MS);
  const offs = [ctx.store.on("health", load), () => clearInterval(timer), ticking(page), load.stop, list.destroy];
  load();
  return { destroy: all(offs) };
}

function card(name, problem, mend, ...pairs) {
  const bad = said(problem);
  return h(
    "section",
    { class: `panel${bad ? " bad" : ""}` },
    h(
      "h2",
      { class: bad ? "state-error" : "" },
      icon(bad ? "error" : "done", bad ? "not well" : "well"),
      ` ${name}`,
    ),
    bad ? h("p", { class: "state-error" }, bad) : "",
    facts(...pairs),
    bad && mend ? h("p", {}, "Mend it: ", command(mend)) : "",
  );
}

function draw({ coordinator = {}, database = {}, tmux = {}, github = [], versions = {}, started_at, viewers }) {
  const stopped =
    coordinator.running === false
      ? "It is not running: nothing is moved on."
      : coordinator.ok === false
        ? "It runs but is not well."
        : "";
  const silent = github.map((one) => said(one.problem)).find(Boolean);
  return [
    card(
      "Coordinator",
      said(coordinator.problem) || stopped,
      "swarm up",
      ["last look", coordinator.age_s == null ? "" : `less than ${coordinator.age_s + 10} s ago`],
      ["process", coordinator.pid],
    ),
    card(
      "Database",
      database.problem,
      "swarm doctor",
      ["path", h("code", { class: "mono" }, database.path || "")],
      ["size", bytes(database.bytes)],
      ["write-ahead log", bytes(database.wal_bytes)],
    ),
    card(
      "tmux",
      tmux.problem || (tmux.up === false && tmux.sessions ? "The server is gone." : ""),
      "swarm resume",
      ["server", tmux.up ? "up" : "not started: it starts with the first agent"],
      ["version", tmux.version],
      ["sessions", tmux.sessions == null ? "" : String(tmux.sessions)],
    ),
    card(
      "GitHub",
      silent,
      "swarm doctor",
      ...(github.length ? github.map(quota) : [["use", "no repository on GitHub is followed"]]),
    ),
    card("Versions", "", "", ...Object.entries(versions)),
    card(
      "Dashboard",
      "",
      "",
      ["up for", when(started_at, "")],
      ["viewers", viewers == null ? "" : String(viewers)],
    ),
  ];
}

const quota = ({ host, quota: shares, silent_s: silent }) => [
  host,
  [shares.length ? shares.join("\n") : "no quota known", silent ? `, no answer for ${span(silent)}` : ""],
];

const sharing = () =>
  h(
    "section",
    { class: "panel" },
    h("h2", {}, "Who may look"),
    h("p", {}, "A link for somebody who should only see: ", command("swarm link --read-only --name anna")),
    h(
      "p",
      {},
      "All links, and taking one back: ",
      command("swarm link --list"),
      " ",
      command("swarm link --revoke anna"),
    ),
  );
