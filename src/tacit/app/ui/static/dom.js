// DOM elements and number formats. Everything is inserted as text, so nothing in a run can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** Returns an element with attributes, listeners (`onclick`) and children: elements, text, or nothing. */
export function h(tag, given = {}, ...children) {
  return fill(document.createElement(tag), given, children);
}

/** Returns an SVG element. */
export function s(tag, given = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), given, children);
}

function fill(element, given, children) {
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const replace = (element, ...children) =>
  element.replaceChildren(...children.flat(Infinity).filter((child) => child || child === 0));

/**
 * Replaces the children of an element, and keeps what the reader does there: the focus, and details that are open.
 * Controls are found again by their id or their data-key.
 */
export function refresh(element, ...children) {
  const active = element.contains(document.activeElement) ? document.activeElement : null;
  const key = active && (active.id ? `#${CSS.escape(active.id)}` : active.dataset.key ? `[data-key="${CSS.escape(active.dataset.key)}"]` : "");
  const open = new Map([...element.querySelectorAll("details[data-key]")].map((each) => [each.dataset.key, each.open]));
  replace(element, ...children);
  for (const each of element.querySelectorAll("details[data-key]")) if (open.has(each.dataset.key)) each.open = open.get(each.dataset.key);
  if (active && document.activeElement !== active) (active.isConnected ? active : key ? element.querySelector(key) : null)?.focus({ preventScroll: true });
}

export function formatBytes(count) {
  for (const unit of ["B", "kB", "MB"]) {
    if (count < 1000) return `${Number(count.toPrecision(3))} ${unit}`;
    count /= 1000;
  }
  return `${Number(count.toPrecision(3))} GB`;
}

export const formatPercent = (part) => `${(100 * part).toFixed(1)} %`;

/** Returns the time of day of a moment some seconds ago, and the date if it was on another day. */
export function formatMoment(secondsAgo) {
  const at = new Date(Date.now() - 1000 * secondsAgo);
  const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString()} ${time}`;
}

export const formatScore = (run) =>
  run.accuracy != null ? formatPercent(run.accuracy) : run.rmse != null ? run.rmse.toFixed(3) : "–";

export function formatDuration(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${Math.round(seconds)} s`;
}

/** Returns a count with its noun, singular or plural. */
export const formatCount = (count, one, several = `${one}s`) => `${count} ${count === 1 ? one : several}`;

/** Returns names joined by commas and "and"; long lists are shortened. */
export function joinNames(names, most = 6) {
  const shown = names.length > most ? [...names.slice(0, most - 1), `${names.length - most + 1} others`] : names;
  return shown.length > 1 ? `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}` : shown.join("");
}

/** Returns a command with a button that copies it. */
export function command(text, label = "Copy the command") {
  const button = h("button", { type: "button", class: "quiet", "aria-label": label, onclick: () => copyText(text, button) }, "Copy");
  return h("div", { class: "command" }, h("code", { tabindex: "0" }, text), button);
}

export async function copyText(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select and copy";
  }
  setTimeout(() => { button.textContent = before; }, 1500);
}

/** Returns a text in full or, if it is long, its beginning with the rest folded. */
export function foldText(text, key, most = 100) {
  const first = text.split(/\n|; |(?<=\.) /)[0];
  if (text.length <= most) return h("span", { class: "danger" }, text);
  const short = first.length <= most ? first : `${first.slice(0, most - 1)}…`;
  return h("details", { class: "fold", "data-key": key }, h("summary", { class: "danger", "data-key": `${key}-summary` }, short), h("p", {}, text));
}

/** Returns a labelled field with an empty line for its problem. `beside` goes next to the label. */
export function field(label, control, hint, beside = null) {
  const id = (control.id ||= `field-${++fields}`);
  const wrong = h("span", { class: "wrong", id: `${id}-wrong` });
  const under = hint ? h("span", { class: "hint", id: `${id}-hint` }, hint) : null;
  control.setAttribute("aria-describedby", [hint && `${id}-hint`, `${id}-wrong`].filter(Boolean).join(" "));
  return h("div", { class: "field" }, h("div", { class: "labelled" }, h("label", { for: id }, label), beside), control, under, wrong);
}
let fields = 0;

/** Shows the problem of a control, or removes it. */
export function showProblem(control, problem) {
  control.toggleAttribute("aria-invalid", Boolean(problem));
  if (problem) control.setAttribute("aria-invalid", "true");
  const line = document.getElementById(`${control.id}-wrong`);
  if (line) line.textContent = problem ?? "";
}

export const problems = (list) =>
  h("div", { class: "problems", role: "alert" }, list.map((each) => h("p", {}, each)));

/** Returns a note for each protocol of an installed package that cannot be used. */
export const unavailable = (list) => list.map((each) => h("p", { class: "note plugin" }, each.text));
