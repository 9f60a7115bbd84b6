// Elements made from values. A value becomes text and nothing else: no markup is ever parsed.

import { Numeral } from "./server.js";

const SVG = "http://www.w3.org/2000/svg";

/** The element of the page with this id. */
export const at = (id) => document.getElementById(id);

/** An element with attributes and children; text becomes a text node. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same, of SVG. */
export function shape(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

/** A cell of a table: a structure as JSON. */
export function cell(value) {
  if (value === null || value === undefined) return element("td", { class: "null" }, "null");
  if (isNumber(value)) return element("td", { class: "number" }, String(value));
  return element("td", {}, typeof value === "object" ? JSON.stringify(value) : String(value));
}

/** The heading of a column; that of numbers stands where they do, on the right. */
export const heading = (name, numbers) =>
  element("th", { scope: "col", ...(numbers ? { class: "number" } : {}) }, name);

/** Rows that are objects of the same names, as a table. */
export function table(rows, caption) {
  const names = Object.keys(rows[0]);
  const headings = names.map((name) => heading(name, rows.some((row) => isNumber(row[name]))));
  return element(
    "table", { "aria-label": caption },
    element("thead", {}, element("tr", {}, ...headings)),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...names.map((name) => cell(row[name]))))),
  );
}

const isNumber = (value) => typeof value === "number" || value instanceof Numeral;

/** How long ago, in one unit. */
export function ago(milliseconds) {
  const seconds = milliseconds / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s ago`;
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit} ago`;
  }
  return `${Math.round(seconds)} s ago`;
}
