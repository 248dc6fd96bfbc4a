// Plan: proposals for a consortium, with their cost and the verdict of the audit.

import { command, field, formatBytes, formatCount, h, problems, replace, unavailable } from "./dom.js";
import { explain, explainBeside } from "./glossary.js";
import { get, listen } from "./events.js";

const FIELDS = [
  ["parties", "Parties", 9, { min: 3, max: 500, step: 1 }, "that average together", "party"],
  ["colluders", "Colluders", 1, { min: 1, max: 100, step: 1 }, "that many parties, or the server and one fewer", "colluders"],
  ["rounds", "Rounds", 10, { min: 1, max: 10000, step: 1 }, "how often they average", "round"],
  ["dropout", "Dropouts", 0.05, { min: 0, max: 1, step: 0.01 }, "probability that a party misses a round", "dropout"],
  ["entries", "Model size", 100000, { min: 1, max: 1000000000, step: 1 }, "number of parameters"],
];

export function plan(root, query) {
  document.title = "Plan · Tacit";
  const controls = FIELDS.map(([name, , initial, limits]) =>
    h("input", { type: "number", name, id: `plan-${name}`, inputmode: "decimal", value: query.get(name) ?? initial, ...limits }));
  const form = h("form", { class: "asking", novalidate: true, onsubmit: (event) => { event.preventDefault(); ask(); } },
    controls.map((control, i) => field(FIELDS[i][1], control, FIELDS[i][4], i < 4 ? explainBeside(FIELDS[i][5]) : null)),
    h("button", { class: "main", type: "submit" }, "Propose"));
  const [found, plugins] = [h("div", { class: "answer", "aria-live": "polite" }), h("div", {})];
  replace(root, h("h1", {}, "Plan"),
    h("p", { class: "lead" }, "Enter how many parties average and how many may collude. Tacit audits every suitable protocol and computes its cost."), form, plugins, found);
  get("/api/protocols").then((listed) => replace(plugins, unavailable(listed.unavailable)));
  let stop = () => {};

  function ask() {
    const wanted = new URLSearchParams(controls.map((control) => [control.name, control.value]));
    history.replaceState(null, "", `/plan?${wanted}`);
    stop();
    const bar = h("progress", { max: 1, "aria-label": "Progress of the plan" });
    const doing = h("p", { class: "muted" }, "Starting …");
    replace(found, h("div", { class: "working" }, bar, doing));
    stop = listen(`/api/plan?${wanted}`, {
      queued: () => { doing.textContent = "Waiting for other queries to finish …"; },
      progress: (event) => { bar.value = event.done; doing.textContent = `Auditing ${event.doing}`; },
      plan: (event) => replace(found, showProposals(event)),
      problem: (event) => replace(found, problems(event.problems)),
    }, ["plan", "problem"]);
  }
  if (query.has("parties")) ask();
  return () => stop();
}

function showProposals(plan_) {
  const cheapest = Math.min(...plan_.proposals.map((each) => each.bytes_per_party));
  const noise = `For ε = ${plan_.epsilon} at δ = ${plan_.delta} over all rounds, each party adds noise of the σ on the card. `
    + "It is the setting noise with norm=1. For another norm, multiply it by that norm.";
  return [h("div", { class: "cards" }, plan_.proposals.map((each) => makeCard(each, plan_, cheapest))), h("p", { class: "muted" }, noise)];
}

function makeCard(each, plan_, cheapest) {
  const kind = each.holds ? "good" : each.fine ? "fair" : "bad";
  const times = each.bytes_per_party / cheapest;
  const view = new URLSearchParams([["protocol", each.protocol], ["parties", Math.min(plan_.parties, 200)],
    ["rounds", Math.min(plan_.rounds, 20)], ["dropout", each.looked_dropout], ...each.settings.map((set) => ["set", set])]);
  return h("article", { class: `card proposal ${kind}` },
    h("h2", {}, each.protocol), h("p", { class: "muted" }, each.why),
    h("p", { class: "verdict" }, h("i", { class: "sign", "aria-hidden": "true" }), each.verdict),
    h("p", { class: "looked" }, each.looked === "not audited" ? "Not audited" : `Analysed: ${each.looked}`,
      each.argument ? `; the rest by argument (${each.argument})` : "", each.spared ? `; ${each.spared}` : "", "."),
    h("dl", { class: "facts" },
      makeFact("Bytes per party and round", formatBytes(each.bytes_per_party), times > 1.05 ? `${times.toFixed(1)} × the cheapest` : "the cheapest"),
      makeFact(explain("anonymity set", "Anonymity set"), String(each.smallest_group), each.leaking ? `${formatCount(each.leaking, "coalition recovers", "coalitions recover")} a vector` : "with static models"),
      makeFact(explain("sigma", "Noise σ"), each.noise.toPrecision(3), `counting the noise of ${each.company}`)),
    h("p", {}, h("a", { href: `/adversary?${view}` }, `See what coalitions learn with ${each.protocol}`)),
    command(each.command, `Copy the command that audits ${each.protocol}`));
}

const makeFact = (name, value, more) => h("div", {}, h("dt", {}, name), h("dd", {}, value, more ? h("small", {}, more) : null));
