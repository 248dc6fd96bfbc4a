// What to run: proposals for a consortium, with what they cost and what the audit says of each.

import { bytes, command, counted, field, h, problems, replace } from "./dom.js";
import { listen } from "./events.js";

const ASKED = [
  ["parties", "Parties", 9, { min: 3, max: 500, step: 1 }, "who want to average"],
  ["colluders", "Colluders", 1, { min: 1, max: 100, step: 1 }, "any so many, or the server and one fewer"],
  ["rounds", "Rounds", 10, { min: 1, max: 10000, step: 1 }, "how often they average"],
  ["dropout", "Dropouts", 0.05, { min: 0, max: 1, step: 0.01 }, "chance that a party misses a round"],
  ["entries", "Model size", 100000, { min: 1, max: 1000000000, step: 1 }, "parameters"],
];

export function plan(place, query) {
  document.title = "Plan · Tacit";
  const controls = ASKED.map(([name, , standard, limits]) =>
    h("input", { type: "number", name, id: `plan-${name}`, inputmode: "decimal", value: query.get(name) ?? standard, ...limits }));
  const form = h("form", { class: "asking", novalidate: true, onsubmit: (event) => { event.preventDefault(); ask(); } },
    controls.map((control, i) => field(ASKED[i][1], control, ASKED[i][4])),
    h("button", { class: "main", type: "submit" }, "Propose"));
  const found = h("div", { class: "answer", "aria-live": "polite" });
  replace(place, h("h1", {}, "Plan"),
    h("p", { class: "lead" }, "Say who averages, and whom to fear. Every protocol that may do is costed and audited."), form, found);
  let stop = () => {};

  function ask() {
    const asked = new URLSearchParams(controls.map((control) => [control.name, control.value]));
    history.replaceState(null, "", `/plan?${asked}`);
    stop();
    const bar = h("progress", { max: 1, "aria-label": "How far the plan is" });
    const doing = h("p", { class: "muted" }, "Starting …");
    replace(found, h("div", { class: "working" }, bar, doing));
    stop = listen(`/api/plan?${asked}`, {
      queued: () => { doing.textContent = "Waiting for other questions …"; },
      progress: (told) => { bar.value = told.done; doing.textContent = `Auditing ${told.doing}`; },
      plan: (told) => replace(found, shown(told)),
      problem: (told) => replace(found, problems(told.problems)),
    }, ["plan", "problem"]);
  }
  if (query.has("parties")) ask();
  return () => stop();
}

function shown(told) {
  const cheapest = Math.min(...told.proposals.map((each) => each.bytes_per_party));
  const noise = `For ε = ${told.epsilon} at δ = ${told.delta} over all rounds a party would add noise of the σ on each card, `
    + "as a multiple of how far one user can move its vector.";
  return [h("div", { class: "cards" }, told.proposals.map((each) => card(each, told, cheapest))), h("p", { class: "muted" }, noise)];
}

function card(each, told, cheapest) {
  const kind = each.holds ? "good" : each.fine ? "fair" : "bad";
  const times = each.bytes_per_party / cheapest;
  const view = new URLSearchParams([["protocol", each.protocol], ["parties", Math.min(told.parties, 200)],
    ["rounds", Math.min(told.rounds, 20)], ["dropout", each.looked_dropout], ...each.settings.map((set) => ["set", set])]);
  return h("article", { class: `card proposal ${kind}` },
    h("h2", {}, each.protocol), h("p", { class: "muted" }, each.why),
    h("p", { class: "verdict" }, h("i", { class: "sign", "aria-hidden": "true" }), each.verdict),
    h("p", { class: "looked" }, each.looked === "not audited" ? "Not audited" : `Looked at ${each.looked}`,
      each.argument ? `; the rest by argument (${each.argument})` : "", each.spared ? `; ${each.spared}` : "", "."),
    h("dl", { class: "facts" },
      fact("A party, a round", bytes(each.bytes_per_party), times > 1.05 ? `${times.toFixed(1)} times the least` : "the least"),
      fact("Smallest group", String(each.smallest_group), each.leaking ? `${counted(each.leaking, "coalition learns", "coalitions learn")} somebody’s model` : "if models stand still"),
      fact("Noise, σ", each.sigma.toPrecision(3), `by the noise of ${each.company}`)),
    h("p", {}, h("a", { href: `/adversary?${view}` }, `Look at ${each.protocol} as an adversary`)),
    command(each.command, `Copy the command that audits ${each.protocol}`));
}

const fact = (name, value, more) => h("div", {}, h("dt", {}, name), h("dd", {}, value, more ? h("small", {}, more) : null));
