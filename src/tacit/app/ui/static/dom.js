// Elements, and numbers as people read them. Whatever is shown goes in as text, so nothing in a run can be markup.

const SVG = "http://www.w3.org/2000/svg";

/** Returns an element with attributes, listeners (`onclick`) and children: elements, text, or nothing. */
export function h(tag, given = {}, ...children) {
  return fill(document.createElement(tag), given, children);
}

/** Returns an element of a drawing. */
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

export function bytes(count) {
  for (const unit of ["B", "kB", "MB"]) {
    if (count < 1000) return `${Number(count.toPrecision(3))} ${unit}`;
    count /= 1000;
  }
  return `${Number(count.toPrecision(3))} GB`;
}

export const percent = (part) => `${(100 * part).toFixed(1)} %`;

export const score = (run) =>
  run.accuracy != null ? percent(run.accuracy) : run.rmse != null ? run.rmse.toFixed(3) : "–";

export function ago(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${Math.round(seconds)} s`;
}

/** Returns so many of something, as people say it. */
export const counted = (count, one, several = `${one}s`) => `${count} ${count === 1 ? one : several}`;

/** Returns names as people say them. */
export function listed(names, most = 6) {
  const shown = names.length > most ? [...names.slice(0, most - 1), `${names.length - most + 1} others`] : names;
  return shown.length > 1 ? `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}` : shown.join("");
}

/** A command with a button that copies it. */
export function command(text, label = "Copy the command") {
  const button = h("button", { type: "button", class: "quiet", "aria-label": label, onclick: () => copy(text, button) }, "Copy");
  return h("div", { class: "command" }, h("code", { tabindex: "0" }, text), button);
}

export async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select and copy";
  }
  setTimeout(() => { button.textContent = before; }, 1500);
}

/** A field with its label, and a place for what is wrong with it. */
export function field(label, control, hint) {
  const id = (control.id ||= `field-${++fields}`);
  const wrong = h("span", { class: "wrong", id: `${id}-wrong` });
  const under = hint ? h("span", { class: "hint", id: `${id}-hint` }, hint) : null;
  control.setAttribute("aria-describedby", [hint && `${id}-hint`, `${id}-wrong`].filter(Boolean).join(" "));
  return h("div", { class: "field" }, h("label", { for: id }, label), control, under, wrong);
}
let fields = 0;

/** Says, or no longer says, what is wrong with a control. */
export function complain(control, problem) {
  control.toggleAttribute("aria-invalid", Boolean(problem));
  if (problem) control.setAttribute("aria-invalid", "true");
  const place = document.getElementById(`${control.id}-wrong`);
  if (place) place.textContent = problem ?? "";
}

export const problems = (list) =>
  h("div", { class: "problems", role: "alert" }, list.map((each) => h("p", {}, each)));
