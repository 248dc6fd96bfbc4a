// Glossary: short explanations of the page's terms, as tooltips and as a view of its own.

import { h, replace } from "./dom.js";

let loaded = null;
let tip = null;

/** Returns the terms of the glossary, each `{ term, group, short }`. */
export function loadTerms() {
  loaded ??= fetch("/static/glossary.json").then((answer) => answer.json()).then(({ terms }) => terms);
  return loaded;
}

/** Returns a word with its explanation, which shows on hover, on focus and on a tap. */
export function explain(term, text = term) {
  const button = h("button", { type: "button", class: "term", "data-term": term, "data-key": `term-${term}-${text}`,
    onmouseenter: () => show(button), onmouseleave: () => document.activeElement !== button && hide(),
    onfocus: () => show(button), onblur: hide, onclick: () => show(button),
    onkeydown: (event) => { if (event.key === "Escape") { hide(); event.stopPropagation(); } } }, text);
  return button;
}

/** Returns the small button beside the label of a control. */
export function explainBeside(term) {
  const button = explain(term, "?");
  button.className = "term beside";
  button.setAttribute("aria-label", `What is: ${term}`);
  return button;
}

async function show(button) {
  const found = (await loadTerms()).find((each) => each.term === button.dataset.term);
  if (!found || !button.isConnected) return;
  if (!tip) document.body.append(tip = h("div", { class: "tip", role: "tooltip", id: "tip", hidden: true }));
  replace(tip, h("strong", {}, found.term), " ", found.short);
  tip.hidden = false;
  button.setAttribute("aria-describedby", "tip");
  const [at, size] = [button.getBoundingClientRect(), tip.getBoundingClientRect()];
  const below = at.bottom + size.height + 12 < innerHeight;
  tip.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - size.width - 8)) + scrollX}px`;
  tip.style.top = `${(below ? at.bottom + 6 : at.top - size.height - 6) + scrollY}px`;
}

/** Hides the explanation that is shown. */
export function hide() {
  if (!tip || tip.hidden) return;
  tip.hidden = true;
  document.querySelector('[aria-describedby="tip"]')?.removeAttribute("aria-describedby");
}

export function glossary(root) {
  document.title = "Glossary · Tacit";
  const list = h("div", { "aria-busy": "true" });
  const search = h("input", { type: "search", id: "find-term", "aria-label": "Search terms", placeholder: "Search terms", oninput: () => fill() });
  replace(root, h("h1", {}, "Glossary"),
    h("p", { class: "lead" }, "The terms of this page, of reports and of the command line. Underlined words on other views show the same text."),
    h("div", { class: "tools" }, search), list);
  let terms = [];
  function fill() {
    const wanted = search.value.trim().toLowerCase();
    const found = terms.filter((each) => `${each.term} ${each.short}`.toLowerCase().includes(wanted));
    const groups = [...new Set(found.map((each) => each.group))];
    list.removeAttribute("aria-busy");
    replace(list, groups.length ? groups.map((group) => [h("h2", {}, group), h("dl", { class: "terms" },
      found.filter((each) => each.group === group).map((each) => h("div", {}, h("dt", {}, each.term), h("dd", {}, each.short))))])
      : h("p", { class: "muted" }, "No term matches."));
  }
  loadTerms().then((found) => { terms = found; fill(); });
  return () => {};
}
