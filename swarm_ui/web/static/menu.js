// A button with a list of more buttons under it.
import { aria, h, icon } from "./dom.js";

export function menu(label, buttons) {
  const list = h("div", { class: "menu-list", hidden: true }, buttons);
  const opener = h(
    "button",
    {
      class: "btn square",
      type: "button",
      aria: { label, expanded: "false" },
      title: label,
      on: { click: () => show(list.hidden) },
    },
    icon("more"),
  );
  const node = h("div", { class: "menu" }, opener, list);
  const show = (open) => {
    list.hidden = !open;
    aria(opener, "expanded", String(open));
    if (open) list.querySelector("button:not(:disabled)")?.focus();
  };
  node.addEventListener("focusout", (event) => !node.contains(event.relatedTarget) && show(false));
  node.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !list.hidden) (event.preventDefault(), show(false), opener.focus());
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const all = [...list.querySelectorAll("button:not(:disabled)")];
    all[
      (all.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : all.length - 1)) % all.length
    ]?.focus();
    event.preventDefault();
  });
  list.addEventListener("click", () => show(false));
  return node;
}
