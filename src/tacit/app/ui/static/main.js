// Router: the view follows from the address, and from nothing else.

import { field, h, replace, showProblem } from "./dom.js";
import { adversary } from "./adversary.js";
import { compare } from "./compare.js";
import { takeToken, whenLocked } from "./events.js";
import { federation } from "./federation.js";
import { glossary, hide } from "./glossary.js";
import { plan } from "./plan.js";
import { run } from "./run.js";
import { runs } from "./runs.js";
import { start } from "./start.js";

const VIEWS = { "/": runs, "/run": run, "/compare": compare, "/federation": federation, "/adversary": adversary, "/plan": plan, "/start": start, "/glossary": glossary };
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
  const view = VIEWS[location.pathname];
  hide();
  for (const link of document.querySelectorAll(".bar nav a"))
    link.toggleAttribute("aria-current", link.pathname === location.pathname);
  for (const link of document.querySelectorAll("[aria-current]")) link.setAttribute("aria-current", "page");
  replace(root);
  const known = takeToken();
  if (!view) { leave = () => {}; showNotFound(root); return; }
  if (!known) { askForToken(); return; }
  leave = view(root, new URLSearchParams(location.search)) ?? (() => {});
}

function showNotFound(root) {
  document.title = "Page not found · Tacit";
  replace(root, h("div", { class: "empty" }, h("h1", {}, "Page not found"),
    h("p", {}, "There is no page at ", h("code", {}, location.pathname), ". The address may be misspelled."),
    h("p", {}, h("a", { class: "button main", href: "/" }, "Go to all runs")),
    h("p", {}, "Or go to ", h("a", { href: "/federation" }, "the federation"), ", ", h("a", { href: "/adversary" }, "the adversary"), ", ",
      h("a", { href: "/plan" }, "a plan"), " or ", h("a", { href: "/start" }, "a new run"), ".")));
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
    h("p", {}, "The command ", h("code", {}, "tacit ui"), " printed an address with a token. This tab has no token, or that of a server that was stopped. Paste the printed address to open this view."),
    h("form", { class: "asking", novalidate: true, onsubmit: open }, field("Printed address", address), h("button", { class: "main", type: "submit" }, "Open")));
}

whenLocked(askForToken);
show();
