// The table of views. Its rows are updated in place, so that the focus stays where it is.

import { ago, at, element } from "./elements.js";

export class Views {
  #rows = new Map();
  #choose;

  /** `choose`: called with the name of the view that the user opens. */
  constructor(choose) {
    this.#choose = choose;
  }

  /** Show these views, as `GET /v1/views` answers. */
  update(views) {
    const names = new Set(views.map((view) => view.name));
    for (const [name, row] of this.#rows) {
      if (!names.has(name)) {
        row.remove();
        this.#rows.delete(name);
      }
    }
    for (const view of views) {
      if (!this.#rows.has(view.name)) this.#add(view.name);
      const texts = [
        view.state === "partial" ? "partial view" : view.kind, view.pipeline, view.version, view.rows?.toLocaleString("en"),
        view.rows_per_second?.toLocaleString("en"), view.event_time,
        view.freshness_ms == null ? null : ago(Number(view.freshness_ms)), replica(view),
      ];
      const cells = [...this.#rows.get(view.name).cells].slice(1);
      cells.forEach((each, place) => { each.textContent = texts[place] ?? "–"; });
    }
  }

  /** Mark the one that is open. */
  mark(name) {
    for (const [each, row] of this.#rows) row.setAttribute("aria-current", String(each === name));
  }

  #add(name) {
    const button = element("button", { type: "button" }, name);
    button.addEventListener("click", () => this.#choose(name));
    const number = () => element("td", { class: "number" });
    const row = element(
      "tr", {}, element("td", {}, button), element("td"), element("td"), number(), number(), number(), element("td"),
      number(), element("td"),
    );
    this.#rows.set(name, row);
    at("views-rows").append(row);
  }
}

/** What a view's replica does, and how many versions it is behind. */
function replica({ version, replica: found }) {
  if (found == null) return null;
  const behind = found.version == null ? 0 : Number(version) - Number(found.version);
  return behind > 0 ? `${found.phase}, ${behind} behind` : found.phase;
}
