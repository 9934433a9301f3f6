// The newest events. It follows while it is at its top; scrolled away, it counts what is new.
import { clock, h, icon, span, text } from "./dom.js";
import { instancePath } from "./paths.js";
import { store } from "./store.js";

const STEP = 60;

export function eventFeed() {
  let held = 0;
  let most = STEP;
  let top = 0;
  const wanted = h("input", {
    type: "search",
    placeholder: "Filter events",
    aria: { label: "Filter events" },
    on: { input: redraw },
  });
  const level = h(
    "select",
    { aria: { label: "Level" }, on: { change: redraw } },
    [
      ["", "All"],
      ["warning", "Warnings"],
      ["error", "Errors"],
    ].map(([value, label]) => h("option", { value }, label)),
  );
  const only = h(
    "button",
    {
      class: "btn small",
      type: "button",
      aria: { pressed: "false" },
      title: "Only the selected instance",
      on: { click: toggleOnly },
    },
    "Selected",
  );
  const fresh = h(
    "button",
    { class: "btn primary small feed-new", type: "button", hidden: true, on: { click: toTop } },
    icon("up"),
    h("span"),
  );
  const empty = h("div", { class: "empty", hidden: true });
  const box = h("div", {
    id: "feed",
    role: "log",
    tabindex: "0",
    aria: { live: "off", label: "Events" },
    on: { scroll: scrolled },
  });
  const node = h(
    "section",
    { class: "pane feed-pane", aria: { label: "Event feed" } },
    h(
      "div",
      { class: "pane-head" },
      h("h2", null, h("a", { href: "/events" }, "Events")),
      h("div", { class: "feed-filter" }, wanted, level, only),
    ),
    fresh,
    empty,
    box,
  );

  const fits = (row) =>
    (!only.matches("[aria-pressed=true]") || row.instance === store.selected) &&
    (!level.value || row.level === level.value || (level.value === "warning" && row.level === "error")) &&
    (!store.repo || !row.instance || !store.rows.get(row.instance) || store.shows(store.rows.get(row.instance))) &&
    (!wanted.value ||
      `${row.name} ${row.instance || ""} ${row.actor || ""} ${row.text}`
        .toLowerCase()
        .includes(wanted.value.toLowerCase()));

  function redraw() {
    held = 0;
    const rows = store.events.filter(fits);
    top = store.events[0]?.id || 0;
    box.replaceChildren(...rows.slice(0, most).map(line));
    showState();
  }

  /** Put new rows on top; rows beyond the window are not made at all. */
  function added() {
    const rows = store.events.filter((row) => row.id > top && fits(row));
    if (store.events.length && store.events.at(-1).id > top) most = STEP;
    if (!following()) {
      held = rows.length;
      return showState();
    }
    top = store.events[0]?.id || top;
    box.prepend(...rows.slice(0, most).map(line));
    while (box.childElementCount > most) box.lastChild.remove();
    showState();
  }

  function showState() {
    fresh.hidden = !held;
    text(fresh.lastChild, `${held} new`);
    const none = !box.childElementCount;
    empty.hidden = !none;
    box.hidden = none;
    if (none) empty.replaceChildren(...nothing());
  }

  function nothing() {
    if (!store.events.length) return [h("p", null, "Nothing has happened yet")];
    return [
      h("p", null, "No event fits"),
      h("button", { class: "btn", type: "button", on: { click: clear } }, "Clear the filter"),
    ];
  }

  function clear() {
    wanted.value = level.value = "";
    only.setAttribute("aria-pressed", "false");
    redraw();
  }

  function toggleOnly() {
    only.setAttribute("aria-pressed", String(!only.matches("[aria-pressed=true]")));
    redraw();
  }

  const following = () => box.scrollTop < 12;

  function scrolled() {
    if (following() && held) return redraw();
    if (box.scrollTop + box.clientHeight < box.scrollHeight - 200 || box.childElementCount < most) return;
    most += STEP;
    const shown = box.childElementCount;
    box.append(
      ...store.events
        .filter((row) => row.id <= top && fits(row))
        .slice(shown, most)
        .map(line),
    );
  }

  function toTop() {
    box.scrollTop = 0;
    most = STEP;
    redraw();
    box.focus();
  }

  const off = [
    store.on("events", added),
    store.on("selected", () => only.matches("[aria-pressed=true]") && redraw()),
    store.on("filter", redraw),
  ];
  redraw();
  return { node, destroy: () => off.forEach((stop) => stop()) };
}

function line(row) {
  const took = row.ms >= 1000 ? span(row.ms / 1000) : "";
  const what = [row.tool, row.code, row.text || [row.from, row.to].filter(Boolean).join(" → "), took]
    .filter(Boolean)
    .join(" · ");
  return h(
    "div",
    {
      class: `event ${row.level || "info"}`,
      dataset: { event: row.id },
      title: `${row.name}${row.actor ? ` by ${row.actor}` : ""}: ${what}`,
    },
    h("time", { datetime: row.at }, clock(row.at)),
    row.instance
      ? h("a", { class: "ellipsis", href: instancePath(row.instance) }, row.instance)
      : h("span", { class: "muted ellipsis" }, row.actor || ""),
    h(
      "span",
      { class: "ellipsis" },
      h("span", { class: "name" }, row.name),
      " ",
      h("span", { class: "what" }, what),
    ),
  );
}
