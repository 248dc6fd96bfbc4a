// Controls of the adversary view, one for every setting of a protocol.

import { field, h, replace, unavailable } from "./dom.js";
import { explainBeside } from "./glossary.js";

const DRIFTS = [["static", "static"], ["free", "drifting"]];
const WAIT = 200;

/** Fills the form with the controls of a query, and calls `change` with every change. */
export function fillControls(form, state, listed, change) {
  const { protocols } = listed;
  const known = protocols.find((each) => each.name === state.protocol) ?? protocols[0];
  const rebuild = (changes) => { change(changes); fillControls(form, state, listed, change); };
  const protocol = h("select", { id: "ask-protocol", onchange: (event) => rebuild({ protocol: event.target.value, set: {}, hardened: false }) },
    protocols.map((each) => h("option", { value: each.name, selected: each.name === state.protocol }, each.name)));
  const [plain, rare] = [known.settings.filter((each) => each.kind !== "text"), known.settings.filter((each) => each.kind === "text")];
  const name = form.contains(document.activeElement) ? document.activeElement.id : "";
  replace(form, h("h2", { class: "hidden" }, "Settings"),
    field("Protocol", protocol, known.summary), unavailable(listed.unavailable),
    h("div", { class: "grid" },
      makeNumber("parties", "Parties", state, change, { min: 2, max: 200, step: 1 }, "party"),
      makeNumber("rounds", "Rounds", state, change, { min: 1, max: 500, step: 1 }, "round")),
    makeSegments("Models", "drift", DRIFTS, state, change),
    makeDropoutSlider(state, change),
    h("div", { class: "grid own" }, plain.map((each) => makeSetting(each, state, change, rebuild))),
    rare.length ? h("details", { open: rare.some((each) => state.set[each.name]) }, h("summary", {}, "More settings"),
      h("div", { class: "grid" }, rare.map((each) => makeSetting(each, state, change, rebuild)))) : null,
    makeSwitch("ask-hardened", "Hardened", "audit the settings that a plan proposes against this coalition", state.hardened,
      (on) => rebuild({ hardened: on }), known.leaks_by_design),
    h("p", { class: "note", id: "hardened-settings" }),
    makeSwitch("ask-links", "Links in clear", "assume that messages are not sealed", state.links === "open", (on) => change({ links: on ? "open" : "" })));
  form.classList.toggle("is-hardened", state.hardened);
  if (name) document.getElementById(name)?.focus();
}

/** Shows the settings that are audited instead of those in the form. */
export function showHardened(form, options) {
  const note = form.querySelector("#hardened-settings");
  const settings = Object.entries(options ?? {}).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
  if (note) note.textContent = options ? `Now: ${settings.join(", ")}` : "";
}

function makeNumber(name, label, state, change, limits, term) {
  const control = h("input", { type: "number", id: `ask-${name}`, inputmode: "numeric", value: state[name], ...limits });
  onPause(control, () => control.value && change({ [name]: Number(control.value) }));
  return field(label, control, "", explainBeside(term));
}

/** Runs an action once the input has paused. */
function onPause(control, action) {
  let timer = 0;
  control.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(action, WAIT); });
}

function makeSegments(label, name, choices, state, change) {
  const buttons = choices.map(([value, text]) => h("button", { type: "button", "aria-pressed": String(state[name] === value), onclick: () => {
    buttons.forEach((each, i) => each.setAttribute("aria-pressed", String(choices[i][0] === value)));
    change({ [name]: value });
  } }, text));
  return h("div", { class: "field" }, h("div", { class: "labelled" }, h("span", { class: "label", id: `ask-${name}` }, label), explainBeside("static")),
    h("div", { class: "segments", role: "group", "aria-labelledby": `ask-${name}` }, buttons));
}

function makeDropoutSlider(state, change) {
  const shown = h("output", { for: "ask-dropout" }, `${Math.round(100 * state.dropout)} %`);
  const control = h("input", { type: "range", id: "ask-dropout", min: 0, max: 0.5, step: 0.05, value: state.dropout,
    oninput: () => { shown.textContent = `${Math.round(100 * control.value)} %`; } });
  onPause(control, () => change({ dropout: Number(control.value) }));
  return h("div", { class: "field" }, h("div", { class: "labelled" }, h("label", { for: "ask-dropout" }, "Dropouts ", shown), explainBeside("dropout")), control);
}

function makeSwitch(id, label, hint, on, change, disabled = false) {
  const control = h("input", { type: "checkbox", role: "switch", id, checked: on, disabled, "aria-describedby": `${id}-hint`,
    onchange: (event) => change(event.target.checked) });
  return h("div", { class: "switch" }, control, h("label", { for: id }, label, h("small", { id: `${id}-hint` }, hint)));
}

// --- settings of a protocol ----------------------------------------------------------------------------------------

function makeSetting(each, state, change, rebuild) {
  const put = (value) => change({ set: { ...state.set, [each.name]: String(value) } });
  const id = `set-${each.name}`;
  const [label, value] = [each.name.replaceAll("_", " "), state.set[each.name] ?? ""];
  if (each.kind === "switch") {
    const on = value === "" ? Boolean(each.default) : value === "true";
    return makeSwitch(id, label, "", on, put, state.hardened);
  }
  if (each.kind === "graph") return makeGraphSetting(each, id, label, value, state, put, rebuild);
  if (each.kind === "choice")
    return field(label, h("select", { id, disabled: state.hardened, onchange: (event) => put(event.target.value) },
      each.choices.map((name) => h("option", { value: name, selected: String(name) === (value || String(each.default)) }, name))));
  const number = each.kind === "number";
  const given = number && each.empty !== null ? each.empty || "default" : String(each.default ?? "");
  const control = h("input", { type: number && /^[\d.]*$/.test(value) ? "number" : "text", id, value: value || (each.empty === null ? given : ""),
    placeholder: number ? given : "default", step: each.whole ? 1 : "any", disabled: state.hardened });
  onPause(control, () => put(control.value));
  return field(label, control);
}

/** A family of graphs, with the numbers it takes; edges that were given in an address stay as they are. */
function makeGraphSetting(each, id, label, value, state, put, rebuild) {
  const table = parseTable(value);
  const kind = Array.isArray(table) ? "edges" : table?.kind ?? (value || "");
  const choices = ["", ...each.choices, ...(Array.isArray(table) ? ["edges"] : [])];
  const names = { "": "default", edges: "as given" };
  const select = h("select", { id, disabled: state.hardened, onchange: (event) => {
    const wanted = event.target.value;
    const needs = wanted === "regular" || wanted === "directed";
    rebuild({ set: { ...state.set, graph: needs ? JSON.stringify({ kind: wanted, degree: wanted === "regular" ? 4 : 2 }) : wanted } });
  } }, choices.map((name) => h("option", { value: name, selected: name === kind }, names[name] ?? name)));
  const number = (key, least, initial) => {
    const control = h("input", { type: "number", id: `${id}-${key}`, min: least, value: table[key] ?? initial, disabled: state.hardened });
    onPause(control, () => put(JSON.stringify({ ...parseTable(state.set.graph), [key]: Number(control.value) })));
    return field(key, control);
  };
  return [field(label, select), kind === "regular" || kind === "directed" ? number("degree", 1, 4) : null, kind === "regular" ? number("girth", 3, 3) : null];
}

function parseTable(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" ? value : null;
  } catch {
    return null;
  }
}
