// The controls of the adversary view: for every setting of a protocol the one that is right for its kind.

import { field, h, replace } from "./dom.js";

const DRIFTS = [["static", "stand still"], ["free", "change"]];
const WAIT = 200;

/** Fills a form with what can be asked, and calls `change` with what somebody sets. */
export function controls(form, state, protocols, change) {
  const known = protocols.find((each) => each.name === state.protocol) ?? protocols[0];
  const anew = (changes) => { change(changes); controls(form, state, protocols, change); };
  const protocol = h("select", { id: "ask-protocol", onchange: (event) => anew({ protocol: event.target.value, set: {}, hardened: false }) },
    protocols.map((each) => h("option", { value: each.name, selected: each.name === state.protocol }, each.name)));
  const [plain, rare] = [known.settings.filter((each) => each.kind !== "text"), known.settings.filter((each) => each.kind === "text")];
  const name = form.contains(document.activeElement) ? document.activeElement.id : "";
  replace(form, h("h2", { class: "hidden" }, "Settings"),
    field("Protocol", protocol, known.summary),
    h("div", { class: "grid" },
      amount("parties", "Parties", state, change, { min: 2, max: 200, step: 1 }),
      amount("rounds", "Rounds", state, change, { min: 1, max: 500, step: 1 })),
    segments("Models", "drift", DRIFTS, state, change),
    range(state, change),
    h("div", { class: "grid own" }, plain.map((each) => setting(each, state, change, anew))),
    rare.length ? h("details", { open: rare.some((each) => state.set[each.name]) }, h("summary", {}, "More settings"),
      h("div", { class: "grid" }, rare.map((each) => setting(each, state, change, anew)))) : null,
    onOff("ask-hardened", "Hardened", "the settings that a plan proposes for as many colluders", state.hardened,
      (on) => anew({ hardened: on }), known.leaks_by_design),
    h("p", { class: "note", id: "hardened-settings" }),
    onOff("ask-links", "Links in clear", "what an eavesdropper would learn if they were not sealed", state.links === "open", (on) => change({ links: on ? "open" : "" })));
  form.classList.toggle("is-hardened", state.hardened);
  if (name) document.getElementById(name)?.focus();
}

/** Says which settings are audited in place of those in the form. */
export function explained(form, options) {
  const place = form.querySelector("#hardened-settings");
  const told = Object.entries(options ?? {}).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
  if (place) place.textContent = options ? `Now: ${told.join(", ")}` : "";
}

function amount(name, label, state, change, limits) {
  const control = h("input", { type: "number", id: `ask-${name}`, inputmode: "numeric", value: state[name], ...limits });
  later(control, () => control.value && change({ [name]: Number(control.value) }));
  return field(label, control);
}

/** Calls back when somebody has stopped typing. */
function later(control, action) {
  let timer = 0;
  control.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(action, WAIT); });
}

function segments(label, name, choices, state, change) {
  const buttons = choices.map(([value, text]) => h("button", { type: "button", "aria-pressed": String(state[name] === value), onclick: () => {
    buttons.forEach((each, i) => each.setAttribute("aria-pressed", String(choices[i][0] === value)));
    change({ [name]: value });
  } }, text));
  return h("div", { class: "field" }, h("span", { class: "label", id: `ask-${name}` }, label),
    h("div", { class: "segments", role: "group", "aria-labelledby": `ask-${name}` }, buttons));
}

function range(state, change) {
  const shown = h("output", { for: "ask-dropout" }, `${Math.round(100 * state.dropout)} %`);
  const control = h("input", { type: "range", id: "ask-dropout", min: 0, max: 0.5, step: 0.05, value: state.dropout,
    oninput: () => { shown.textContent = `${Math.round(100 * control.value)} %`; } });
  later(control, () => change({ dropout: Number(control.value) }));
  return h("div", { class: "field" }, h("label", { for: "ask-dropout" }, "Dropouts, a round ", shown), control);
}

function onOff(id, label, hint, on, change, disabled = false) {
  const control = h("input", { type: "checkbox", role: "switch", id, checked: on, disabled, "aria-describedby": `${id}-hint`,
    onchange: (event) => change(event.target.checked) });
  return h("div", { class: "switch" }, control, h("label", { for: id }, label, h("small", { id: `${id}-hint` }, hint)));
}

// --- settings of a protocol ----------------------------------------------------------------------------------------

function setting(each, state, change, anew) {
  const put = (value) => change({ set: { ...state.set, [each.name]: String(value) } });
  const id = `set-${each.name}`;
  const [label, value] = [each.name.replaceAll("_", " "), state.set[each.name] ?? ""];
  if (each.kind === "switch") {
    const on = value === "" ? Boolean(each.default) : value === "true";
    return onOff(id, label, "", on, put, state.hardened);
  }
  if (each.kind === "graph") return graph(each, id, label, value, state, put, anew);
  if (each.kind === "choice")
    return field(label, h("select", { id, disabled: state.hardened, onchange: (event) => put(event.target.value) },
      each.choices.map((name) => h("option", { value: name, selected: String(name) === (value || String(each.default)) }, name))));
  const number = each.kind === "number";
  const given = number && each.empty !== null ? each.empty || "default" : String(each.default ?? "");
  const control = h("input", { type: number && /^[\d.]*$/.test(value) ? "number" : "text", id, value: value || (each.empty === null ? given : ""),
    placeholder: number ? given : "default", step: each.whole ? 1 : "any", disabled: state.hardened });
  later(control, () => put(control.value));
  return field(label, control);
}

/** A family of graphs, with the numbers it takes; edges that were given in an address stay as they are. */
function graph(each, id, label, value, state, put, anew) {
  const table = parsed(value);
  const kind = Array.isArray(table) ? "edges" : table?.kind ?? (value || "");
  const choices = ["", ...each.choices, ...(Array.isArray(table) ? ["edges"] : [])];
  const names = { "": "by default", edges: "as given" };
  const select = h("select", { id, disabled: state.hardened, onchange: (event) => {
    const wanted = event.target.value;
    const needs = wanted === "regular" || wanted === "directed";
    anew({ set: { ...state.set, graph: needs ? JSON.stringify({ kind: wanted, degree: wanted === "regular" ? 4 : 2 }) : wanted } });
  } }, choices.map((name) => h("option", { value: name, selected: name === kind }, names[name] ?? name)));
  const number = (key, least, standard) => {
    const control = h("input", { type: "number", id: `${id}-${key}`, min: least, value: table[key] ?? standard, disabled: state.hardened });
    later(control, () => put(JSON.stringify({ ...parsed(state.set.graph), [key]: Number(control.value) })));
    return field(key, control);
  };
  return [field(label, select), kind === "regular" || kind === "directed" ? number("degree", 1, 4) : null, kind === "regular" ? number("girth", 3, 3) : null];
}

function parsed(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" ? value : null;
  } catch {
    return null;
  }
}
