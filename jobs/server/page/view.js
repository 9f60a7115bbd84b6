// One view: its definition, its rows by key, and its changes as they come.

import { at, cell, element, heading, table } from "./elements.js";
import { exact, Refused } from "./server.js";

const MOST_ROWS = 100;
const AGAIN_MS = 1000;
/** What the event log adds to a stream's columns. */
const META = ["_partition", "_offset", "_timestamp", "_stream_time", "_headers"];
const NESTED = /^(ARRAY|MAP|STRUCT)/;
const NUMBERS = /^(INT|BIGINT|DOUBLE|DECIMAL)/;

export class View {
  #server;
  #fail;
  #view = null;
  #following = null;

  /** `fail`: called with what went wrong. */
  constructor(server, fail) {
    this.#server = server;
    this.#fail = fail;
    at("search").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#search().catch(fail);
    });
    at("show-rows").addEventListener("click", () => this.#list(this.#view.name).catch(fail));
    at("show-dead").addEventListener("click", () => this.#list(`${this.#view.name}__dead_letters`).catch(fail));
    at("insert").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#insert().catch(fail);
    });
    at("follow").addEventListener("click", () => (this.#following === null ? this.#follow() : this.#stop()));
  }

  /** Open the view of this name. */
  async open(name) {
    this.#stop();
    const view = await this.#server.get(path(name));
    this.#view = view;
    at("view-none").hidden = true;
    at("view-chosen").hidden = false;
    at("view-title").textContent = `Rows and changes of ${name}`;
    at("view-sql").textContent = view.sql;
    for (const id of ["search-found", "rows-found"]) at(id).replaceChildren();
    for (const id of ["rows-about", "insert-about"]) at(id).textContent = "";
    const partial = view.state === "partial";
    at("rows-none").hidden = !partial;
    for (const id of ["show-rows", "show-dead"]) at(id).hidden = partial;
    at("changes-rows").replaceChildren();
    at("changes-state").textContent = "";
    const headings = view.columns.map(({ name: column, type }) => heading(column, NUMBERS.test(type)));
    at("changes-head").replaceChildren(heading("±", false), ...headings);
    this.#drawSearch(view);
    this.#drawInsert(view);
    at("view-title").focus();
  }

  #drawSearch({ key, columns }) {
    const types = new Map(columns.map((column) => [column.name, column.type]));
    const fields = key.map((name, place) => {
      const id = `key-${place}`;
      const input = element("input", { id, autocomplete: "off", ...(place === 0 ? { required: "" } : {}) });
      return element("div", {}, element("label", { for: id }, `${name} (${types.get(name)})`), input);
    });
    at("search-none").hidden = key.length > 0;
    const search = key.length ? [element("button", { type: "submit" }, "Search")] : [];
    at("search-key").replaceChildren(...fields, ...search);
  }

  async #search() {
    const values = [...at("search-key").querySelectorAll("input")].map((input) => input.value);
    const given = values.findLastIndex((value) => value !== "") + 1;
    const { name } = this.#view;
    const found = await this.#server.post(`${path(name)}/rows`, { keys: [values.slice(0, given)] });
    const said = `${counted(found.rows)} ${reflects(found)}`;
    at("search-found").replaceChildren(
      element("p", { role: "status" }, said),
      ...(found.rows.length ? [table(found.rows, `Rows of ${name}`)] : []),
    );
  }

  /** Rows of a relation, in no order that is asked for. */
  async #list(relation) {
    const sql = `SELECT * FROM "${relation.replaceAll('"', '""')}" LIMIT ${MOST_ROWS}`;
    const found = await this.#server.post("v1/query", { sql });
    at("rows-about").textContent = `${counted(found.rows)} of ${relation}${found.rows.length < MOST_ROWS ? "" : ", the first ones"}`;
    at("rows-found").replaceChildren(...(found.rows.length ? [table(found.rows, `Rows of ${relation}`)] : []));
  }

  #drawInsert({ kind, columns }) {
    at("insert").hidden = kind !== "stream" && kind !== "table";
    const declared = columns.filter(({ name }) => !META.includes(name));
    const fields = declared.map(({ name, type }, place) => {
      const id = `insert-${place}`;
      const input = element("input", { id, autocomplete: "off", "data-column": name, "data-type": type });
      return element("div", {}, element("label", { for: id }, `${name} (${type})`), input);
    });
    at("insert-fields").replaceChildren(...fields, element("button", { type: "submit" }, "Insert"));
  }

  async #insert() {
    const inputs = [...at("insert-fields").querySelectorAll("input")].filter((input) => input.value !== "");
    const members = inputs.map(({ value, dataset }) => [dataset.column, asJson(value, dataset.type)]);
    const { position } = await this.#server.insert(this.#view.name, members);
    at("insert-about").textContent = `Inserted at ${position}. The views follow when the pipeline runs.`;
  }

  #stop() {
    this.#following?.abort();
    this.#following = null;
    at("follow").setAttribute("aria-pressed", "false");
    at("follow").textContent = "Follow";
  }

  #follow() {
    const following = new AbortController();
    this.#following = following;
    at("follow").setAttribute("aria-pressed", "true");
    at("follow").textContent = "Stop";
    at("changes-state").textContent = "Waiting for changes.";
    this.#read(this.#view, following.signal).catch((error) => {
      if (following.signal.aborted) return;
      this.#stop();
      this.#fail(error);
    });
  }

  /** Read events until the user stops; after a lost connection go on behind the last one. */
  async #read(view, signal) {
    let lastId = null;
    let changes = 0;
    while (!signal.aborted) {
      try {
        const source = `${path(view.name)}/changes?form=weights&snapshot=false`;
        for await (const event of this.#server.events(source, lastId, signal)) {
          lastId = event.id ?? lastId;
          if (event.kind === "change") {
            changes += 1;
            this.#show(view, exact(event.data));
          } else if (event.kind === "progress") {
            at("changes-state").textContent = `${changes} changes, up to version ${exact(event.data).version}.`;
          } else if (event.kind === "error") {
            const error = exact(event.data);
            if (error.action !== "retry") throw new Refused(200, error);
          }
        }
      } catch (error) {
        if (signal.aborted || error instanceof Refused) throw error;
        at("changes-state").textContent = "The connection was lost. Trying again.";
      }
      await new Promise((resolve) => { setTimeout(resolve, AGAIN_MS); });
    }
  }

  #show({ columns }, { weight, row }) {
    const sign = element("td", {}, weight > 0 ? `+${weight}` : `−${-weight}`);
    const cells = columns.map((column) => cell(row[column.name]));
    const rows = at("changes-rows");
    rows.prepend(element("tr", { class: weight > 0 ? "more" : "less" }, sign, ...cells));
    while (rows.rows.length > MOST_ROWS) rows.lastElementChild.remove();
  }
}

/** What was typed for a column, as JSON: digits as they are, nested values as JSON already, all else a text. */
function asJson(value, type) {
  if (NUMBERS.test(type) && /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(value)) return value;
  if (type === "BOOLEAN" && /^(true|false)$/i.test(value)) return value.toLowerCase();
  return NESTED.test(type) ? JSON.stringify(JSON.parse(value)) : JSON.stringify(value);
}

const counted = (rows) => `${rows.length} ${rows.length === 1 ? "row" : "rows"}`;

/** The version of an answer; of what has no version of its own, those of what it was computed from. */
function reflects({ version, versions }) {
  if (version != null) return `at version ${version}`;
  const each = Object.entries(versions ?? {}).map(([name, of]) => `${name}@${of}`);
  return each.length ? `computed from ${each.join(", ")}` : "";
}

const path = (name) => `v1/views/${encodeURIComponent(name)}`;
