// Which view there is: what the page shows follows from its address, and from nothing else.

import { h, replace } from "./dom.js";
import { adversary } from "./adversary.js";
import { compare } from "./compare.js";
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

// The token has become a cookie; in the address it would only be shared by mistake.
const query = new URLSearchParams(location.search);
if (query.has("token")) {
  query.delete("token");
  history.replaceState(null, "", location.pathname + (query.size ? `?${query}` : ""));
}
show();
