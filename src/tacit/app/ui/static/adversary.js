// Adversary view: choose a coalition, and see whose models it can recover.
//
// The address is the state: every change goes into it, and the same query goes to the server.

import { command, copyText, field, h, joinNames, problems, replace, s } from "./dom.js";
import { explain } from "./glossary.js";
import { fillControls, showHardened } from "./settings.js";
import { drawGraph } from "./graph.js";
import { get, listen } from "./events.js";

const EXAMPLES = [
  ["CESAR, two receivers", "protocol=cesar&parties=6&set=masking=2&set=graph=[[4,0],[4,1],[4,2],[5,0],[5,1],[5,2],[5,3],[3,0],[3,1],[3,2],[0,1],[0,2]]&coalition=p4,p5"],
  ["ADMM, nine peers", "protocol=admm&parties=9&set=group_size=3&set=iterations=5&coalition=p0"],
  ["Secure sums, dropouts", "protocol=secagg&parties=6&rounds=3&dropout=0.2&coalition=server"],
  ["Push-sum, a neighbour", "protocol=pushsum&parties=8&set=graph=exponential&coalition=p0"],
];
const PATIENCE = 120;
const MOST_LISTED = 4;

export function adversary(root, query) {
  document.title = "Adversary · Tacit";
  const state = readQuery(query);
  const [stage, answerPanel, side, rounds] = [h("div", { class: "stage" }), h("section", { class: "answer", "aria-live": "polite" }), h("form", { class: "panel controls" }), h("div", {})];
  side.addEventListener("submit", (event) => event.preventDefault());
  side.setAttribute("aria-label", "Query");
  const chips = h("div", { class: "chips" });
  const examples = h("div", { class: "examples", role: "group", "aria-label": "Examples" }, EXAMPLES.map(([name, address]) =>
    h("button", { type: "button", class: "quiet", onclick: () => begin(readQuery(new URLSearchParams(address))) }, name)));
  replace(root, h("h1", {}, "Adversary"),
    h("p", { class: "lead" }, "Click the parties that collude: they form a ", explain("coalition"), ". Tacit runs the protocol’s code on symbols and computes whose vectors they can recover."),
    examples,
    h("div", { class: "adversary" }, side, h("section", { class: "panel picture", "aria-label": "Parties" }, chips, stage, rounds), answerPanel));
  const answer = makeAnswer(answerPanel);
  let [stop, graph, listed, roles, busy] = [() => {}, null, null, {}, 0];

  get("/api/protocols").then((found) => { listed = found; begin(state); });

  function begin(next) {
    Object.assign(state, next);
    fillControls(side, state, listed, (changes) => { Object.assign(state, changes); ask(); });
    ask();
  }

  function toggle(party) {
    state.coalition = state.coalition.includes(party) ? state.coalition.filter((each) => each !== party) : [...state.coalition, party];
    ask();
  }

  function ask() {
    stop();
    const present = new Set([...Array.from({ length: state.parties }, (_, i) => `p${i}`), "server", "onlooker"]);
    const server = listed.protocols.find((each) => each.name === state.protocol)?.server;
    state.coalition = state.coalition.filter((party) => present.has(party) && (party !== "server" || server));
    const query_ = writeQuery(state);
    history.replaceState(null, "", `/adversary?${query_}`);
    roles = Object.fromEntries(state.coalition.map((party) => [party, "member"]));
    showMembers();
    graph?.show({ roles });
    performance.clearMarks("asked");
    performance.mark("asked");
    clearTimeout(busy);
    busy = setTimeout(() => answer.wait("Running the protocol on symbols …"), PATIENCE);
    stop = listen(`/api/ask?${query_}`, {
      queued: () => { clearTimeout(busy); answer.wait("Waiting for other queries to finish …"); },
      command: ({ command: text }) => answer.asked(text),
      graph: (event) => draw(event),
      rounds: ({ summed }) => {
        replace(rounds, drawAttendance(graph.parties, summed));
        if (!state.coalition.length) { clearTimeout(busy); answer.idle(); }
      },
      verdict: (event) => {
        clearTimeout(busy);
        markVictims(event.victims);
        answer.verdict(event, state);
        performance.measure("answer", "asked");
      },
      recipes: (event) => answer.recipes(event.recipes),
      proof: (event) => answer.proof(event),
      late: ({ seconds }) => answer.note(`The recipes take longer than ${seconds} s. The command below prints them.`),
      unproved: ({ why }) => answer.note(why),
      unsure: ({ why }) => { clearTimeout(busy); answer.unsure(why); },
      problem: (event) => { clearTimeout(busy); answer.problem(event.problems); },
      done: ({ interrupted }) => { clearTimeout(busy); answer.done(interrupted); },
    }, ["done", "unsure", "problem"]);
  }

  function draw(event) {
    const same = JSON.stringify([event.parties, event.server, event.picture]);
    if (graph?.same !== same) {
      const made = drawGraph({ parties: event.parties, server: event.server, picture: event.picture, toggle, eavesdropper: true, names: { onlooker: "eavesdropper" },
        label: "Parties. Press one to add it to the coalition or to remove it" });
      graph = { ...made, same, parties: event.parties };
      const focus = document.activeElement?.dataset?.party;
      replace(stage, made.element, makePhases(event.picture, made, () => roles));
      if (focus) stage.querySelector(`[data-party="${CSS.escape(focus)}"]`)?.focus();
    }
    graph.show({ roles });
    showHardened(side, event.options);
  }

  function markVictims(victims) {
    const when = Object.entries(victims);
    roles = { ...Object.fromEntries(when.map(([party]) => [party, "exposed"])), ...Object.fromEntries(state.coalition.map((party) => [party, "member"])) };
    const words = state.rounds > 1 ? Object.fromEntries(when.map(([party, round]) => [party, `round ${round}`])) : {};
    graph.show({ roles, captions: words });
  }

  function showMembers() {
    replace(chips, h("span", { class: "muted" }, state.coalition.length ? "Coalition" : "Nobody colludes yet"), state.coalition.map((party) =>
      h("button", { type: "button", class: "chip", "aria-label": `Remove ${party} from the coalition`, onclick: () => toggle(party) }, party, " ×")));
  }
  return () => { stop(); clearTimeout(busy); };
}

// --- the address ---------------------------------------------------------------------------------------------------

function readQuery(query) {
  return {
    protocol: query.get("protocol") ?? "secagg",
    parties: Number(query.get("parties") ?? 9),
    rounds: Number(query.get("rounds") ?? 1),
    drift: query.get("drift") ?? "static",
    dropout: Number(query.get("dropout") ?? 0),
    links: query.get("links") ?? "",
    hardened: query.get("hardened") === "yes",
    set: Object.fromEntries(query.getAll("set").map((each) => [each.split("=", 1)[0], each.slice(each.indexOf("=") + 1)])),
    coalition: (query.get("coalition") ?? "").split(",").filter(Boolean),
  };
}

function writeQuery(state) {
  const found = new URLSearchParams({ protocol: state.protocol, parties: state.parties, rounds: state.rounds });
  if (state.drift !== "static") found.set("drift", state.drift);
  if (state.dropout) found.set("dropout", state.dropout);
  if (state.links) found.set("links", state.links);
  if (state.hardened) found.set("hardened", "yes");
  for (const [name, value] of Object.entries(state.set)) if (value !== "") found.append("set", `${name}=${value}`);
  if (state.coalition.length) found.set("coalition", state.coalition.join(","));
  return found;
}

// --- the answer ----------------------------------------------------------------------------------------------------

/** Shows an answer part by part: a verdict at once, then the recipes, then their proof. */
function makeAnswer(root) {
  const [headline, claims, list, remarks, others, how, foot] = ["h2", "div", "div", "div", "div", "div", "div"].map((tag) => h(tag));
  headline.className = "headline";
  const link = h("button", { type: "button", class: "quiet", onclick: () => copyText(location.href, link) }, "Copy a link to this view");
  replace(root, headline, claims, list, remarks, how, others, foot);
  const say = (kind, text) => { headline.className = `headline ${kind}`; headline.textContent = text; };
  const clear = () => [list, remarks, claims, others, foot].forEach((each) => replace(each));
  let [victims, words] = [{}, ""];
  return {
    asked: (text) => replace(how, h("h3", {}, "The same on the command line"), command(text), link),
    idle: () => { say("", "Choose who colludes."); clear(); replace(list, h("p", { class: "muted" }, "A coalition can have parties, the server if there is one, and an ", explain("eavesdropper"), " on all links.")); },
    wait: (text) => say("waiting", text),
    verdict: (event, state) => {
      [victims, words] = [event.victims, event.words];
      const names = Object.keys(victims);
      clear();
      say(names.length ? "bad" : "waiting", words); // another seed or the worst case may still expose somebody
      replace(list, names.slice(0, MOST_LISTED).map((name) => makeVictim(name, victims[name], state.rounds)),
        names.length > MOST_LISTED ? h("p", { class: "muted" }, `and ${names.length - MOST_LISTED} more: ${joinNames(names.slice(MOST_LISTED), 20)}`) : null);
      const [about, other] = [event.claims.filter((each) => each.about), event.claims.filter((each) => !each.about)];
      replace(claims, about.length ? [h("h3", {}, "Claims of the paper"), about.map(makeClaim)] : h("p", { class: "muted" }, "The papers make no claim for this setting."));
      replace(others, other.length ? h("details", {}, h("summary", {}, "Claims of the papers for other settings"), other.map(makeClaim)) : null);
    },
    recipes: (recipes) => {
      for (const [name, steps] of Object.entries(recipes)) {
        const where = root.querySelector(`[data-victim="${CSS.escape(name)}"] .recipe`);
        where?.classList.remove("pending");
        if (where) replace(where, makeRecipe(name, steps, where === root.querySelector(".recipe")));
      }
    },
    proof: (event) => {
      for (const [name, off] of Object.entries(event.errors)) {
        const where = root.querySelector(`[data-victim="${CSS.escape(name)}"] .proof`);
        if (where) where.textContent = describeReplay(off, event.proof_errors[name]);
      }
      if (!Object.keys(victims).length) say(event.exposed ? "bad" : "good", event.exposed ? event.verdict : words);
      replace(remarks, makeRemarks(event, victims));
    },
    note: (text) => remarks.append(h("p", { class: "note" }, text)),
    unsure: (why) => { say("fair", "The audit cannot decide this."); clear(); replace(list, h("p", {}, why)); },
    problem: (list_) => { say("fair", "This query is not possible."); clear(); replace(list, problems(list_)); },
    done: (interrupted) => {
      for (const where of root.querySelectorAll(".recipe.pending")) replace(where, h("p", { class: "muted" }, "The steps were not computed. The command below prints them."));
      if (interrupted) replace(foot, h("p", { class: "muted" }, "A newer query stopped the search for recipes."));
    },
  };
}

/** Returns how far a replayed recipe is off, with the noise of the settings and, if there is any, without. */
function describeReplay(off, exact) {
  if (!(exact <= 1e-3)) return "Replayed on a real transcript, the recipe did not give the vector.";
  const noise = off === exact ? "" : ` The vector includes its noise. Without noise it is off by ${exact.toPrecision(1)}.`;
  return `Replayed on a real transcript: off by at most ${off.toPrecision(1)}.${noise}`;
}

function makeVictim(name, round, rounds) {
  return h("article", { class: "victim", "data-victim": name },
    h("h3", {}, h("i", { class: "sign", "aria-hidden": "true" }), name, h("small", {}, rounds > 1 ? `exposed from round ${round}` : "exposed")),
    h("div", { class: "recipe pending" }, h("p", { class: "muted" }, "Computing the steps …")), h("p", { class: "proof muted" }));
}

/** Returns the steps that recover a model; long ones are folded, except the first. */
function makeRecipe(name, steps, first) {
  const lines = [h("ol", {}, steps.lines.map((line) => h("li", {}, line))), steps.more ? h("p", { class: "muted" }, `and ${steps.more} more terms`) : null];
  const uses = `How to compute ${name}’s vector, from ${steps.uses}:`;
  return steps.lines.length > 3 ? h("details", { open: first }, h("summary", {}, uses), lines) : [h("p", {}, uses), lines];
}

function makeClaim(each) {
  const kind = each.verdict_code === "refuted" ? "bad" : each.verdict_code === "holds" ? "good" : "";
  return h("div", { class: `claim ${kind}` }, h("p", {}, `“${each.statement}”`),
    h("p", { class: "muted" }, each.where, each.about ? ` (${each.about})` : "",
      kind ? h("strong", {}, h("i", { class: "sign", "aria-hidden": "true" }), each.verdict) : null));
}

const capital = (text) => `${text[0].toUpperCase()}${text.slice(1)}`;

/** Returns the remarks beside the verdict: other seeds, parts of models, assumptions and coverage. */
function makeRemarks(event, victims) {
  const parts = Object.entries(event.fractions);
  return [
    event.luck ? h("p", { class: "note" }, Object.keys(victims).length ? `With another seed: ${event.luck}` : "With the seed that is shown, nobody is exposed.") : null,
    event.nearly.length ? h("p", { class: "note" }, `Recovered almost exactly: ${joinNames(event.nearly)}.`) : null,
    event.sparse ? h("p", { class: "note" }, event.sparse) : parts.length ? h("p", { class: "note" }, `Exposed entries: ${joinNames(parts.map(([name, part]) => `${name} ${Math.round(100 * part)} %`))}.`) : null,
    event.notes.map((note) => h("p", { class: "note" }, `${capital(note)}.`)),
    h("details", {}, h("summary", {}, "Assumptions, and what this does not cover"),
      h("h4", {}, "Assumptions"), h("ul", {}, event.assumed.map((each) => h("li", {}, each))),
      h("h4", {}, "Not covered"), h("ul", {}, event.not_covered.map((each) => h("li", {}, each)))),
    h("p", { class: "muted" }, explain("coverage", "Coverage"), `: ${event.looked_at}.`)];
}

// --- rounds and iterations -----------------------------------------------------------------------------------------

/** Returns buttons for the iterations of a round, where groups change within it. */
function makePhases(picture, graph, roles) {
  if (picture.each !== "iteration" || picture.phases.length < 2) return null;
  const buttons = picture.phases.map((_, i) => h("button", { type: "button", "aria-pressed": String(i === 0), onclick: () => {
    buttons.forEach((each, k) => each.setAttribute("aria-pressed", String(k === i)));
    graph.show({ phase: i, roles: roles() });
  } }, i + 1));
  return h("div", { class: "segments", role: "group", "aria-label": "Iteration" }, h("span", {}, explain("iteration", "Iteration")), buttons);
}

/** Draws who was averaged in which round, if there were dropouts: differences between rounds are what leaks. */
function drawAttendance(parties, summed) {
  if (summed.every((round) => round.length === parties.length) || parties.length > 60) return null;
  const [cell, most] = [14, 40];
  const shown = summed.slice(0, most);
  const without = (round) => (round.length ? `without ${joinNames(parties.filter((party) => !round.includes(party)), 4) || "none"}` : "no average: too few parties");
  const said = shown.map((round, i) => `round ${i + 1}: ${without(round)}`);
  const kind = (round, party) => (!round.length ? "none" : round.includes(party) ? "there" : "gone");
  const marks = shown.flatMap((round, i) => parties.map((party, k) => s("rect", { class: kind(round, party),
    x: k * cell + 1.5, y: i * cell + 1.5, width: cell - 3, height: cell - 3, rx: 2.5 })));
  return h("figure", { class: "attendance" },
    h("figcaption", {}, "Parties in the average, one row per round", summed.length > most ? ` (the first ${most})` : ""),
    s("svg", { viewBox: `0 0 ${parties.length * cell} ${shown.length * cell}`, width: parties.length * cell, role: "img", "aria-label": said.join("; ") }, marks));
}
