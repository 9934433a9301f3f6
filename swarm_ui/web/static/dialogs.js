// Native dialogs, and forms in them.
import { h, icon, replace } from "./dom.js";
import { isField, keys } from "./keys.js";

/** Show a dialog with this body until it is closed; `fill(close)` answers [title, body node, footer nodes]. */
export function modal(fill, { wide = false, kind = "" } = {}) {
  return new Promise((resolve) => {
    let answer = null;
    const dialog = h("dialog", { class: `${kind}${wide ? " wide" : ""}`, aria: { labelledby: "dialog-title" } });
    const close = (value = null) => {
      answer = value;
      dialog.close();
    };
    const [title, body, foot] = fill(close, dialog);
    dialog.append(
      h(
        "div",
        { class: "dialog-head" },
        h("h2", { id: "dialog-title" }, title),
        h(
          "button",
          { class: "btn quiet square", type: "button", aria: { label: "Close" }, on: { click: () => close() } },
          icon("close"),
        ),
      ),
      body,
    );
    if (foot) dialog.append(h("div", { class: "dialog-foot" }, foot));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    dialog.addEventListener("click", (event) => event.target === dialog && close());
    document.body.append(dialog);
    dialog.showModal();
    const field = ".dialog-body :is(input, textarea, select):not([hidden])";
    (dialog.querySelector("[data-first]") || dialog.querySelector(field))?.focus();
    typeIn(document.activeElement, keys.release());
  });
}

function typeIn(field, said) {
  if (!said || !isField(field) || field.matches("select")) return;
  field.value += said;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

/**
 * Ask for some fields: ask({title, question, fields: [{name, label, kind, ...}], send}) -> {name: text} or null.
 * kind: text, area, select, pick (free text with proposals), number, check. It can be sent when `until` has settled;
 * `ready` gets the tools to change it while it is open.
 */
export function ask({
  title,
  question = "",
  fields = [],
  send = "OK",
  danger = false,
  check = null,
  more = null,
  until = null,
  ready = null,
}) {
  const inputs = new Map();
  const proposals = new Map();
  const tools = {
    options(name, options) {
      replace(
        proposals.get(name),
        options.map(([value, label]) => h("option", { value }, label)),
      );
    },
  };
  return modal((close) => {
    ready?.(tools);
    const problem = h("p", { class: "state-error", role: "alert" });
    const sender = h(
      "button",
      {
        class: `btn primary${danger ? " danger" : ""}`,
        type: "button",
        disabled: Boolean(until),
        on: { click: submit },
      },
      send,
    );
    until?.finally(() => (sender.disabled = false));
    function submit() {
      if (sender.disabled) return;
      const said = {};
      for (const [name, input] of inputs)
        said[name] = input.type === "checkbox" ? input.checked : input.value.trim();
      const missing = fields
        .flatMap((field) => field.pair || [field])
        .find((field) => field.needed && !said[field.name]);
      const wrong = missing ? `${missing.label} is needed` : check?.(said) || "";
      if (!wrong) return close(said);
      replace(problem, wrong);
      inputs.get(missing?.name || fields.find((field) => !field.hidden)?.name)?.focus();
    }
    const body = h(
      "div",
      {
        class: "dialog-body",
        on: {
          keydown: (event) => {
            const sends =
              event.key === "Enter" &&
              (event.ctrlKey || event.metaKey || (event.target.matches("input") && !event.isComposing));
            if (sends) (event.preventDefault(), submit());
          },
        },
      },
      question && h("div", { class: "question" }, question),
      more,
      fields.map((field) => build(field, inputs, proposals, tools)),
      problem,
    );
    // What destroys is never a second Enter away.
    const first = (wanted) => (wanted && !fields.length ? { first: "" } : {});
    Object.assign(sender.dataset, first(!danger));
    const long = fields.some((field) => field.kind === "area");
    return [
      title,
      body,
      [
        long && h("span", { class: "hint" }, h("kbd", null, "Ctrl"), " ", h("kbd", null, "Enter"), " sends"),
        h(
          "button",
          { class: "btn", type: "button", dataset: first(danger), on: { click: () => close() } },
          "Cancel",
        ),
        sender,
      ],
    ];
  });
}

function build(field, inputs, proposals, tools) {
  if (field.pair)
    return h(
      "div",
      { class: "pair" },
      field.pair.map((one) => build(one, inputs, proposals, tools)),
    );
  const input = control(field, proposals);
  inputs.set(field.name, input);
  if (field.change) input.addEventListener("change", () => field.change(input.value, tools));
  if (field.entered) input.addEventListener("focus", () => field.entered(tools), { once: true });
  if (field.kind === "check") return h("label", { class: "check" }, input, h("span", null, field.label));
  const list = field.kind === "pick" && proposals.get(field.name);
  return h(
    "label",
    { class: "field", hidden: field.hidden },
    h("span", null, field.label),
    input,
    list,
    field.hint && h("small", null, field.hint),
  );
}

function control(field, proposals) {
  if (field.kind === "area")
    return h("textarea", { rows: "4", value: field.value || "", dataset: field.first ? { first: "" } : {} });
  if (field.kind === "check") return h("input", { type: "checkbox", checked: field.value });
  if (field.kind === "select") {
    const select = h(
      "select",
      null,
      field.options.map(([value, label]) => h("option", { value }, label)),
    );
    if (field.value) select.value = field.value;
    proposals.set(field.name, select);
    return select;
  }
  if (field.kind === "pick") {
    const list = h(
      "datalist",
      { id: `pick-${field.name}` },
      (field.options || []).map(([value, label]) => h("option", { value }, label)),
    );
    proposals.set(field.name, list);
    return h("input", { type: "text", list: list.id, autocomplete: "off", inputmode: "numeric" });
  }
  return h("input", {
    type: field.kind || "text",
    value: field.value ?? "",
    min: field.min,
    max: field.max,
    step: field.step,
    autocomplete: "off",
  });
}
