// JSON over HTTP: results or ApiError, never an envelope.
import { RUNNING, store } from "./store.js";

const ROOT = "/api/v1/";
const POLL_MS = 1500;

export class ApiError extends Error {
  constructor(
    { code = "INTERNAL", message = "The dashboard did not answer", recovery_hint = "", details = null, retry = false },
    status = 0,
  ) {
    super(message);
    Object.assign(this, { name: "ApiError", code, recovery_hint: recovery_hint || "", details, retry, status });
  }
}

/** The result of a read: get("instances/w-1") or get("/health"). */
export function get(path, { signal } = {}) {
  return request("GET", path, { signal });
}

/** The result of a write; the same key twice is one action. */
export function post(path, body = {}, { key = crypto.randomUUID() } = {}) {
  return request("POST", path, {
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", "Idempotency-Key": key },
  });
}

/** Start an action and wait for its outcome: act("stop", "w-1", {confirm: true}). */
export async function act(name, instance, body = {}, options = {}) {
  const started = await post(pathOf(name, instance), body, options);
  return started && started.action ? outcome(started.action) : started;
}

function pathOf(name, instance) {
  if (name === "spawn") return "instances";
  if (name === "dismiss") return `inbox/${encodeURIComponent(instance)}/dismiss`;
  return `instances/${encodeURIComponent(instance)}/${name}`;
}

/** Settles with the action's last frame; asks for it when the stream is away. */
function outcome(action) {
  return new Promise((resolve, reject) => {
    let timer = 0;
    const off = store.on("action", (frame) => frame.id === action.id && settle(frame));
    const settle = (frame) => {
      if (RUNNING.has(frame.state)) return;
      off();
      clearTimeout(timer);
      if (frame.state === "done") resolve(frame.result ?? {});
      else reject(new ApiError(frame.error || {}, 0));
    };
    const poll = async () => {
      try {
        const { action: frame } = await get(`actions/${action.id}`);
        store.apply("action", frame);
        if (RUNNING.has(frame.state)) timer = setTimeout(poll, POLL_MS);
      } catch (error) {
        if (error.status === 0 || error.retry) timer = setTimeout(poll, POLL_MS);
        else settle({ state: "failed", error });
      }
    };
    timer = setTimeout(poll, POLL_MS);
    settle(store.actions.get(action.id) || action);
  });
}

async function request(method, path, options) {
  const url = path.startsWith("/") ? path : ROOT + path;
  let response;
  try {
    response = await fetch(url, {
      method,
      credentials: "same-origin",
      cache: "no-store",
      ...options,
      headers: { Accept: "application/json", ...options.headers },
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError({
      code: "OFFLINE",
      message: "The dashboard does not answer",
      recovery_hint: "swarm up starts it again",
      retry: true,
    });
  }
  let envelope;
  try {
    envelope = await response.json();
  } catch {
    throw new ApiError({ message: `The dashboard answered ${response.status} without a reason` }, response.status);
  }
  if (response.status === 401) store.refuse();
  if (!envelope.ok) throw new ApiError(envelope.error || {}, response.status);
  return envelope.result;
}
