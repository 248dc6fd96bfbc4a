// All runs of the folder, live and finished, and the parties of a federation that keep their rounds in it.

import { ago, bytes, command, counted, h, listed, replace, score } from "./dom.js";
import { spark } from "./chart.js";
import { listen } from "./events.js";
import { go } from "./main.js";

const EXAMPLE = "/adversary?protocol=admm&parties=9&set=group_size%3D3&set=iterations%3D5&coalition=p0";

export function runs(place) {
  document.title = "Runs · Tacit";
  const chosen = new Set();
  const [where, list, health] = [h("p", { class: "muted" }), h("div", { class: "list", "aria-busy": "true" }), h("section", {})];
  const button = h("button", { type: "button", class: "main", disabled: true, onclick: () => compared(chosen) }, "Compare");
  replace(place, h("div", { class: "head" }, h("div", {}, h("h1", {}, "Runs"), where), button), list, health);

  function choose(id, wanted) {
    wanted ? chosen.add(id) : chosen.delete(id);
    button.disabled = chosen.size < 2;
    button.textContent = chosen.size > 1 ? `Compare ${chosen.size}` : "Compare";
  }
  return listen("/api/watch", {
    runs: (told) => {
      replace(where, told.folder, told.unlisted ? h("span", {}, h("br"), `${told.unlisted}.`) : null);
      list.removeAttribute("aria-busy");
      const waiting = told.starting.filter((id) => !told.runs.some((run) => run.id === id));
      const failed = Object.entries(told.failed);
      const none = !told.runs.length && !waiting.length && !failed.length;
      button.hidden = none;
      // Whoever is about to tick a box keeps it under the finger: rows are replaced, and the focus stays.
      const focus = document.activeElement?.id;
      replace(list, failed.map(failure), waiting.map(starting),
        none ? empty() : told.runs.map((run) => row(run, chosen.has(run.id), choose)));
      if (focus) document.getElementById(focus)?.focus();
      replace(health, told.parties.length ? [h("h2", {}, "Parties"), h("div", { class: "cards" }, told.parties.map(party))] : []);
    },
    problem: ({ problems }) => replace(list, h("p", { class: "problems", role: "alert" }, problems)),
  });
}

function compared(chosen) {
  go(`/compare?${new URLSearchParams([...chosen].map((id) => ["run", id]))}`);
}

function row(run, ticked, choose) {
  const link = h("a", { href: `/run?${new URLSearchParams({ id: run.id })}` }, run.title);
  if (run.state === "unreadable")
    return h("article", { class: "row" }, h("span"), h("div", { class: "what" }, run.title, h("small", {}, `cannot be read: ${run.why}`)));
  const box = h("input", { type: "checkbox", id: `pick-${run.id}`, checked: ticked, "aria-label": `Compare ${run.title}`,
    onchange: (event) => choose(run.id, event.target.checked) });
  return h("article", { class: "row" }, box,
    h("div", { class: "what" }, link, h("small", {}, `${run.protocol} · ${counted(run.parties, "party", "parties")} · ${run.data}${run.truncated ? ` · ${run.truncated}` : ""}`)),
    badge(run.state, run.state === "finished" ? "finished" : `${run.state}, ${run.done} of ${run.rounds}`),
    spark(run.curve),
    h("div", { class: "number" }, score(run), h("small", {}, run.rmse != null && run.accuracy == null ? "rmse" : "accuracy")),
    h("div", { class: "number" }, bytes(run.bytes), h("small", {}, run.epsilon != null ? `ε ${run.epsilon.toPrecision(3)}` : "sent")));
}

export const badge = (state, text = state) =>
  h("span", { class: `badge ${state}` }, h("i", { "aria-hidden": "true" }), text);

const starting = (id) => h("article", { class: "row" }, h("span"), h("div", { class: "what" }, id), badge("running", "starting"));

function failure([id, why]) {
  return h("article", { class: "row failed", role: "alert" }, h("span"),
    h("div", { class: "what" }, id, h("pre", {}, why)), badge("interrupted", "failed"));
}

function empty() {
  return h("div", { class: "empty" },
    h("h2", {}, "No runs yet"),
    h("p", {}, "A run learns a model together, and writes how well it went, what it cost and what it gave away."),
    h("p", {}, h("a", { class: "button main", href: "/start" }, "Start one here"), " or in a terminal:"),
    command("tacit train scenario.toml"),
    h("p", {}, "Nothing has to be learnt to see ", h("a", { href: EXAMPLE }, "what one of nine peers can work out about two others"), "."));
}

function party(each) {
  const missing = (each.peers ?? []).filter((peer) => peer.missing != null);
  const troubled = (each.peers ?? []).filter((peer) => peer.trouble);
  const said = !each.running ? `not running, last seen ${ago(each.ago ?? 0)} ago`
    : each.over ? (each.ready ? `ready for round ${each.ready}` : `round ${each.round} is over`)
    : `round ${each.round} is under way${each.waits_for ? `, waits for ${each.waits_for}` : ""}`;
  const healthy = each.running && !each.trouble && !missing.length && !troubled.length;
  return h("article", { class: "card" },
    h("h3", {}, each.party), badge(healthy ? "finished" : each.running ? "running" : "interrupted", healthy ? "healthy" : each.running ? "waiting" : "not running"),
    h("p", {}, said),
    each.trouble ? h("p", { class: "danger" }, each.trouble) : null,
    missing.length ? h("p", {}, `Missing: ${listed(missing.map((peer) => `${peer.party} for ${ago(peer.missing)}`))}`) : null,
    troubled.map((peer) => h("p", { class: "danger" }, `${peer.party}: ${peer.trouble}`)),
    each.last ? h("p", { class: "muted" }, ended(each.last)) : null);
}

function ended(last) {
  const lost = Object.entries(last.dropped).map(([party, why]) => `${party} (${why})`);
  const how = last.error ? last.error.text : `${last.contributors.length} averaged`;
  return `Round ${last.round}: ${how}${lost.length ? `, without ${listed(lost)}` : ""}.`;
}
