// What an instance needs, in words: the question itself where there is one.

const CHOICE = /^\s*\W?\s*\d+[.)]\s/;

/** What is asked, without its choices, which are buttons, and without what stands beside it already. */
export function asked(need, ...known) {
  const chosen = (need.acts || []).some((act) => act.body?.choice);
  const lines = (need.more || "").split("\n").filter((line) => !chosen || !CHOICE.test(line));
  const said = lines.join("\n").trim();
  return [need.text, ...known].includes(said) ? "" : said;
}

/** In one line: nobody should say yes without knowing to what. */
export function summary(need) {
  const question = (need.acts || []).some((act) => act.act === "answer") && asked(need);
  return question
    ? question
        .split("\n")
        .map((line) => line.trim())
        .filter(Boolean)
        .join(" · ")
    : need.text;
}

/** What can be done about the needs of a row, besides looking. */
export function answers(row) {
  return (row.needs || []).flatMap((need) => need.acts || []).filter((act) => act.act !== "open");
}
