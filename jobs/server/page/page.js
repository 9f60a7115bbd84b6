// The page: asks the server again and again for what moves, and opens what the user chooses.

import { at } from "./elements.js";
import { drawLineage } from "./lineage.js";
import { Query } from "./query.js";
import { NoToken, Refused, Server } from "./server.js";
import { View } from "./view.js";
import { Views } from "./views.js";

const EVERY_MS = 2000;

const server = new Server(askForToken);
const view = new View(server, fail);
const views = new Views(choose);
new Query(server, fail);
let drawn = "";
// A link may name the view to open: ?view=NAME.
let wanted = new URLSearchParams(location.search).get("view");

at("forget").addEventListener("click", () => {
  server.forgetToken();
  location.reload();
});
// What the user does next says that the last failure was read.
document.addEventListener("submit", () => { at("failure").hidden = true; });
refresh();

function fail(error) {
  at("failure").textContent = error.message;
  at("failure").hidden = false;
}

async function choose(name) {
  at("failure").hidden = true;
  try {
    await view.open(name);
    views.mark(name);
    history.replaceState(null, "", `?view=${encodeURIComponent(name)}`);
  } catch (error) {
    fail(error);
  }
}

async function refresh() {
  try {
    if (!document.hidden) await look();
  } catch (error) {
    at("status").textContent = error instanceof Refused ? "The server refuses." : "The server does not answer.";
    if (error instanceof Refused || error instanceof NoToken) fail(error);
    if (error instanceof NoToken) return;
  }
  setTimeout(refresh, EVERY_MS);
}

async function look() {
  const found = await server.get("v1/views");
  views.update(found.views);
  const graph = await server.get("v1/lineage");
  const text = JSON.stringify(graph);
  // Drawn again only when it is another: the focus may be in it.
  if (text !== drawn) {
    drawLineage(graph, choose);
    drawn = text;
  }
  const { status: health, live, replicas } = found.health;
  at("health").textContent = replicas ? `${health}: ${live} of ${replicas} replicas live` : health;
  at("health").className = health === "ready" ? "" : "bad";
  const count = found.views.length;
  const status = `${count} ${count === 1 ? "view" : "views"}`;
  // Said once, and not every two seconds.
  if (at("status").textContent !== status) at("status").textContent = status;
  at("forget").hidden = !server.hasToken;
  if (wanted !== null) {
    const name = wanted;
    wanted = null;
    await choose(name);
  }
}

/** Ask the user for a token. */
function askForToken() {
  return new Promise((resolve, reject) => {
    const dialog = at("token");
    const ended = new AbortController();
    const { signal } = ended;
    at("token-text").value = "";
    at("token-form").addEventListener("submit", (event) => {
      event.preventDefault();
      resolve(at("token-text").value.trim());
      dialog.close();
    }, { signal });
    at("token-cancel").addEventListener("click", () => dialog.close(), { signal });
    dialog.addEventListener("close", () => {
      ended.abort();
      reject(new NoToken("without a token the server shows nothing; reload the page to give one"));
    }, { signal });
    dialog.showModal();
  });
}
