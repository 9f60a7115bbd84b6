// The way to the server: the token of this tab, answers as JSON, and events by fetch, since EventSource has no headers.

const TOKEN = "strandline.token";

/** An answer that is an error: its status, and the server's own words. */
export class Refused extends Error {
  constructor(status, body) {
    super([body.message ?? `the server answered ${status}`, body.hint].filter(Boolean).join(" — "));
    this.status = status;
  }
}

/** The user gives no token. */
export class NoToken extends Error {}

/** A number that JavaScript would round, or write in another way: the digits that were sent. */
export class Numeral {
  constructor(digits) {
    this.digits = digits;
  }

  toString() {
    return this.digits;
  }

  toJSON() {
    return this.digits;
  }
}

/** JSON as values, and each number as it was sent. */
export function exact(text) {
  return JSON.parse(text, (_name, value, context) =>
    typeof value === "number" && context !== undefined && String(value) !== context.source
      ? new Numeral(context.source)
      : value);
}

export class Server {
  #askForToken;
  #asking = null;

  /** `askForToken`: resolves to a token, or rejects with NoToken. */
  constructor(askForToken) {
    this.#askForToken = askForToken;
  }

  get hasToken() {
    return sessionStorage.getItem(TOKEN) !== null;
  }

  forgetToken() {
    sessionStorage.removeItem(TOKEN);
  }

  get(path) {
    return this.#json(path, {});
  }

  post(path, body) {
    return this.#json(path, { method: "POST", body: JSON.stringify(body) });
  }

  /** Append one event, whose members are JSON texts; sent again by the browser it is still one. */
  insert(stream, members) {
    const row = members.map(([name, text]) => `${JSON.stringify(name)}: ${text}`).join(", ");
    const headers = { "Content-Type": "application/json", "Idempotency-Key": crypto.randomUUID() };
    const path = `v1/streams/${encodeURIComponent(stream)}`;
    return this.#json(path, { method: "POST", headers, body: `{"rows": [{${row}}]}` });
  }

  /** The events of a subscription as {kind, id, data}, until it ends. */
  async *events(path, lastId, signal) {
    const headers = lastId === null ? {} : { "Last-Event-ID": lastId };
    const response = await this.#send(path, { headers, signal });
    if (!response.ok) throw await refusal(response);
    const decoder = new TextDecoder();
    let text = "";
    for await (const piece of pieces(response.body)) {
      text += decoder.decode(piece, { stream: true });
      const blocks = text.split("\n\n");
      text = blocks.pop();
      for (const block of blocks) {
        const event = parsed(block);
        if (event.data) yield event;
      }
    }
  }

  async #json(path, options) {
    const response = await this.#send(path, options);
    if (!response.ok) throw await refusal(response);
    return exact(await response.text());
  }

  async #send(path, options) {
    for (;;) {
      const token = sessionStorage.getItem(TOKEN);
      const headers = { ...options.headers, ...(token === null ? {} : { Authorization: `Bearer ${token}` }) };
      const response = await fetch(path, { ...options, headers, cache: "no-store" });
      if (response.status !== 401) return response;
      // Of several requests that are refused at once, the first asks.
      if (sessionStorage.getItem(TOKEN) === token) {
        this.#asking ??= this.#askForToken().finally(() => { this.#asking = null; });
        sessionStorage.setItem(TOKEN, await this.#asking);
      }
    }
  }
}

async function refusal(response) {
  const text = await response.text();
  try {
    return new Refused(response.status, exact(text));
  } catch {
    return new Refused(response.status, {});
  }
}

async function* pieces(stream) {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(block) {
  const event = { kind: "message", id: null, data: "" };
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) event.kind = line.slice(7);
    else if (line.startsWith("id: ")) event.id = line.slice(4);
    else if (line.startsWith("data: ")) event.data += line.slice(6);
  }
  return event;
}
