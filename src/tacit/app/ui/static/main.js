// Router: the view follows from the address, and from nothing else.

import { field, h, replace, showProblem } from "./dom.js";
import { adversary } from "./adversary.js";
import { compare } from "./compare.js";
import { takeToken, whenLocked } from "./events.js";
import { plan } from "./plan.js";
import { run } from "./run.js";
import { runs } from "./runs.js";
import { start } from "./start.js";

const VIEWS = { "/": runs, "/run": run, "/compare": compare, "/adversary": adversary, "/plan": plan, "/start": start };
let leave = () => {};

/** Shows another view without loading the page again. */
export function go(address) {
  history.pushState(null, "", address);
  show();
  window.scrollTo(0, 0);
  document.getElementById("view").focus({ preventScroll: true });
}

function show() {
  leave();
  const root = document.getElementById("view");
  const view = VIEWS[location.pathname] ?? showNotFound;
  for (const link of document.querySelectorAll(".bar nav a"))
    link.toggleAttribute("aria-current", link.pathname === location.pathname);
  for (const link of document.querySelectorAll("[aria-current]")) link.setAttribute("aria-current", "page");
  replace(root);
  if (!takeToken()) { askForToken(); return; }
  leave = view(root, new URLSearchParams(location.search)) ?? (() => {});
}

function showNotFound(root) {
  replace(root, h("h1", {}, "Nothing is here"), h("p", {}, h("a", { href: "/" }, "All runs")));
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey;
  if (!link || !plain || link.origin !== location.origin || link.hash || !(link.pathname in VIEWS)) return;
  event.preventDefault();
  go(link.href);
});
window.addEventListener("popstate", show);

/** Asks for the address with the token, in a tab that has none or the one of a stopped server. */
function askForToken() {
  leave();
  leave = () => {};
  document.title = "No token · Tacit";
  const address = h("input", { type: "text", autocomplete: "off", spellcheck: "false", inputmode: "url" });
  const open = (event) => {
    event.preventDefault();
    if (!/token=\w/.test(address.value)) showProblem(address, "This address has no token.");
    else if (takeToken(address.value)) show();
  };
  replace(document.getElementById("view"), h("h1", {}, "This tab has no token"),
    h("p", {}, "The folder is shown to whoever has the address that ", h("code", {}, "tacit ui"),
      " printed. This tab does not, or it has that of a page which was stopped. Open it here, or paste it to come back to this view."),
    h("form", { class: "asking", novalidate: true, onsubmit: open }, field("The address", address), h("button", { class: "main", type: "submit" }, "Open")));
}

whenLocked(askForToken);
show();
