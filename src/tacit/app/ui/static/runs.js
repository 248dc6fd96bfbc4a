// Start view: the runs of the folder, and the parties of a federation that keep their rounds in it.

import { command, formatBytes, formatCount, formatDuration, formatScore, h, joinNames, replace } from "./dom.js";
import { drawSparkline } from "./chart.js";
import { listen } from "./events.js";
import { go } from "./main.js";

const EXAMPLE = "/adversary?protocol=admm&parties=9&set=group_size%3D3&set=iterations%3D5&coalition=p0";

export function runs(root) {
  document.title = "Runs · Tacit";
  const chosen = new Set();
  const [folder, list, health] = [h("p", { class: "muted" }), h("div", { class: "list", "aria-busy": "true" }), h("section", {})];
  const button = h("button", { type: "button", class: "main", disabled: true, onclick: () => openComparison(chosen) }, "Compare");
  replace(root, h("div", { class: "head" }, h("div", {}, h("h1", {}, "Runs"), folder), button), list, health);

  function choose(id, wanted) {
    wanted ? chosen.add(id) : chosen.delete(id);
    button.disabled = chosen.size < 2;
    button.textContent = chosen.size > 1 ? `Compare ${chosen.size}` : "Compare";
  }
  return listen("/api/watch", {
    runs: (event) => {
      replace(folder, event.folder, event.unlisted ? h("span", {}, h("br"), `${event.unlisted}.`) : null);
      list.removeAttribute("aria-busy");
      const waiting = event.starting.filter((id) => !event.runs.some((run) => run.id === id));
      const failed = Object.entries(event.failed);
      const none = !event.runs.length && !waiting.length && !failed.length;
      button.hidden = none;
      // Rows are replaced, but a box that somebody is about to tick keeps the focus.
      const focus = document.activeElement?.id;
      replace(list, failed.map(makeFailedRow), waiting.map(makeStartingRow),
        none ? makeEmptyNote() : event.runs.map((run) => makeRow(run, chosen.has(run.id), choose)));
      if (focus) document.getElementById(focus)?.focus();
      replace(health, event.parties.length ? [h("h2", {}, "Parties"), h("div", { class: "cards" }, event.parties.map(makePartyCard))] : []);
    },
    problem: ({ problems }) => replace(list, h("p", { class: "problems", role: "alert" }, problems)),
  });
}

function openComparison(chosen) {
  go(`/compare?${new URLSearchParams([...chosen].map((id) => ["run", id]))}`);
}

function makeRow(run, ticked, choose) {
  const link = h("a", { href: `/run?${new URLSearchParams({ id: run.id })}` }, run.title);
  if (run.state === "unreadable")
    return h("article", { class: "row" }, h("span"), h("div", { class: "what" }, run.title, h("small", {}, `cannot be read: ${run.why}`)));
  const box = h("input", { type: "checkbox", id: `pick-${run.id}`, checked: ticked, "aria-label": `Compare ${run.title}`,
    onchange: (event) => choose(run.id, event.target.checked) });
  return h("article", { class: "row" }, box,
    h("div", { class: "what" }, link, h("small", {}, `${run.protocol} · ${formatCount(run.parties, "party", "parties")} · ${run.data}${run.truncated ? ` · ${run.truncated}` : ""}`)),
    makeBadge(run.state, run.state === "finished" ? "finished" : `${run.state}, ${run.done} of ${run.rounds}`),
    drawSparkline(run.curve),
    h("div", { class: "number" }, formatScore(run), h("small", {}, run.rmse != null && run.accuracy == null ? "rmse" : "accuracy")),
    h("div", { class: "number" }, formatBytes(run.bytes), h("small", {}, run.epsilon != null ? `ε ${run.epsilon.toPrecision(3)}` : "sent")));
}

export const makeBadge = (state, text = state) =>
  h("span", { class: `badge ${state}` }, h("i", { "aria-hidden": "true" }), text);

const makeStartingRow = (id) => h("article", { class: "row" }, h("span"), h("div", { class: "what" }, id), makeBadge("running", "starting"));

function makeFailedRow([id, why]) {
  return h("article", { class: "row failed", role: "alert" }, h("span"),
    h("div", { class: "what" }, id, h("pre", {}, why)), makeBadge("interrupted", "failed"));
}

function makeEmptyNote() {
  return h("div", { class: "empty" },
    h("h2", {}, "No runs yet"),
    h("p", {}, "A run trains a model and records its accuracy, its cost and what it leaks."),
    h("p", {}, h("a", { class: "button main", href: "/start" }, "Start one here"), " or in a terminal:"),
    command("tacit train scenario.toml"),
    h("p", {}, "No run is needed to see ", h("a", { href: EXAMPLE }, "what one of nine peers can recover of two others"), "."));
}

function makePartyCard(each) {
  const missing = (each.peers ?? []).filter((peer) => peer.missing != null);
  const troubled = (each.peers ?? []).filter((peer) => peer.trouble);
  const status = !each.running ? `not running, last seen ${formatDuration(each.ago ?? 0)} ago`
    : each.over ? (each.ready ? `ready for round ${each.ready}` : `round ${each.round} is over`)
    : `round ${each.round} is under way${each.waits_for ? `, waits for ${each.waits_for}` : ""}`;
  const healthy = each.running && !each.trouble && !missing.length && !troubled.length;
  return h("article", { class: "card" },
    h("h3", {}, each.party), makeBadge(healthy ? "finished" : each.running ? "running" : "interrupted", healthy ? "healthy" : each.running ? "waiting" : "not running"),
    h("p", {}, status),
    each.trouble ? h("p", { class: "danger" }, each.trouble) : null,
    missing.length ? h("p", {}, `Missing: ${joinNames(missing.map((peer) => `${peer.party} for ${formatDuration(peer.missing)}`))}`) : null,
    troubled.map((peer) => h("p", { class: "danger" }, `${peer.party}: ${peer.trouble}`)),
    each.last ? h("p", { class: "muted" }, describeEnding(each.last)) : null);
}

function describeEnding(last) {
  const lost = Object.entries(last.dropped).map(([party, why]) => `${party} (${why})`);
  const how = last.error ? last.error.text : `${last.contributors.length} averaged`;
  return `Round ${last.round}: ${how}${lost.length ? `, without ${joinNames(lost)}` : ""}.`;
}
