// A new run: a form for what most people change, and the scenario itself, which is what counts.

import { complain, field, h, replace } from "./dom.js";
import { get, post } from "./events.js";
import { go } from "./main.js";

const FIRST = `title = "digits, ten hospitals"
rounds = 20
adversary = 1            # how many may collude
dropout = 0.05           # chance that a party misses a round

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

export function start(place) {
  document.title = "New run · Tacit";
  const text = h("textarea", { id: "toml", spellcheck: "false", autocapitalize: "off", rows: 24, value: FIRST, oninput: () => changed() });
  const gutter = h("div", { class: "gutter", "aria-hidden": "true" });
  const said = h("div", { class: "problems", id: "said", role: "status" });
  const button = h("button", { type: "submit", class: "main" }, "Start");
  text.setAttribute("aria-describedby", "said");
  text.addEventListener("scroll", () => { gutter.scrollTop = text.scrollTop; });
  const controls = form((path, value) => { text.value = put(text.value, path, value); changed(); });
  replace(place, h("h1", {}, "New run"),
    h("p", { class: "lead" }, "It runs on this machine and is written to the folder ", h("code", {}, "runs"), ". Settings that leak are refused before anything is sent."),
    h("form", { class: "scenario", novalidate: true, onsubmit: (event) => { event.preventDefault(); begin(); } },
      h("div", { class: "panel" }, h("h2", {}, "What most people change"), h("div", { class: "grid" }, controls.map((each) => each.element))),
      h("div", { class: "panel" }, h("h2", {}, h("label", { for: "toml" }, "The scenario")),
        h("div", { class: "editor" }, gutter, text), said, button)));
  let [timer, number, left] = [0, 0, false];
  get("/api/protocols").then(({ protocols }) => {
    const names = [...protocols.map((each) => each.name), "local", "centralized"];
    const select = controls.find((each) => each.path === "protocol.name").control;
    replace(select, names.map((name) => h("option", { value: name }, name)));
    changed(0);
  });

  function changed(wait = WAIT) {
    clearTimeout(timer);
    timer = setTimeout(check, wait);
    numbers([]);
  }

  async function check() {
    const mine = ++number;
    const told = await post("/api/check", text.value);
    if (left || mine !== number) return;
    shown(told.problems);
    if (told.scenario) controls.forEach((each) => each.fill(told.scenario));
  }

  async function begin() {
    button.disabled = true;
    const told = await post("/api/start", text.value);
    button.disabled = false;
    if (left) return;
    if (told.problems.length) { shown(told.problems); text.focus(); }
    else go("/");
  }

  function shown(problems) {
    replace(said, problems.map((each) => h("p", {}, each.replace(/^scenario\.toml(, |: )/, ""))));
    text.setAttribute("aria-invalid", String(problems.length > 0));
    numbers(problems.map((each) => Number(/line (\d+)/.exec(each)?.[1])).filter(Boolean));
    for (const { path, control } of controls) complain(control, about(path, problems));
  }

  function numbers(wrong) {
    replace(gutter, text.value.split("\n").map((_, i) => h("span", { class: wrong.includes(i + 1) ? "wrong" : null }, i + 1)));
  }
  numbers([]);
  return () => { left = true; clearTimeout(timer); };
}

/** Returns the problem that names a key, without where it is: that is where it is shown. */
function about(path, problems) {
  const [table, key] = path.includes(".") ? path.split(".") : ["", path];
  const found = problems.find((each) => new RegExp(`(^|[ :])${table ? `${table}\\.(${key}|\\w*${key})` : key}\\b`).test(each));
  return found?.replace(/^scenario\.toml(, line \d+)?: /, "");
}

function form(change) {
  const number = (path, label, hint, limits = {}) => entry(path, label, hint, h("input", { type: "number", inputmode: "decimal", ...limits }), change, Number);
  const choice = (path, label, options) => entry(path, label, "", h("select", {}, options.map((each) => h("option", { value: each }, each))), change);
  return [
    entry("title", "Title", "", h("input", { type: "text" }), change),
    choice("protocol.name", "Protocol", ["secagg"]),
    number("rounds", "Rounds", "", { min: 1 }),
    choice("data.name", "Data", DATA),
    number("data.parties", "Parties", "", { min: 2 }),
    number("adversary", "Colluders", "for the audit before the start", { min: 1 }),
    number("dropout", "Dropouts", "chance to miss a round", { min: 0, max: 1, step: 0.01 }),
    number("local.rate", "Learning rate", "", { step: "any" }),
    number("local.batch", "Batch", "", { min: 1 }),
    number("local.epochs", "Epochs a round", "", { min: 1 }),
  ];
}

function entry(path, label, hint, control, change, read = String) {
  control.id = `key-${path.replace(".", "-")}`;
  control.addEventListener("change", () => control.value !== "" && change(path, read(control.value)));
  const fill = (scenario) => {
    const value = path.split(".").reduce((table, key) => table?.[key], scenario);
    if (value != null && document.activeElement !== control) control.value = value;
  };
  return { path, control, fill, element: field(label, control, hint) };
}

/** Returns TOML with one key set, in the line that has it, or in a new one of its table; the rest stays as written. */
export function put(toml, path, value) {
  const [table, key] = path.includes(".") ? path.split(".") : ["", path];
  const said = `${key} = ${typeof value === "string" ? JSON.stringify(value) : value}`;
  const lines = toml.split("\n");
  const heads = lines.flatMap((line, i) => (/^\s*\[/.test(line) ? [i] : []));
  const from = table ? heads.find((i) => lines[i].trim() === `[${table}]`) ?? -1 : 0;
  if (table && from < 0) {
    // A table may also be given in one line, such as protocol = "secagg".
    const short = lines.findIndex((line) => new RegExp(`^\\s*${table}\\s*=`).test(line));
    if (short >= 0 && key === "name") return lines.with(short, `${table} = ${JSON.stringify(value)}`).join("\n");
    return `${toml.trimEnd()}\n\n[${table}]\n${said}\n`;
  }
  const to = heads.find((i) => i > from || (!table && i >= from)) ?? lines.length;
  for (let i = table ? from + 1 : 0; i < to; i += 1)
    if (new RegExp(`^\\s*${key}\\s*=`).test(lines[i])) return lines.with(i, said + (/\s+#.*$/.exec(lines[i])?.[0] ?? "")).join("\n");
  lines.splice(table ? from + 1 : Math.max(0, to - 1), 0, said);
  return lines.join("\n");
}
