// What went wrong with an instance: its events of level error.
import { h } from "../dom.js";
import { eventList, single } from "./eventlist.js";
import { empty, loader } from "./kit.js";

export function errorsTab(ctx, id) {
  const node = h("div", { class: "tab-body" });
  const list = eventList(`Errors of ${id}`);
  const nothing = empty(
    "No errors.",
    h("a", { href: `/events?instance=${encodeURIComponent(id)}` }, "All events of this instance"),
  );
  const load = loader(
    node,
    "errors",
    () => ctx.api.get(`events?level=error&limit=200&instance=${encodeURIComponent(id)}`),
    ({ items }) => {
      node.replaceChildren(items.length ? list.node : nothing);
      list.show(single(items));
    },
  );
  load();
  return { node, renew: load, destroy: () => (load.stop(), list.destroy()) };
}
