// Ctrl+K: pages, instances and actions by name, what fits the selection first. Also help and settings.
import * as actions from "./actions.js";
import { modal } from "./dialogs.js";
import { aria, h, icon, keyed } from "./dom.js";
import { keys } from "./keys.js";
import { answers } from "./needs.js";
import { instancePath, nowPath, PAGES } from "./paths.js";
import { choose, setting } from "./settings.js";
import { store } from "./store.js";
import { nextTheme, setTheme } from "./theme.js";
import { toast } from "./toast.js";

const MOST = 60;

function entries({ go }) {
  const row = store.rows.get(store.selected);
  const found = [];
  if (row) {
    for (const act of answers(row))
      found.push([
        `need ${act.act} ${act.label}`,
        actions.ACTIONS[act.act]?.sign || "waiting",
        `${act.label}`,
        row.id,
        () => actions.run(act, row),
      ]);
    for (const name of actions.offered(row))
      found.push([
        name,
        actions.ACTIONS[name].sign,
        actions.ACTIONS[name].label,
        row.id,
        () => actions.run(name, row, null, { sure: name === "restart" }),
      ]);
    found.push(["open", "open", "Open", row.id, () => go(instancePath(row.id))]);
  }
  if (store.me.may_write) found.push(["spawn", "plus", "Spawn", "", () => actions.run("spawn")]);
  for (const [path, , label, sign] of PAGES)
    if (label) found.push([`page ${path}`, sign, `Go to ${label}`, "", () => go(path)]);
  found.push(
    ["theme", "theme", "Switch theme", "", nextTheme],
    ["settings", "settings", "Settings", "", openSettings],
    ["keys", "help", "Keys", "", help],
  );
  for (const one of store.sorted())
    found.push([`i ${one.id}`, one.state, `${one.id} ${one.title || ""}`, one.state, () => go(nowPath(one.id))]);
  return found;
}

export async function openPalette(ctx) {
  if (document.querySelector("dialog[open]")) return;
  const all = entries(ctx);
  let at = 0;
  let shown = [];
  const chosen = await modal(
    (close) => {
      const list = h("ul", { id: "palette-list", role: "listbox", aria: { label: "Commands" } });
      const input = h("input", {
        type: "text",
        role: "combobox",
        autocomplete: "off",
        placeholder: "Page, instance or action",
        dataset: { first: "" },
        aria: {
          label: "Page, instance or action",
          controls: "palette-list",
          expanded: "true",
          autocomplete: "list",
        },
        on: { input: () => ((at = 0), show()), keydown: pressed },
      });
      function show() {
        const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
        shown = all
          .filter(([, , label, more]) => words.every((word) => `${label} ${more}`.toLowerCase().includes(word)))
          .slice(0, MOST);
        at = Math.max(0, Math.min(at, shown.length - 1));
        keyed(
          list,
          shown,
          ([key]) => key,
          ([key, sign, label, more, run]) =>
            h(
              "li",
              { role: "option", id: `p-${key.replace(/\W+/g, "-")}`, on: { click: () => close(run) } },
              icon(sign),
              h("span", { class: "ellipsis" }, label),
              h("span", { class: "muted mono" }, more),
            ),
        );
        [...list.children].forEach((node, i) => aria(node, "selected", String(i === at)));
        const current = list.children[at];
        aria(input, "activedescendant", current?.id);
        current?.scrollIntoView({ block: "nearest" });
      }
      function pressed(event) {
        if (event.key === "ArrowDown") at = (at + 1) % Math.max(1, shown.length);
        else if (event.key === "ArrowUp") at = (at + shown.length - 1) % Math.max(1, shown.length);
        else if (event.key === "Enter" && shown[at]) return (event.preventDefault(), close(shown[at][4]));
        else return;
        event.preventDefault();
        show();
      }
      show();
      return ["Commands", h("div", { class: "dialog" }, input, list)];
    },
    { kind: "palette" },
  );
  if (chosen) chosen();
}

const LABELS = { Escape: "Esc", "Ctrl+k": "Ctrl K", "Ctrl+]": "Ctrl ]" };

export function help() {
  return modal(
    () => [
      "Keys",
      h(
        "div",
        { class: "dialog-body", tabindex: "0", role: "group", aria: { label: "All keys" } },
        h(
          "div",
          { class: "keys" },
          keys.bound().map(([group, table]) =>
            h(
              "section",
              null,
              h("h3", null, group),
              h(
                "dl",
                null,
                table.flatMap(([key, description]) => [
                  h(
                    "dt",
                    null,
                    (LABELS[key] || key.trim()).split(" ").map((part) => [h("kbd", null, part), " "]),
                  ),
                  h("dd", null, description),
                ]),
              ),
            ),
          ),
        ),
      ),
    ],
    { wide: true },
  );
}

export function openSettings() {
  const letters = h("input", {
    type: "checkbox",
    checked: setting("letters"),
    on: { change: () => choose("letters", letters.checked) },
  });
  const notify = h("input", {
    type: "checkbox",
    checked: setting("notify") && globalThis.Notification?.permission === "granted",
    on: { change: () => askToNotify(notify) },
  });
  const theme = h(
    "select",
    { on: { change: () => setTheme(theme.value) } },
    [
      ["system", "As the system"],
      ["light", "Light"],
      ["dark", "Dark"],
    ].map(([value, label]) => h("option", { value }, label)),
  );
  theme.value = setting("theme");
  return modal((close) => [
    "Settings",
    h(
      "div",
      { class: "dialog-body" },
      h("label", { class: "field" }, h("span", null, "Theme"), theme),
      h("label", { class: "check" }, letters, h("span", null, "Single-letter keys")),
      h("label", { class: "check" }, notify, h("span", null, "Notify me when an agent needs me")),
      h(
        "p",
        { class: "muted" },
        `${store.me.name || "nobody"}${store.me.may_write ? "" : ", read-only"} · swarm ${store.version}`,
      ),
    ),
    h("button", { class: "btn primary", type: "button", on: { click: () => close() } }, "Done"),
  ]);
}

async function askToNotify(box) {
  const allowed =
    box.checked && globalThis.Notification ? (await Notification.requestPermission()) === "granted" : false;
  if (box.checked && !allowed) toast("The browser does not allow notifications for this page", { kind: "info" });
  box.checked = allowed;
  choose("notify", allowed);
}
