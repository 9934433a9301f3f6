// Missions: cards with their phases, and one with its tasks. Until there are any, what comes before them.
import { h, replace } from "../dom.js";
import { all, command, empty, head, loader, row, table, toInstance, words } from "./kit.js";

const PHASES = ["specify", "clarify", "plan", "tasks", "implement"];

export const title = ({ id }) => (id ? `Mission ${id}` : "Missions");

export function mount(root, { id }, ctx) {
  const body = h("div", {});
  replace(root, h("div", { class: "page" }, head(id ? `Mission ${id}` : "Missions"), body));
  const load = loader(
    body,
    id ? "the mission" : "missions",
    () => ctx.api.get(id ? `missions/${encodeURIComponent(id)}` : "missions"),
    (answer) =>
      replace(body, id ? one(answer.mission || answer) : many(answer.missions || answer.items || answer)),
  );
  const offs = [
    ctx.store.on("events", (events) => [...events].some((event) => event.name.startsWith("mission:")) && load()),
    load.stop,
  ];
  load();
  return { destroy: all(offs) };
}

const none = () =>
  empty(
    "No missions yet.",
    "A mission takes a goal through specify, clarify, plan, tasks and implement. For now start single instances: press n, or run ",
    command('swarm work "fix the login test"'),
  );

const many = (missions) =>
  missions.length
    ? h(
        "div",
        { class: "health" },
        missions.map((mission) =>
          h(
            "section",
            { class: "panel" },
            h(
              "h2",
              {},
              h("a", { href: `/missions/${encodeURIComponent(mission.id)}` }, mission.title || mission.id),
            ),
            phases(mission),
          ),
        ),
      )
    : none();

const phases = (mission) =>
  h(
    "ol",
    { class: "receipt", aria: { label: "Phases" } },
    PHASES.map((phase) =>
      h(
        "li",
        {
          class: phase === mission.phase ? "reached" : "ahead",
          aria: { current: phase === mission.phase ? "step" : null },
        },
        phase,
      ),
    ),
  );

const one = (mission) => [
  phases(mission),
  mission.tasks?.length
    ? table(
        "Tasks",
        ["task", "state", "instance", "blocked by"],
        mission.tasks.map((task) =>
          row(
            task.title || task.id,
            words(task.status),
            task.instance ? toInstance(task.instance) : "",
            (task.blocked_by || []).join(", "),
          ),
        ),
      )
    : empty("No tasks yet.", "They come with the tasks phase."),
];
