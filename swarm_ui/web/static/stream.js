// The one connection of a page: resumed without gap or repeat, closed while nobody looks.
// A browser has six connections for all its pages: those in excess of SEATS ask now and then instead.
import * as api from "./api.js";
import { store } from "./store.js";

const SEATS = 4;
const ASK_MS = 3000;
const HIDDEN_MS = 20000;
const SILENCE_MS = 40000;
const BACKOFF_MS = [300, 1000, 2000, 2500];
const open = new Set();
let current = null;
let failures = 0;
let timer = 0;
let watched = null;
let tiles = 0;
let settle = 0;
let ended = false;
let giveSeatBack = null;
let lastScreen = "";

export const stream = {
  start() {
    store.on("refused", () => {
      ended = true;
      stop();
    });
    document.addEventListener("visibilitychange", () => (document.hidden ? hide() : resume()));
    addEventListener("pagehide", stop);
    addEventListener("pageshow", (event) => event.persisted && resume());
    addEventListener("online", resume);
    if (document.hidden) hide();
    else connect();
  },
  /** Follow this instance's terminal (null: none). */
  watch(id) {
    if (watched === id) return;
    watched = id;
    lastScreen = "";
    renew();
  },
  /** Follow the last lines of every terminal. */
  tiles(wanted) {
    if (Boolean(tiles) === Boolean(wanted)) return;
    tiles = wanted ? 1 : 0;
    renew();
  },
};

/** Other parameters: the new connection takes over when it has said hello. Fast moves make one connection. */
function renew() {
  if (!current) return;
  clearTimeout(settle);
  settle = setTimeout(() => current && connect(), 40);
}

function resume() {
  if (document.hidden || ended) return;
  clearTimeout(timer);
  failures = 0;
  connect();
}

function stop() {
  clearTimeout(timer);
  clearTimeout(settle);
  current?.abort();
  current = null;
  closeOthers();
  giveSeatBack?.();
}

/** Nobody looks, but the title and notices still tell who needs a person. */
function hide() {
  stop();
  if (!ended) timer = setTimeout(askInbox, HIDDEN_MS);
}

async function askInbox() {
  try {
    store.apply("inbox", (await api.get("inbox")).items);
  } catch {
    // It is asked again; whoever looks at the page is told.
  }
  if (document.hidden && !ended) timer = setTimeout(askInbox, HIDDEN_MS);
}

function closeOthers() {
  for (const control of open) if (control !== current) control.abort();
}

async function connect() {
  clearTimeout(timer);
  const control = new AbortController();
  current = control;
  const seated = await seat();
  if (current !== control) return current ? undefined : giveSeatBack?.();
  if (!seated) return instead(control);
  const query = new URLSearchParams();
  if (store.loaded) {
    query.set("since", store.last);
    query.set("rev", store.rev);
  }
  if (watched) query.set("term", watched);
  if (tiles) query.set("tiles", "1");
  let silence = 0;
  const alive = () => {
    clearTimeout(silence);
    silence = setTimeout(() => control.abort(), SILENCE_MS);
  };
  open.add(control);
  try {
    alive();
    const response = await fetch(`/api/v1/stream?${query}`, {
      signal: control.signal,
      cache: "no-store",
      headers: { Accept: "text/event-stream" },
    });
    if (response.status === 401) return store.refuse();
    if (!response.ok) throw new Error(`stream answered ${response.status}`);
    await read(response.body, alive, (frame, data) => {
      if (current !== control) return;
      if (frame === "hello") opened();
      if (frame === "bye") return control.abort();
      store.apply(frame, data);
    });
  } catch (error) {
    if (error instanceof SyntaxError) throw error;
  } finally {
    clearTimeout(silence);
    open.delete(control);
    if (current === control) lost();
  }
}

/** Whether this page may keep a connection open; it holds the seat until it is hidden or closed. */
async function seat() {
  if (giveSeatBack || !navigator.locks) return true;
  for (let number = 0; number < SEATS; number++) {
    const taken = await new Promise((resolve) => {
      navigator.locks.request(`swarm-stream-${number}`, { ifAvailable: true }, (lock) => {
        if (!lock || giveSeatBack) return resolve(Boolean(giveSeatBack));
        return new Promise((free) => {
          giveSeatBack = () => ((giveSeatBack = null), free());
          resolve(true);
        });
      });
    });
    if (taken) return true;
  }
  return false;
}

/** Without a seat: ask for everything now and then, until one is free. */
async function instead(control) {
  try {
    store.apply("snapshot", await api.get("snapshot", { signal: control.signal }));
    // A terminal that is not there is no reason to stop asking.
    if (watched) await askScreen(watched, control.signal).catch(() => {});
    if (current !== control) return;
    failures = 0;
    if (store.live !== "live") store.setLive("live");
    timer = setTimeout(connect, ASK_MS);
  } catch {
    if (current === control) lost();
  }
}

async function askScreen(id, signal) {
  const screen = await api.get(`instances/${encodeURIComponent(id)}/terminal?lines=200`, { signal });
  const said = JSON.stringify(screen);
  if (said === lastScreen) return;
  lastScreen = said;
  const { lines, ended, exit, ...facts } = screen;
  store.apply("term", {
    ...facts,
    full: true,
    drop: 0,
    len: lines.length,
    set: lines.map((runs, index) => [index, runs]),
  });
  if (ended) store.apply("term", { id, ended, exit });
}

function opened() {
  failures = 0;
  closeOthers();
  if (store.live !== "live") store.setLive("live");
}

/** Wait longer after every failure, and say how long. */
function lost() {
  current = null;
  closeOthers();
  if (document.hidden || ended) return;
  const wait = BACKOFF_MS[Math.min(failures++, BACKOFF_MS.length - 1)] * (0.75 + Math.random() / 2);
  const due = Date.now() + wait;
  const tick = () => {
    const left = due - Date.now();
    if (left <= 0) return connect();
    store.setLive("reconnecting", { seconds: Math.ceil(left / 1000) });
    timer = setTimeout(tick, Math.min(left, 1000));
  };
  tick();
}

async function read(body, alive, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    const blocks = (rest + value.replaceAll("\r", "")).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) parse(block, take);
  }
}

function parse(block, take) {
  let frame = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) frame = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  if (data.length) take(frame, JSON.parse(data.join("\n")));
}
