// New run: a form for the common settings, beside the scenario itself, which is what runs.

import { field, h, replace, showProblem, unavailable } from "./dom.js";
import { get, post } from "./events.js";
import { explainBeside } from "./glossary.js";
import { go } from "./main.js";
import { setKey } from "./toml.js";

const FIRST = `title = "digits, ten hospitals"
rounds = 20
adversary = 1            # parties that may collude
dropout = 0.05           # probability that a party misses a round

[data]
name = "digits"
parties = 10
split = { kind = "dirichlet", alpha = 0.3 }

[model]
name = "softmax"

[local]
rate = 0.5
batch = 16
epochs = 1

[protocol]
name = "secagg"
`;

const DATA = ["digits", "mnist", "femnist", "cifar10", "shakespeare", "movielens", "boston"];
const WAIT = 250;
const NOT_EDITABLE = "The text has this key in a form that is not edited here. Change it in the text.";

export function start(root) {
  document.title = "New run · Tacit";
  const text = h("textarea", { id: "toml", spellcheck: "false", autocapitalize: "off", rows: 24, value: FIRST, oninput: () => scheduleCheck() });
  const gutter = h("div", { class: "gutter", "aria-hidden": "true" });
  const problemBox = h("div", { class: "problems", id: "scenario-problems", role: "status" });
  const button = h("button", { type: "submit", class: "main" }, "Start");
  const plugins = h("div", {});
  text.setAttribute("aria-describedby", "scenario-problems");
  text.addEventListener("scroll", () => { gutter.scrollTop = text.scrollTop; });
  const controls = makeControls((path, value) => { asked.set(path, value); text.value = setKey(text.value, path, value); scheduleCheck(0); });
  replace(root, h("h1", {}, "New run"),
    h("p", { class: "lead" }, "The run uses this machine and writes to the folder ", h("code", {}, "runs"), ". Settings that leak are refused before the first round."),
    h("form", { class: "scenario", novalidate: true, onsubmit: (event) => { event.preventDefault(); launch(); } },
      h("div", { class: "panel" }, h("h2", {}, "Common settings"), h("div", { class: "grid" }, controls.map((each) => each.element)), plugins),
      h("div", { class: "panel" }, h("h2", {}, h("label", { for: "toml" }, "The scenario"), " ", explainBeside("scenario")),
        h("div", { class: "editor" }, gutter, text), problemBox, button)));
  let [timer, number, left] = [0, 0, false];
  const asked = new Map();
  get("/api/protocols").then((listed) => {
    const names = [...listed.protocols.map((each) => each.name), "local", "centralized"];
    const select = controls.find((each) => each.path === "protocol.name").control;
    replace(select, names.map((name) => h("option", { value: name }, name)));
    replace(plugins, unavailable(listed.unavailable));
    scheduleCheck(0);
  });

  function scheduleCheck(wait = WAIT) {
    clearTimeout(timer);
    timer = setTimeout(check, wait);
    numberLines([]);
  }

  async function check() {
    const mine = ++number;
    const answer = await post("/api/check", text.value);
    if (left || mine !== number) return;
    showProblems(answer.problems);
    // The form follows the text, also while the text has problems, as long as it is TOML.
    const found = answer.scenario ?? answer.given ?? {};
    for (const each of controls) {
      each.fill(found, Boolean(answer.scenario));
      if (asked.has(each.path) && answer.scenario && readPath(found, each.path) !== asked.get(each.path)) showProblem(each.control, NOT_EDITABLE);
    }
    asked.clear();
  }

  async function launch() {
    button.disabled = true;
    const answer = await post("/api/start", text.value);
    button.disabled = false;
    if (left) return;
    if (answer.problems.length) { showProblems(answer.problems); text.focus(); }
    else go(`/run?${new URLSearchParams({ id: answer.id })}`);
  }

  function showProblems(problems) {
    replace(problemBox, problems.map((each) => h("p", {}, each.replace(/^scenario\.toml(, |: )/, ""))));
    text.setAttribute("aria-invalid", String(problems.length > 0));
    numberLines(problems.map((each) => Number(/line (\d+)/.exec(each)?.[1])).filter(Boolean));
    for (const { path, control } of controls) showProblem(control, findProblem(path, problems));
  }

  function numberLines(wrong) {
    replace(gutter, text.value.split("\n").map((_, i) => h("span", { class: wrong.includes(i + 1) ? "wrong" : null }, i + 1)));
  }
  numberLines([]);
  return () => { left = true; clearTimeout(timer); };
}

/** Returns the problem of one key, without its position: it is shown beside the key. */
function findProblem(path, problems) {
  const [table, key] = path.includes(".") ? path.split(".") : ["", path];
  const found = problems.find((each) => new RegExp(`(^|[ :])${table ? `${table}\\.(${key}|\\w*${key})` : key}\\b`).test(each));
  return found?.replace(/^scenario\.toml(, line \d+)?: /, "");
}

function makeControls(change) {
  const number = (path, label, hint, limits = {}, term = "") => makeEntry(path, label, hint, h("input", { type: "number", inputmode: "decimal", ...limits }), change, Number, term);
  const choice = (path, label, options) => makeEntry(path, label, "", h("select", {}, options.map((each) => h("option", { value: each }, each))), change);
  return [
    makeEntry("title", "Title", "", h("input", { type: "text" }), change),
    choice("protocol.name", "Protocol", ["secagg"]),
    number("rounds", "Rounds", "", { min: 1 }, "round"),
    choice("data.name", "Data", DATA),
    number("data.parties", "Parties", "", { min: 2 }, "party"),
    number("adversary", "Colluders", "assumed by the audit", { min: 1 }, "colluders"),
    number("dropout", "Dropouts", "probability to miss a round", { min: 0, max: 1, step: 0.01 }, "dropout"),
    number("local.rate", "Learning rate", "", { step: "any" }, "learning rate"),
    number("local.batch", "Batch", "", { min: 1 }, "batch"),
    number("local.epochs", "Epochs", "", { min: 1 }, "epoch"),
  ];
}

function makeEntry(path, label, hint, control, change, read = String, term = "") {
  control.id = `key-${path.replace(".", "-")}`;
  control.addEventListener("change", () => control.value !== "" && change(path, read(control.value)));
  const fill = (scenario, complete) => {
    const value = readPath(scenario, path);
    if (document.activeElement === control) return;
    if (control.tagName === "SELECT" && value != null && ![...control.options].some((each) => each.value === String(value)))
      control.append(h("option", { value }, value));
    if (value != null || complete) control.value = value ?? "";
    if (path === "data.name") {
      const folder = scenario.data?.folder;
      control.disabled = Boolean(folder);
      if (folder) showProblem(control, `The text uses the folder ${folder} instead.`);
    }
  };
  return { path, control, fill, element: field(label, control, hint, term ? explainBeside(term) : null) };
}

/** Returns the value of a key; a table that is written as a bare name has that name. */
function readPath(scenario, path) {
  const [table, key] = path.includes(".") ? path.split(".") : ["", path];
  if (!table) return scenario[key];
  return typeof scenario[table] === "string" && key === "name" ? scenario[table] : scenario[table]?.[key];
}
