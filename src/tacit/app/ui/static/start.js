// New run: a form for the common settings, beside the scenario itself, which is what runs.

import { field, h, replace, showProblem, unavailable } from "./dom.js";
import { get, post } from "./events.js";
import { go } from "./main.js";

const FIRST = `title = "digits, ten hospitals"
rounds = 20
adversary = 1            # how many may collude
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

export function start(root) {
  document.title = "New run · Tacit";
  const text = h("textarea", { id: "toml", spellcheck: "false", autocapitalize: "off", rows: 24, value: FIRST, oninput: () => scheduleCheck() });
  const gutter = h("div", { class: "gutter", "aria-hidden": "true" });
  const problemBox = h("div", { class: "problems", id: "scenario-problems", role: "status" });
  const button = h("button", { type: "submit", class: "main" }, "Start");
  const plugins = h("div", {});
  text.setAttribute("aria-describedby", "scenario-problems");
  text.addEventListener("scroll", () => { gutter.scrollTop = text.scrollTop; });
  const controls = makeControls((path, value) => { text.value = setKey(text.value, path, value); scheduleCheck(); });
  replace(root, h("h1", {}, "New run"),
    h("p", { class: "lead" }, "It runs on this machine and is written to the folder ", h("code", {}, "runs"), ". Settings that leak are refused before anything is sent."),
    h("form", { class: "scenario", novalidate: true, onsubmit: (event) => { event.preventDefault(); launch(); } },
      h("div", { class: "panel" }, h("h2", {}, "What most people change"), h("div", { class: "grid" }, controls.map((each) => each.element)), plugins),
      h("div", { class: "panel" }, h("h2", {}, h("label", { for: "toml" }, "The scenario")),
        h("div", { class: "editor" }, gutter, text), problemBox, button)));
  let [timer, number, left] = [0, 0, false];
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
    if (answer.scenario) controls.forEach((each) => each.fill(answer.scenario));
  }

  async function launch() {
    button.disabled = true;
    const answer = await post("/api/start", text.value);
    button.disabled = false;
    if (left) return;
    if (answer.problems.length) { showProblems(answer.problems); text.focus(); }
    else go("/");
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
  const number = (path, label, hint, limits = {}) => makeEntry(path, label, hint, h("input", { type: "number", inputmode: "decimal", ...limits }), change, Number);
  const choice = (path, label, options) => makeEntry(path, label, "", h("select", {}, options.map((each) => h("option", { value: each }, each))), change);
  return [
    makeEntry("title", "Title", "", h("input", { type: "text" }), change),
    choice("protocol.name", "Protocol", ["secagg"]),
    number("rounds", "Rounds", "", { min: 1 }),
    choice("data.name", "Data", DATA),
    number("data.parties", "Parties", "", { min: 2 }),
    number("adversary", "Colluders", "for the audit before the start", { min: 1 }),
    number("dropout", "Dropouts", "probability to miss a round", { min: 0, max: 1, step: 0.01 }),
    number("local.rate", "Learning rate", "", { step: "any" }),
    number("local.batch", "Batch", "", { min: 1 }),
    number("local.epochs", "Epochs a round", "", { min: 1 }),
  ];
}

function makeEntry(path, label, hint, control, change, read = String) {
  control.id = `key-${path.replace(".", "-")}`;
  control.addEventListener("change", () => control.value !== "" && change(path, read(control.value)));
  const fill = (scenario) => {
    const value = path.split(".").reduce((table, key) => table?.[key], scenario);
    if (value != null && document.activeElement !== control) control.value = value;
  };
  return { path, control, fill, element: field(label, control, hint) };
}

/** Returns TOML with one key set, in its own line or in a new one of its table; everything else stays as written. */
export function setKey(toml, path, value) {
  const [table, key] = path.includes(".") ? path.split(".") : ["", path];
  const line = `${key} = ${typeof value === "string" ? JSON.stringify(value) : value}`;
  const lines = toml.split("\n");
  const heads = lines.flatMap((each, i) => (/^\s*\[/.test(each) ? [i] : []));
  const from = table ? heads.find((i) => lines[i].trim() === `[${table}]`) ?? -1 : 0;
  if (table && from < 0) {
    // A table may also be given in one line, such as protocol = "secagg".
    const short = lines.findIndex((each) => new RegExp(`^\\s*${table}\\s*=`).test(each));
    if (short >= 0 && key === "name") return lines.with(short, `${table} = ${JSON.stringify(value)}`).join("\n");
    return `${toml.trimEnd()}\n\n[${table}]\n${line}\n`;
  }
  const to = heads.find((i) => i > from || (!table && i >= from)) ?? lines.length;
  for (let i = table ? from + 1 : 0; i < to; i += 1)
    if (new RegExp(`^\\s*${key}\\s*=`).test(lines[i])) return lines.with(i, line + (/\s+#.*$/.exec(lines[i])?.[0] ?? "")).join("\n");
  lines.splice(table ? from + 1 : Math.max(0, to - 1), 0, line);
  return lines.join("\n");
}
