// The changes of an instance: the files with their counts, and the unified text coloured by line.
import { h } from "../dom.js";
import { empty, loader, plural } from "./kit.js";

const OPEN_LINES = 1500;

export function diff(ctx, id) {
  const node = h("div", { class: "tab-body" });
  const load = loader(
    node,
    "the diff",
    () => ctx.api.get(`instances/${id}/diff`),
    (answer) => node.replaceChildren(...draw(answer, load)),
  );
  load();
  return { node, destroy: load.stop };
}

function draw({ files, text, cut }, reload) {
  const again = h("button", { type: "button", class: "btn", on: { click: reload } }, "Look again");
  if (!files.length)
    return [
      empty(
        "No changes against the base.",
        "What the agent commits on its branch appears here until the base has it. ",
        again,
      ),
    ];
  const sections = split(text || "");
  let budget = OPEN_LINES;
  const shown = sections.map((one) => {
    budget -= one.lines.length;
    return section(one, budget >= 0);
  });
  const jump = (path) => {
    const found = shown.find((one) => one.dataset.path === path);
    if (!found) return;
    found.open = true;
    found.scrollIntoView({ block: "start" });
    found.querySelector("summary").focus({ preventScroll: true });
  };
  const sum = (name) => files.reduce((all, file) => all + (file[name] || 0), 0);
  return [
    h(
      "div",
      { class: "bar" },
      h("h2", {}, plural(files.length, "file")),
      h("span", { class: "added" }, `+${sum("added")}`),
      h("span", { class: "deleted" }, `−${sum("deleted")}`),
      h("span", { class: "grow" }),
      again,
    ),
    cut
      ? h(
          "p",
          { class: "note" },
          "The text is cut at 400 KB; the list of files is whole. git diff in the worktree shows all of it.",
        )
      : "",
    h(
      "nav",
      { class: "diff-files", "aria-label": "Changed files" },
      h("ul", {}, ...files.map((file) => fileLine(file, jump))),
    ),
    ...shown,
  ];
}

const fileLine = (file, jump) =>
  h(
    "li",
    {},
    h(
      "button",
      { type: "button", class: "plain", on: { click: () => jump(file.path) } },
      h("span", { class: "mono path" }, file.path),
      file.status && !["modified", "changed"].includes(file.status)
        ? h("span", { class: "chip" }, file.status)
        : "",
      file.binary
        ? h("span", { class: "muted" }, "binary")
        : [h("span", { class: "added" }, `+${file.added}`), h("span", { class: "deleted" }, `−${file.deleted}`)],
    ),
  );

/** One piece for each file, named by its new path, or its old one when it is gone. */
function split(text) {
  return text
    .split(/^(?=diff --git )/m)
    .filter((piece) => piece.trim())
    .map((piece) => {
      const lines = piece.replace(/\n$/, "").split("\n");
      const named = (sign) =>
        lines
          .find((line) => line.startsWith(sign))
          ?.slice(sign.length)
          .replace(/\t$/, "");
      const path = [named("+++ b/"), named("--- a/"), named("rename to "), lines[0].split(" b/").pop()].find(
        Boolean,
      );
      return { path, lines: lines.slice(1) };
    });
}

/** The lines of a closed file are built when it is opened. */
function section({ path, lines }, open) {
  const body = h("pre", {
    class: "diff-text mono",
    tabindex: "0",
    role: "region",
    "aria-label": `Changes of ${path}`,
  });
  const node = h(
    "details",
    { class: "diff-file" },
    h(
      "summary",
      { class: "mono" },
      path,
      open ? "" : h("span", { class: "muted" }, ` ${plural(lines.length, "line")}`),
    ),
    body,
  );
  node.dataset.path = path;
  const fill = () => {
    if (!body.firstChild)
      body.append(
        ...lines.filter((line) => !/^(index |--- |\+\+\+ |new file|deleted file)/.test(line)).map(coloured),
      );
  };
  node.addEventListener("toggle", () => node.open && fill());
  node.open = open;
  if (open) fill();
  return node;
}

const KINDS = { "+": "add", "-": "del", "@": "hunk", "\\": "hunk" };
const coloured = (line) => h("span", { class: `diff-line ${KINDS[line[0]] || ""}` }, `${line}\n`);
