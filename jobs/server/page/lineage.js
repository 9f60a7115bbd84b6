// The lineage as a drawing: a column for each step away from the topics, and a line for each way that rows go.

import { at, shape } from "./elements.js";

const BOX = { width: 190, height: 44 };
const GAP = { x: 60, y: 16 };
const MOST_LETTERS = 24;

/** Draw a graph as `GET /v1/lineage` answers; `choose` is called with the definition that the user opens. */
export function drawLineage({ nodes, edges, readers }, choose) {
  if (nodes.length === 0) {
    at("lineage-graph").replaceChildren("Nothing is defined yet.");
    return;
  }
  const steps = depths(nodes, edges);
  const ways = edges.map(([from, to]) => stops(from, to, steps));
  const places = placed(nodes, ways, steps);
  const right = Math.max(...[...places.values()].map((place) => place.x)) + BOX.width;
  const low = Math.max(...[...places.values()].map((place) => place.y)) + BOX.height;
  const size = { width: right + 4, height: low + 4, viewBox: `-2 -2 ${right + 4} ${low + 4}` };
  at("lineage-graph").replaceChildren(shape(
    "svg", { ...size, role: "group", "aria-labelledby": "lineage-title" },
    arrowhead(),
    ...ways.map((stopped) => way(stopped.map(({ id }) => places.get(id)))),
    ...nodes.map((node) => box(node, places.get(node.id), edges, readers[node.id] ?? [], choose)),
  ));
}

/** The way of an edge as {id, step}: its ends, and between them a free place in each column that it passes. */
function stops(from, to, steps) {
  const passed = [];
  for (let step = steps.get(from) + 1; step < steps.get(to); step += 1) {
    passed.push({ id: JSON.stringify([from, to, step]), step });
  }
  return [{ id: from, step: steps.get(from) }, ...passed, { id: to, step: steps.get(to) }];
}

/** {id: {x, y}}. Each column is in the order of what leads to it, so that few lines cross. */
function placed(nodes, ways, steps) {
  const columns = [];
  const take = (id, step) => (columns[step] ??= new Set()).add(id);
  for (const node of nodes) take(node.id, steps.get(node.id));
  for (const { id, step } of ways.flat()) take(id, step);
  const before = new Map();
  for (const stopped of ways) {
    stopped.slice(1).forEach(({ id }, place) => before.set(id, [...(before.get(id) ?? []), stopped[place].id]));
  }
  const places = new Map();
  columns.forEach((ids, column) => {
    const middle = (id) => {
      const heights = (before.get(id) ?? []).filter((each) => places.has(each)).map((each) => places.get(each).y);
      return heights.length ? heights.reduce((sum, y) => sum + y, 0) / heights.length : 0;
    };
    const sorted = [...ids].map((id) => [middle(id), id]).sort(([a], [b]) => a - b);
    sorted.forEach(([, id], row) => {
      places.set(id, { x: column * (BOX.width + GAP.x), y: row * (BOX.height + GAP.y) });
    });
  });
  return places;
}

/** {id: steps from the farthest topic}. A stream may feed itself through a query: that way back counts nothing. */
function depths(nodes, edges) {
  const inputs = new Map(nodes.map((node) => [node.id, []]));
  for (const [from, to] of edges) inputs.get(to).push(from);
  const found = new Map();
  const open = new Set();
  const visit = (id) => {
    if (!found.has(id)) {
      open.add(id);
      const steps = inputs.get(id).filter((from) => !open.has(from)).map((from) => visit(from) + 1);
      open.delete(id);
      found.set(id, Math.max(0, ...steps));
    }
    return found.get(id);
  };
  for (const node of nodes) visit(node.id);
  return found;
}

function arrowhead() {
  const size = { markerWidth: 7, markerHeight: 7, refX: 7, refY: 3.5, orient: "auto" };
  return shape("marker", { id: "head", ...size }, shape("path", { class: "head", d: "M0 0L7 3.5L0 7z" }));
}

/** A line from one place to the next: a curve between two columns, straight on where it passes one. */
function way(places) {
  const middle = ({ y }) => y + BOX.height / 2;
  const bend = GAP.x / 2;
  const [first, ...others] = places;
  let d = `M${first.x + BOX.width} ${middle(first)}`;
  let last = first;
  others.forEach((next, place) => {
    const [x, y] = [next.x, middle(next)];
    d += `C${last.x + BOX.width + bend} ${middle(last)} ${x - bend} ${y} ${x} ${y}`;
    if (place < others.length - 1) d += `H${x + BOX.width}`;
    last = next;
  });
  return shape("path", { class: "way", "marker-end": "url(#head)", d });
}

function box(node, { x, y }, edges, readers, choose) {
  const name = node.name.length > MOST_LETTERS ? `${node.name.slice(0, MOST_LETTERS - 1)}…` : node.name;
  const read = readers.length ? ` · ${readers.length} ${readers.length === 1 ? "reader" : "readers"}` : "";
  const inputs = edges.filter(([, to]) => to === node.id).map(([from]) => from);
  const below = inputs.length ? [`from ${inputs.join(", ")}`] : [];
  const title = [`${node.role} ${node.name}`, ...below, ...readers].join("; ");
  const made = shape(
    "g", { class: "node", transform: `translate(${x} ${y})` },
    shape("title", {}, title),
    shape("rect", { width: BOX.width, height: BOX.height, rx: 5 }),
    shape("text", { x: 10, y: 18 }, name),
    shape("text", { x: 10, y: 35, class: "role" }, node.role + read),
  );
  if (node.role !== "topic") opens(made, title, () => choose(node.definition));
  return made;
}

function opens(made, label, open) {
  made.classList.add("opens");
  made.setAttribute("tabindex", "0");
  made.setAttribute("role", "button");
  made.setAttribute("aria-label", label);
  made.addEventListener("click", open);
  made.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    open();
  });
}
