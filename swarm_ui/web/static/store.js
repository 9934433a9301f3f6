// What the page knows. Frames of the stream change it; pages hear about it once per animation frame.

export const STATES = ["waiting", "error", "running", "starting", "idle", "done"];
const RANK = new Map(STATES.map((state, rank) => [state, rank]));
const EVENTS_KEPT = 500;
const REPLAYED = 10000;
export const RUNNING = new Set(["accepted", "running"]);

const listeners = new Map();
const dirty = new Map();
let scheduled = false;
let order = null;
let orderedAt = 0;

export const store = {
  rows: new Map(),
  inbox: [],
  events: [],
  health: {},
  pulls: { open: 0, queued: 0 },
  me: { name: "", may_write: false },
  repos: [],
  version: "",
  last: 0,
  rev: "",
  loaded: false,
  live: "connecting",
  skew: 0,
  repo: remembered("swarm.repo"),
  state: null,
  selected: null,
  actions: new Map(),

  /** Hear about a topic; the answer is the function that stops it. */
  on(topic, listener) {
    if (!listeners.has(topic)) listeners.set(topic, new Set());
    listeners.get(topic).add(listener);
    return () => listeners.get(topic).delete(listener);
  },
  /** Rows of the chosen repository, by how much their waiting costs. */
  sorted() {
    if (!order || Date.now() - orderedAt > 15000) {
      const now = store.now();
      order = [...store.rows.values()].filter((row) => store.shows(row)).sort(byCost(now));
      orderedAt = Date.now();
    }
    return order;
  },
  /** The inbox of the chosen repository. */
  waiting() {
    return store.inbox.filter((item) => !item.dismissed && store.shows(item));
  },
  shows(item) {
    return !store.repo || item.repo_path === store.repo || item.repo === repoName(store.repo);
  },
  /** The server's time in milliseconds. */
  now() {
    return Date.now() + store.skew;
  },
  count(state) {
    let count = 0;
    for (const row of store.rows.values()) if (row.state === state && store.shows(row)) count++;
    return count;
  },
  may() {
    return store.me.may_write && store.live === "live";
  },
  /** Why actions are off, or "". */
  why() {
    if (!store.me.may_write) return "This link is read-only";
    return store.live === "live" ? "" : "Not connected";
  },
  select(id) {
    if (store.selected === id) return;
    store.selected = id;
    emit("selected", id);
  },
  /** Select it because somebody wants to look at it. */
  pick(id) {
    store.select(id);
    emit("picked", id);
  },
  filterState(state) {
    store.state = store.state === state ? null : state;
    emit("filter");
    touch("rows");
  },
  filterRepo(path) {
    store.repo = path || "";
    remember("swarm.repo", store.repo);
    order = null;
    emit("filter");
    for (const topic of ["rows", "inbox", "events"]) touch(topic);
  },
  setLive(state, detail) {
    store.live = state;
    emit("live", { state, ...detail });
  },
  /** The session has ended: nothing that is asked from now on is answered. */
  refuse() {
    if (store.live === "refused") return;
    store.setLive("refused");
    emit("refused");
  },
  /** Take one frame of the stream. */
  apply(frame, data) {
    if (frames[frame]) frames[frame](data);
  },
};

const frames = {
  // Said twice: at first with the revision that we have, and with the new one when all up to it has been told.
  hello(data) {
    if (data.now) store.skew = Date.parse(data.now) - Date.now();
    if (data.rev) store.rev = data.rev;
    emit("hello");
  },
  snapshot(data) {
    store.rev = data.rev ?? store.rev;
    // After a restart the events in between still come, and only they move the mark; unless there are too many.
    const missed = data.last - store.last;
    const afresh = !store.loaded || missed < 0 || missed > REPLAYED;
    if (afresh) store.events = [];
    if (afresh) store.last = data.last || 0;
    if (data.now) store.skew = Date.parse(data.now) - Date.now();
    Object.assign(store, {
      me: data.me || store.me,
      repos: data.repos || [],
      version: data.version || "",
      loaded: true,
    });
    store.rows = new Map((data.instances || []).map((row) => [row.id, row]));
    store.inbox = data.inbox || [];
    store.pulls = data.pulls || store.pulls;
    store.health = data.health || {};
    order = null;
    for (const topic of ["me", "rows", "inbox", "pulls", "health"]) touch(topic);
    mergeEvents(data.events || []);
  },
  events(rows) {
    mergeEvents(rows);
    for (const row of rows) if (row.id > store.last) store.last = row.id;
  },
  instances(patches) {
    for (const patch of patches) {
      if (patch.gone) store.rows.delete(patch.id);
      else store.rows.set(patch.id, { ...store.rows.get(patch.id), ...patch });
      touch("rows", patch.id);
    }
    order = null;
  },
  inbox(items) {
    store.inbox = items;
    touch("inbox");
  },
  pulls(data) {
    store.pulls = data;
    touch("pulls");
  },
  health(data) {
    store.health = { ...store.health, ...data };
    touch("health");
  },
  term: (data) => emit("term", data),
  tiles: (data) => emit("tiles", data),
  action(data) {
    store.actions.set(data.id, { ...store.actions.get(data.id), ...data });
    if (store.actions.size > 200) store.actions.delete(store.actions.keys().next().value);
    emit("action", store.actions.get(data.id));
  },
};

/** Newest first, each once: a resumed stream may repeat what is known. */
function mergeEvents(rows) {
  const known = new Set(store.events.map((row) => row.id));
  const fresh = rows.filter((row) => !known.has(row.id));
  if (!fresh.length) return;
  store.events = fresh
    .concat(store.events)
    .sort((a, b) => b.id - a.id)
    .slice(0, EVENTS_KEPT);
  for (const row of fresh) touch("events", row);
}

function byCost(now) {
  const cost = (row) =>
    row.waiting_since ? (row.weight || 1) * Math.max(0, now - Date.parse(row.waiting_since)) : 0;
  const costs = new Map([...store.rows.values()].map((row) => [row, cost(row)]));
  return (a, b) =>
    (RANK.get(a.state) ?? 9) - (RANK.get(b.state) ?? 9) ||
    costs.get(b) - costs.get(a) ||
    (b.updated_at || "").localeCompare(a.updated_at || "") ||
    a.id.localeCompare(b.id);
}

/** Remember that a topic changed; its listeners run before the next paint, with the set of what changed. */
function touch(topic, what) {
  if (!dirty.has(topic)) dirty.set(topic, new Set());
  if (what !== undefined) dirty.get(topic).add(what);
  if (scheduled) return;
  scheduled = true;
  // A hidden page is not painted, but its title and notices are seen.
  if (document.hidden) setTimeout(flush);
  else requestAnimationFrame(flush);
}

function flush() {
  scheduled = false;
  const topics = [...dirty];
  dirty.clear();
  for (const [topic, changed] of topics) emit(topic, changed);
}

/** A listener that fails is shown as a failed view, and keeps nobody else from hearing. */
function emit(topic, data) {
  for (const listener of [...(listeners.get(topic) || [])]) {
    try {
      listener(data);
    } catch (error) {
      reportError(error);
    }
  }
}

function repoName(path) {
  return store.repos.find((repo) => repo.path === path)?.name;
}

export function remembered(key, fallback = "") {
  try {
    return localStorage.getItem(key) ?? fallback;
  } catch {
    return fallback;
  }
}

export function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // Private windows may refuse storage; the choice then lasts until reload.
  }
}
