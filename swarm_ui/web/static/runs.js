// One line of a terminal, from runs to nodes. Colours go through CSSOM, which a strict style-src allows.
import { away } from "./dom.js";

const LINK = /https?:\/\/[^\s<>"'`]+[^\s<>"'`.,;:!?)\]}]/g;
const CUBE = [0, 95, 135, 175, 215, 255];
const LEGIBLE = 0.09;

/** The nodes of a line: lineRuns([["ok", {f: 2}], ["漢", {}, 2]]) */
function lineRuns(runs) {
  return runs.flatMap(([text, style, cells]) => {
    const parts = text.includes("://") ? linked(text) : [text];
    return style || cells !== undefined ? [styled(parts, style || {}, cells)] : parts;
  });
}

export function fillLine(node, runs) {
  node.replaceChildren(...lineRuns(runs));
}

function styled(parts, style, cells) {
  const span = document.createElement("span");
  span.append(...parts);
  let classes = (style.a || "").replace("r", "").split("").join(" ");
  if (cells !== undefined) {
    classes += " w";
    span.style.width = `${cells}ch`;
  }
  if (classes) span.className = classes.trim();
  paint(span, style);
  return span;
}

function paint(span, { f, b, a }) {
  const inverse = a?.includes("r");
  const front = f === undefined ? undefined : colour(f, b === undefined && !inverse);
  const back = b === undefined ? undefined : colour(b, false);
  if (inverse) {
    span.style.color = back || "var(--term)";
    span.style.backgroundColor = front || "var(--term-text)";
    return;
  }
  if (front) span.style.color = front;
  if (back) {
    span.style.backgroundColor = back;
    if (!front) span.style.color = dark(b) ? "#fff" : "#000";
  }
}

/** A CSS colour; on the terminal's own ground nothing may be too dark to read. */
function colour(code, lift) {
  if (typeof code === "number" && code < 16) return `var(--${lift ? "f" : "c"}${code})`;
  const rgb = channels(code);
  if (lift && luminance(rgb) < LEGIBLE) return `rgb(${rgb.map((part) => Math.round(part * 0.5 + 120)).join(" ")})`;
  return `rgb(${rgb.join(" ")})`;
}

function channels(code) {
  if (typeof code === "string") return [1, 3, 5].map((at) => Number.parseInt(code.slice(at, at + 2), 16) || 0);
  if (code >= 232) return Array(3).fill(8 + (code - 232) * 10);
  const cube = code - 16;
  return [CUBE[Math.floor(cube / 36)], CUBE[Math.floor(cube / 6) % 6], CUBE[cube % 6]];
}

function luminance(rgb) {
  const [r, g, b] = rgb.map((part) => (part / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function dark(code) {
  if (typeof code === "number" && code < 16) return ![7, 10, 11, 14, 15].includes(code);
  return luminance(channels(code)) < 0.3;
}

function linked(text) {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(LINK)) {
    if (found.index > at) parts.push(text.slice(at, found.index));
    parts.push(away(found[0], found[0]));
    at = found.index + found[0].length;
  }
  if (at < text.length) parts.push(text.slice(at));
  return parts;
}
