// The tasks of an instance, when a mission has given it any.
import { h, icon } from "../dom.js";
import { empty, part, row, table, words } from "./kit.js";

const SHAPES = { done: "done", failed: "error", running: "running", blocked: "waiting" };

export function tasksTab() {
  const node = h("div", { class: "tab-body" });
  const update = part(node, (tasks) => {
    if (!tasks.length)
      return empty("No tasks.", "Tasks come with a mission; this instance was started from a prompt or an issue.");
    return table(
      "Tasks",
      ["state", "task", "blocked by"],
      tasks.map((task) =>
        row(
          [icon(SHAPES[task.status] || "idle"), ` ${words(task.status)}`],
          task.title || task.id,
          (task.blocked_by || []).join(", "),
        ),
      ),
    );
  });
  return { node, update: (detail) => update(detail.tasks || []) };
}
