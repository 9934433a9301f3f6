// Short messages at the bottom, and the one region a screen reader hears.
import { h, icon } from "./dom.js";

const SHOWN_MS = 5000;
const MOST = 4;
const region = h("div", { id: "toasts", role: "status", aria: { live: "polite", atomic: "false" } });
const spoken = h("div", { id: "say", class: "unseen", aria: { live: "polite" } });

export const toasts = [region, spoken];

/** Say something to screen readers only. */
export function say(message) {
  spoken.textContent = message;
}

/** toast("Sent", {kind: "done"}) or toast(error.message, {kind: "error", code, hint, retry: fn}) */
export function toast(message, { kind = "done", code = "", hint = "", retry = null, action = null } = {}) {
  const close = () => node.remove();
  const same = [...region.children].find((one) => one.dataset.said === `${kind} ${code} ${message}`);
  same?.remove();
  const node = h(
    "div",
    { class: `toast ${kind}`, dataset: { said: `${kind} ${code} ${message}` } },
    icon(kind === "error" ? "error" : kind === "info" ? "idle" : "done"),
    h(
      "div",
      { class: "toast-text" },
      h("p", null, message, code && h("code", { class: "chip" }, code)),
      hint && h("p", { class: "muted" }, hint),
    ),
    retry && h("button", { class: "btn", type: "button", on: { click: () => (close(), retry()) } }, "Retry"),
    action &&
      h("button", { class: "btn", type: "button", on: { click: () => (close(), action.run()) } }, action.label),
    h(
      "button",
      { class: "btn quiet", type: "button", aria: { label: "Dismiss message" }, on: { click: close } },
      icon("close"),
    ),
  );
  region.append(node);
  while (region.children.length > MOST) region.firstChild.remove();
  if (kind !== "error") setTimeout(close, SHOWN_MS);
  return close;
}

/** A failure: code, hint, and Retry when there is something to try again. */
export function fail(error, retry = null) {
  return toast(error.message || "It failed", { kind: "error", code: error.code, hint: error.recovery_hint, retry });
}
