// The query box: a SELECT and its rows, or an EXPLAIN and its plan.

import { at, element, table } from "./elements.js";

const MOST_ROWS = 1000;
const EXPLAIN = /^\s*explain\b/i;

export class Query {
  #server;
  #fail;

  /** `fail`: called with what went wrong. */
  constructor(server, fail) {
    this.#server = server;
    this.#fail = fail;
    const form = at("query-form");
    const text = at("query-text");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#run(text.value);
    });
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    at("explain").addEventListener("click", () => {
      if (form.reportValidity()) this.#run(EXPLAIN.test(text.value) ? text.value : `EXPLAIN ${text.value}`);
    });
  }

  async #run(sql) {
    at("query-about").textContent = "Running …";
    at("query-found").replaceChildren();
    const begun = performance.now();
    try {
      const found = await this.#server.post("v1/query", { sql });
      const { rows } = found;
      if (EXPLAIN.test(sql)) {
        at("query-about").textContent = "";
        at("query-found").replaceChildren(element("pre", {}, rows.map((row) => row.plan).join("\n")));
        return;
      }
      at("query-about").textContent = about(found, Math.round(performance.now() - begun));
      if (rows.length) at("query-found").replaceChildren(table(rows.slice(0, MOST_ROWS), "Rows of the answer"));
    } catch (error) {
      at("query-about").textContent = "";
      this.#fail(error);
    }
  }
}

function about({ rows, versions }, milliseconds) {
  const count = `${rows.length.toLocaleString("en")} ${rows.length === 1 ? "row" : "rows"}`;
  const cut = Object.entries(versions).map(([name, version]) => `${name}@${version}`).join(", ");
  const rest = rows.length > MOST_ROWS ? `; the first ${MOST_ROWS} are shown` : "";
  return `${count} in ${milliseconds} ms, from ${cut || "no table"}${rest}`;
}
