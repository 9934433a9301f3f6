// The frame around every page: boot, routes, top bar, banners, what is global.
import * as api from "./api.js";
import * as actions from "./actions.js";
import { aria, copyButton, h, icon, replace, setIcon, text } from "./dom.js";
import { keys } from "./keys.js";
import { notice, startNotices } from "./notify.js";
import { instancePath, nowPath, PAGES } from "./paths.js";
import { STATES, store } from "./store.js";
import { stream } from "./stream.js";
import { strip } from "./strip.js";
import { nextTheme } from "./theme.js";
import { fail, say, toast, toasts } from "./toast.js";

const SPARE_MS = 4000;
const FILTERED = new Set(["now", "graph", "wall"]);

let page = null;
let pageName = "";
let pageTitle = "";
let turn = 0;
const banners = new Map();

actions.useRouter(go);
const ctx = { store, api, stream, actions, go, toast, fail, keys };

const counts = h("div", { id: "counts", role: "group", aria: { label: "Instances by state" } });
const repoChoice = h("select", {
  id: "repo",
  aria: { label: "Repository" },
  on: { change: () => store.filterRepo(repoChoice.value) },
});
const live = h("span", { id: "live", class: "live-connecting" }, icon("running"), h("span", null, "connecting…"));
const bannerArea = h("div", { id: "banners" });
const rail = h(
  "nav",
  { id: "rail", aria: { label: "Pages" } },
  PAGES.filter((entry) => entry[2]).map(([path, name, label, sign, key]) =>
    h(
      "a",
      { href: path, dataset: { page: name }, title: `${label} (g ${key})` },
      icon(sign),
      h("span", null, label),
      " ",
      h("span", { class: "count", hidden: true }),
    ),
  ),
);
const main = h("main", { id: "main", tabindex: "-1" });

function frame() {
  const button = (sign, label, click) =>
    h("button", { class: "btn square", type: "button", aria: { label }, title: label, on: { click } }, icon(sign));
  const spawn = actions.spawnButton();
  return [
    h(
      "a",
      { id: "skip", href: "#main", on: { click: (event) => (event.preventDefault(), main.focus()) } },
      "Skip to content",
    ),
    h(
      "header",
      { id: "top" },
      h("a", { id: "brand", href: "/" }, icon("brand"), h("span", null, "Swarm")),
      counts,
      repoChoice,
      h("span", { class: "grow" }),
      actions.progress,
      live,
      spawn,
      button("search", "Commands (Ctrl+K)", openPalette),
      button("theme", "Switch theme (t)", switchTheme),
      button("settings", "Settings", () => palette().then((module) => module.openSettings())),
      button("help", "Keys (?)", help),
    ),
    bannerArea,
    strip(ctx),
    rail,
    main,
    ...toasts,
  ];
}

/** Fetched when it is first wanted, or when there is time. */
const palette = () => import("./palette.js");
const openPalette = () => (keys.hold(), palette().then((module) => module.openPalette(ctx)));
const help = () => (keys.hold(), palette().then((module) => module.help()));

function switchTheme() {
  say(`Theme: ${nextTheme()}`);
}

// Routes

/** Show a path of ours without loading the page again. */
function go(path, { replaced = false } = {}) {
  if (replaced) history.replaceState(null, "", path);
  else if (path !== location.pathname + location.search) history.pushState(null, "", path);
  route(path);
}

/** Mount the page of a path; the last call wins. */
async function route(path = location.pathname + location.search) {
  const url = new URL(path, location.origin);
  const [entry, params] = match(url.pathname);
  const mine = ++turn;
  const first = !pageName;
  mark(entry);
  let module;
  try {
    module = await import(`./pages/${entry[1]}.js`);
  } catch (error) {
    if (mine === turn) return viewFailed(error);
    return;
  }
  if (mine !== turn) return;
  page?.destroy?.();
  page = null;
  replace(main);
  main.className = `page-${entry[1]}`;
  main.scrollTop = 0;
  pageName = entry[1];
  const given = { ...params, query: url.searchParams };
  pageTitle = module.title?.(given) || "";
  showTitle();
  if (!first) {
    main.focus({ preventScroll: true });
    say(`${pageTitle || "Now"} page`);
  }
  page = module.mount(main, given, ctx) || null;
  banner("view", null);
}

function match(path) {
  for (const entry of PAGES) {
    const names = [];
    const pattern = entry[0].replace(/\{(\w+)\}/g, (_, name) => (names.push(name), "([^/]+)"));
    const found = new RegExp(`^${pattern}/?$`).exec(path);
    if (found)
      return [entry, Object.fromEntries(names.map((name, i) => [name, decodeURIComponent(found[i + 1])]))];
  }
  return [PAGES[0], {}];
}

function mark(entry) {
  const current = { instance: "now", thread: "inbox" }[entry[1]] || entry[1];
  for (const link of rail.children) aria(link, "current", link.dataset.page === current ? "page" : null);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='/']");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (link.target || link.hasAttribute("download") || /^\/(api|static)\//.test(link.getAttribute("href"))) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
addEventListener("popstate", () => route());

// What the frame shows

function showCounts() {
  const shown = STATES.map((state) => [state, store.count(state)]).filter(
    ([state, count]) => count || state === "waiting" || state === store.state,
  );
  if (
    !counts.children.length ||
    counts.children.length !== shown.length ||
    shown.some(([state], i) => counts.children[i].dataset.state !== state)
  )
    replace(
      counts,
      shown.map(([state]) =>
        h(
          "button",
          { class: `chip state-${state}`, type: "button", dataset: { state }, on: { click: () => pick(state) } },
          icon(state),
          h("b"),
          " ",
          h("span", null, state),
        ),
      ),
    );
  shown.forEach(([state, count], i) => {
    const button = counts.children[i];
    text(button.children[1], count);
    aria(button, "pressed", String(store.state === state));
    aria(button, "label", `${count} ${state}`);
  });
}

function pick(state) {
  store.filterState(state);
  if (!FILTERED.has(pageName)) go("/");
}

function showRepos() {
  repoChoice.hidden = store.repos.length < 2;
  if (repoChoice.options.length === store.repos.length + 1) return;
  replace(
    repoChoice,
    h("option", { value: "" }, "All repositories"),
    store.repos.map((repo) => h("option", { value: repo.path }, repo.name)),
  );
  if (store.repo && !store.repos.some((repo) => repo.path === store.repo)) store.filterRepo("");
  repoChoice.value = store.repo;
}

function showLive({ state, seconds }) {
  live.className = `live-${state}`;
  setIcon(live.firstChild, state === "live" ? "running" : state === "connecting" ? "starting" : "error");
  text(
    live.lastChild,
    state === "live"
      ? store.me.may_write
        ? "live"
        : "live, read-only"
      : state === "connecting"
        ? "connecting…"
        : `reconnecting… ${seconds} s`,
  );
  document.documentElement.dataset.live = state;
}

function showTitle() {
  const count = store.waiting().length;
  document.title = `${count ? `(${count}) ` : ""}${pageTitle ? `${pageTitle} · ` : ""}Swarm`;
}

const COUNT_FONT = 'font-size="14" font-family="sans-serif" font-weight="700" text-anchor="middle" fill="#fff"';

/** The mark of swarm as a drawing, with how many wait in a red circle. */
function favicon(count) {
  const dot = `<circle cx="22" cy="10" r="10" fill="#d92d3a"/><text x="22" y="15" ${COUNT_FONT}>${count}</text>`;
  return (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">' +
    '<path d="M14 3l11 6.5v13L14 29 3 22.500v-13z" fill="#6d5ef0"/>' +
    `<circle cx="14" cy="16" r="4" fill="#fff"/>${count && dot}</svg>`
  );
}

let lastCount = -1;
function showAttention() {
  const count = store.waiting().length;
  showTitle();
  const badge = rail.querySelector("[data-page=inbox] .count");
  text(badge, count || "");
  badge.hidden = !count;
  if (count === lastCount) return;
  lastCount = count;
  const drawing = favicon(count > 9 ? "9+" : String(count || ""));
  document.querySelectorAll("link[rel~=icon]").forEach((link) => link.remove());
  document.head.append(h("link", { rel: "icon", href: `data:image/svg+xml,${encodeURIComponent(drawing)}` }));
}

// Banners

/** Show or take away (text null) a full-width message; `command` is what to run. */
function banner(key, message, { command = "", reload = false } = {}) {
  const shown = banners.get(key);
  if (shown?.dataset.text === message) return;
  shown?.remove();
  banners.delete(key);
  if (!message) return;
  const node = h(
    "div",
    { class: "banner", role: "alert", dataset: { text: message } },
    icon("error"),
    h("span", null, message),
    command && h("span", { class: "command" }, h("code", null, command), copyButton(command, "Copy command")),
    reload && h("button", { class: "btn", type: "button", on: { click: () => location.reload() } }, "Reload"),
  );
  banners.set(key, node);
  bannerArea.append(node);
}

function showHealth() {
  const { database = {}, coordinator = {}, tmux = {} } = store.health;
  const problem = database.problem;
  banner("database", problem ? `Database: ${problem}` : null, {
    command: commandIn(database.hint) || "swarm doctor",
  });
  const down = coordinator.running === false || coordinator.ok === false;
  const state =
    coordinator.running === false
      ? "The coordinator is not running"
      : `The coordinator is not well: ${coordinator.problem}`;
  banner("coordinator", down && !problem ? `${state}. Nothing is moved on.` : null, {
    command: coordinator.running === false ? "swarm up" : "swarm status",
  });
  const active = [...store.rows.values()].some((row) => ["running", "waiting", "starting"].includes(row.state));
  banner(
    "tmux",
    tmux.up === false && active
      ? "The tmux server is gone: the agents' sessions are lost. Restart brings each one back."
      : null,
    { command: "swarm status" },
  );
}

let version = "";
function showVersion() {
  version ||= store.version;
  const other = store.version && store.version !== version;
  banner("version", other ? `The dashboard is swarm ${store.version} now; this page is of ${version}.` : null, {
    reload: true,
  });
}

/** The first command that a hint names. */
function commandIn(hint) {
  return /`([^`]+)`/.exec(hint || "")?.[1] || "";
}

function refused() {
  turn++;
  page?.destroy?.();
  page = null;
  document.title = "Swarm: sign in";
  replace(
    document.getElementById("app"),
    h(
      "main",
      { class: "signed-out" },
      icon("brand"),
      h("h1", null, "This session has ended"),
      h("p", null, "Ask for a new link in a terminal, and open what it prints:"),
      h("p", { class: "command" }, h("code", null, "swarm link"), copyButton("swarm link", "Copy command")),
    ),
  );
}

let reported = 0;
function viewFailed(error) {
  banner("view", "This view failed. What you see may be old.", { reload: true });
  if (reported++ > 4) return;
  api
    .post("client-errors", {
      message: String(error?.message || error).slice(0, 500),
      stack: String(error?.stack || "").slice(0, 4000),
      url: location.pathname,
    })
    .catch(() => {});
}

addEventListener("error", (event) => viewFailed(event.error || event.message));
addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name === "AbortError") return event.preventDefault();
  if (event.reason?.name !== "ApiError") return viewFailed(event.reason);
  event.preventDefault();
  fail(event.reason);
});

// Keys that work everywhere

function bindKeys() {
  const own = {
    "!": ["Next that needs you", () => nextWaiting()],
    n: ["Spawn", () => actions.run("spawn")],
    t: ["Switch theme", switchTheme],
    "?": ["Keys", help],
    "Ctrl+k": ["Commands", openPalette],
    Escape: ["Back", back],
  };
  for (const [path, , label, , key] of PAGES) if (key) own[`g ${key}`] = [`Go to ${label}`, () => go(path)];
  keys.bind(own, "Everywhere");
}

function back() {
  if (store.state) return store.filterState(store.state);
  if (pageName !== "now") go(store.selected ? nowPath(store.selected) : "/");
}

/** Move to the next instance that waits, wherever we are. */
function nextWaiting() {
  const items = store.waiting();
  if (!items.length) return toast("Nobody needs you", { kind: "done" });
  const at = items.findIndex((item) => item.instance === store.selected);
  const id = items[(at + 1) % items.length].instance;
  if (pageName === "now") store.pick(id);
  else go(pageName === "instance" ? instancePath(id) : nowPath(id));
}

// Start

/** What the server has drawn stays until the page is there. */
function keepFirst() {
  const drawn = document.querySelector("#app > main");
  if (!drawn) return;
  main.className = drawn.className;
  main.dataset.view = drawn.dataset.view;
  main.append(...drawn.childNodes);
}

function boot() {
  const given = JSON.parse(document.getElementById("boot")?.textContent || "{}");
  const snapshot = given.snapshot || (given.instances ? given : null);
  if (given.me) store.me = given.me;
  if (given.error) banner("boot", given.error.message, { command: commandIn(given.error.recovery_hint) || "swarm doctor" });
  document.documentElement.dataset.live = "connecting";
  keepFirst();
  replace(document.getElementById("app"), frame());
  store.on("rows", () => (showCounts(), showHealth()));
  store.on("filter", () => (showCounts(), showAttention()));
  store.on("inbox", () => (showAttention(), notice()));
  store.on("health", showHealth);
  store.on(
    "me",
    () => (banner("boot", null), showVersion(), showRepos(), showLive({ state: store.live }), actions.refresh()),
  );
  store.on("live", (detail) => (showLive(detail), actions.refresh()));
  store.on("refused", refused);
  showCounts();
  showRepos();
  if (snapshot) store.apply("snapshot", snapshot);
  startNotices(ctx);
  bindKeys();
  stream.start();
  route();
  setTimeout(() => Promise.allSettled([palette(), import("./forms.js")]), SPARE_MS);
}

boot();
