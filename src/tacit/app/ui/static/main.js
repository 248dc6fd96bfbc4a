// Which view there is: what the page shows follows from its address, and from nothing else.

import { complain, field, h, replace } from "./dom.js";
import { adversary } from "./adversary.js";
import { compare } from "./compare.js";
import { enter, whenLocked } from "./events.js";
import { plan } from "./plan.js";
import { run } from "./run.js";
import { runs } from "./runs.js";
import { start } from "./start.js";

const VIEWS = { "/": runs, "/run": run, "/compare": compare, "/adversary": adversary, "/plan": plan, "/start": start };
let leave = () => {};

/** Goes to an address of the page, without loading it again. */
export function go(address) {
  history.pushState(null, "", address);
  show();
  window.scrollTo(0, 0);
  document.getElementById("view").focus({ preventScroll: true });
}

function show() {
  leave();
  const place = document.getElementById("view");
  const view = VIEWS[location.pathname] ?? nowhere;
  for (const link of document.querySelectorAll(".bar nav a"))
    link.toggleAttribute("aria-current", link.pathname === location.pathname);
  for (const link of document.querySelectorAll("[aria-current]")) link.setAttribute("aria-current", "page");
  replace(place);
  if (!enter()) { lock(); return; }
  leave = view(place, new URLSearchParams(location.search)) ?? (() => {});
}

function nowhere(place) {
  replace(place, h("h1", {}, "Nothing is here"), h("p", {}, h("a", { href: "/" }, "All runs")));
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey;
  if (!link || !plain || link.origin !== location.origin || link.hash || !(link.pathname in VIEWS)) return;
  event.preventDefault();
  go(link.href);
});
window.addEventListener("popstate", show);

/** Says what to do in a tab that has no token, or that of a page which was stopped. */
function lock() {
  leave();
  leave = () => {};
  document.title = "No token · Tacit";
  const address = h("input", { type: "text", autocomplete: "off", spellcheck: "false", inputmode: "url" });
  const open = (event) => {
    event.preventDefault();
    if (!/token=\w/.test(address.value)) complain(address, "This address has no token.");
    else if (enter(address.value)) show();
  };
  replace(document.getElementById("view"), h("h1", {}, "This tab has no token"),
    h("p", {}, "The folder is shown to whoever has the address that ", h("code", {}, "tacit ui"),
      " printed. This tab does not, or it has that of a page which was stopped. Open it here, or paste it to come back to this view."),
    h("form", { class: "asking", novalidate: true, onsubmit: open }, field("The address", address), h("button", { class: "main", type: "submit" }, "Open")));
}

whenLocked(lock);
show();
