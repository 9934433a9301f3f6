// One feedback thread on its own page.
import { h, replace } from "../dom.js";
import { all, head, later, loader, ticking, toInstance } from "./kit.js";
import { thread } from "./said.js";

export const title = ({ id }) => `Thread of ${id}`;

export function mount(root, { id }, ctx) {
  const body = h("div", {});
  const page = h("div", { class: "page" }, head(["Thread of ", toInstance(id)]), body);
  replace(root, page);
  const shown = thread(ctx, id);
  const load = loader(
    body,
    "the thread",
    () => ctx.api.get(`threads/${encodeURIComponent(id)}`),
    (answer, fresh) => {
      if (fresh) body.append(shown.node);
      shown.show(answer);
    },
  );
  const renew = later(load);
  const concerns = (event) => event.instance === id || /^(feedback|review|message):/.test(event.name);
  const offs = [
    ctx.store.on("events", (events) => [...events].some(concerns) && renew()),
    ticking(page),
    renew.stop,
    load.stop,
  ];
  load();
  return { destroy: all(offs) };
}
