// Type mode: keys go to the agent's terminal in small batches, in order, until Ctrl+] or a refusal.
import * as api from "./api.js";
import { h } from "./dom.js";
import { store } from "./store.js";
import { fail, say, toast } from "./toast.js";

const BATCH_MS = 40;
const NAMES = {
  Enter: "Enter",
  Escape: "Escape",
  Backspace: "BSpace",
  Tab: "Tab",
  Delete: "DC",
  ArrowUp: "Up",
  ArrowDown: "Down",
  ArrowLeft: "Left",
  ArrowRight: "Right",
  Home: "Home",
  End: "End",
  PageUp: "PPage",
  PageDown: "NPage",
};

/** typist(frame node, {id, left}) -> {node, enter(), leave(), press(name)} */
export function typist(frame, { id, left }) {
  let queue = [];
  let timer = 0;
  let sending = Promise.resolve();
  let on = false;
  let turn = 0;
  const catcher = h("textarea", {
    class: "term-keys",
    tabindex: "-1",
    autocapitalize: "off",
    autocomplete: "off",
    spellcheck: "false",
    aria: { label: `Type into the terminal of ${id}` },
    on: {
      keydown: pressed,
      input: typed,
      paste: pasted,
      blur: () => setTimeout(() => document.activeElement !== catcher && leave(), 0),
    },
  });
  const node = h(
    "div",
    { class: "term-mode", hidden: true },
    h("span", null, "Typing into the terminal"),
    h("kbd", null, "Ctrl"),
    h("kbd", null, "]"),
    h("span", null, "leaves"),
    catcher,
  );

  function enter() {
    if (!store.may() || on) return;
    on = true;
    node.hidden = false;
    frame.classList.add("typing");
    catcher.focus();
    say("Typing into the terminal. Control and right bracket leaves.");
  }

  function leave() {
    if (!on) return;
    on = false;
    node.hidden = true;
    frame.classList.remove("typing");
    catcher.value = "";
    if (document.activeElement === catcher || document.activeElement === document.body) left();
  }

  function pressed(event) {
    if (event.isComposing) return;
    event.stopPropagation();
    if (event.ctrlKey && (event.key === "]" || event.code === "BracketRight")) {
      event.preventDefault();
      return leave();
    }
    const name = nameOf(event);
    if (!name) return;
    event.preventDefault();
    add({ keys: [name] });
  }

  function typed() {
    const said = catcher.value;
    if (!said || catcher.matches(":focus") === false) return;
    catcher.value = "";
    add({ text: said });
  }

  function pasted(event) {
    const said = event.clipboardData?.getData("text") || "";
    event.preventDefault();
    if (/[\r\n]/.test(said.trim()))
      return toast("Several lines are not typed", { kind: "info", hint: "Send them as a message" });
    if (said.trim()) add({ text: said.trim() });
  }

  /** Neighbours of one kind become one request. */
  function add(piece) {
    const last = queue.at(-1);
    if (piece.text && last?.text) last.text += piece.text;
    else if (piece.keys && last?.keys) last.keys.push(...piece.keys);
    else queue.push(piece);
    if (!timer) timer = setTimeout(send, BATCH_MS);
  }

  function send() {
    timer = 0;
    const pieces = queue;
    const mine = turn;
    queue = [];
    sending = sending
      .then(async () => {
        for (const piece of pieces)
          if (mine === turn) await api.post(`instances/${encodeURIComponent(id)}/keys`, piece);
      })
      .catch(refused);
  }

  /** What was typed after what is refused is not sent either. */
  function refused(error) {
    turn++;
    queue = [];
    leave();
    if (error.code !== "DIALOG_OPEN") return fail(error);
    toast(error.message, {
      kind: "error",
      code: error.code,
      hint: "Answer it with the buttons above the terminal",
      action: { label: "Show", run: () => document.querySelector(".ask .btn")?.focus() },
    });
  }

  return {
    node,
    enter,
    leave,
    press: (name) => store.may() && add(name.length === 1 ? { text: name } : { keys: [name] }),
  };
}

function nameOf(event) {
  if (event.ctrlKey && !event.altKey && /^[a-z]$/i.test(event.key))
    return event.key === "v" || event.key === "V" ? "" : `C-${event.key.toLowerCase()}`;
  if (event.key === "Tab" && event.shiftKey) return "BTab";
  return NAMES[event.key] || "";
}
