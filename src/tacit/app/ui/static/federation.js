// Federation: the parties that keep their rounds in this folder, who is missing and since when, and their last rounds.

import { command, foldText, formatBytes, formatCount, formatDuration, formatMoment, h, joinNames, refresh, replace } from "./dom.js";
import { explain } from "./glossary.js";
import { listen } from "./events.js";
import { makeBadge } from "./runs.js";

export function federation(root) {
  document.title = "Federation · Tacit";
  const [summary, body] = [h("p", { class: "lead" }), h("div", { "aria-busy": "true" })];
  replace(root, h("h1", {}, "Federation"), summary, body);
  return listen("/api/watch", {
    runs: ({ parties, folder }) => {
      body.removeAttribute("aria-busy");
      replace(summary, parties.length ? describeAll(parties, folder) : []);
      refresh(body, parties.length ? [showParties(parties), showRounds(parties)] : makeEmptyNote());
    },
    problem: ({ problems }) => refresh(body, h("p", { class: "problems", role: "alert" }, problems)),
  });
}

function makeEmptyNote() {
  return h("div", { class: "empty" }, h("h2", {}, "No party keeps its rounds here"),
    h("p", {}, "A party of a federation writes its rounds to a folder that ends in ", h("code", {}, ".rounds"), ". Open the page in the folder above it:"),
    command("tacit ui path/to/federation"),
    h("p", {}, "To set up a federation, start with:"), command("tacit keygen hospital-a"));
}

function describeAll(parties, folder) {
  const names = listNames(parties);
  const missing = names.filter((name) => findMissing(name, parties).length);
  const words = missing.length ? `Missing: ${joinNames(missing)}.` : parties.some((each) => each.running) ? "Nobody is missing." : "No party here is running.";
  return [`${formatCount(names.length, "party", "parties")}, ${parties.length} of them with rounds in ${folder}. `, h("strong", {}, words)];
}

/** Returns all parties that are known here: those with a folder, and those that these await. */
function listNames(parties) {
  return [...new Set([...parties.map((each) => each.party), ...parties.flatMap((each) => (each.peers ?? []).map((peer) => peer.party))])].sort();
}

/** Returns who awaits a party, each with how long; parties that are not running await nobody. */
function findMissing(name, parties) {
  return parties.filter((each) => each.running).flatMap((each) => (each.peers ?? [])
    .filter((peer) => peer.party === name && peer.missing != null).map((peer) => ({ by: each.party, seconds: peer.missing + (each.ago ?? 0) })));
}

// --- parties -------------------------------------------------------------------------------------------------------

function showParties(parties) {
  const heads = ["party", "state", h("span", {}, explain("round")), "last heard", "missing since", "last error"];
  const rows = listNames(parties).map((name) => makePartyRow(name, parties));
  return h("section", { "aria-label": "Parties" }, h("h2", {}, "Parties"), makeTable("Parties", heads, rows));
}

function makePartyRow(name, parties) {
  const own = parties.find((each) => each.party === name);
  const peers = parties.flatMap((each) => (each.peers ?? []).filter((peer) => peer.party === name).map((peer) => ({ ...peer, by: each.party, ago: each.ago ?? 0 })));
  const missing = findMissing(name, parties);
  const longest = Math.max(...missing.map((each) => each.seconds));
  const heard = peers.filter((peer) => peer.heard != null).map((peer) => peer.heard + peer.ago);
  const seen = own?.ago ?? (heard.length ? Math.min(...heard) : null);
  const round = own?.round ?? Math.max(0, ...peers.map((peer) => peer.begun));
  const since = missing.length ? [`${formatMoment(longest)} (${formatDuration(longest)})`, h("small", {}, `awaited by ${joinNames(missing.map((each) => each.by))}`)] : "–";
  return [h("strong", {}, name), describeState(own, missing, parties.some((each) => each.running)), round || "–", seen == null ? "never" : makeName(`${formatDuration(seen)} ago`), since, showErrors(name, own, peers)];
}

function describeState(own, missing, watched) {
  if (own?.running && own.trouble) return makeBadge("interrupted", "cannot continue");
  if (own?.running && missing.length) return [makeBadge("running", "running"), h("small", {}, "messages are still awaited")];
  if (own?.running) return own.over ? makeBadge("finished", own.ready ? `ready for round ${own.ready}` : `round ${own.round} is over`)
    : [makeBadge("running", `round ${own.round} is under way`), own.waits_for ? h("small", {}, `awaits ${own.waits_for}`) : null];
  if (own) return makeBadge("interrupted", "not running");
  if (missing.length) return makeBadge("interrupted", "missing");
  return watched ? makeBadge("finished", "heard by others") : makeBadge("interrupted", "unknown");
}

function showErrors(name, own, peers) {
  const mine = [[own?.trouble, ""], [own?.last?.error?.text, own?.last ? `round ${own.last.round}` : ""]].filter(([text]) => text);
  // Peers that say the same share a line.
  const others = [...new Set(peers.map((peer) => peer.trouble).filter(Boolean))]
    .map((text) => [text, `seen by ${joinNames(peers.filter((peer) => peer.trouble === text).map((peer) => peer.by))}`]);
  const found = [...mine, ...others];
  if (!found.length) return "–";
  return found.map(([text, source], i) => h("div", {}, foldText(text, `error-${name}-${i}`), source ? h("small", {}, source) : null));
}

// --- rounds --------------------------------------------------------------------------------------------------------

function showRounds(parties) {
  const ended = parties.filter((each) => each.last).sort((a, b) => b.last.round - a.last.round || a.party.localeCompare(b.party));
  if (!ended.length) return null;
  const heads = [h("span", {}, explain("round")), "as seen by", "averaged", h("span", {}, explain("dropout", "dropouts")), "took", "sent", "result"];
  const rows = ended.map(({ party, last }) => {
    const lost = Object.entries(last.dropped);
    const sent = Object.values(last.sent ?? {}).reduce((sum, each) => sum + each, 0);
    return [last.round, makeName(party), last.error ? "–" : [String(last.contributors.length), h("small", {}, joinNames(last.contributors))],
      lost.length ? lost.map(([who, why]) => h("div", {}, makeName(who), h("small", {}, why))) : "none",
      makeName(formatDuration(last.seconds ?? 0)), makeName(formatBytes(sent)), last.error ? foldText(last.error.text, `round-${party}`) : "average"];
  });
  return h("section", { "aria-label": "Last rounds" }, h("h2", {}, "Last round of each party"), makeTable("Last round of each party", heads, rows));
}

const makeName = (name) => h("span", { class: "name" }, name);
const labelOf = (head) => (typeof head === "string" ? head : head.textContent);

function makeTable(label, heads, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label, "data-key": `table-${label}` },
    h("table", { class: "wide" }, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map(([first, ...rest]) => h("tr", {}, h("th", { scope: "row", "data-label": label === "Parties" ? null : labelOf(heads[0]) }, first),
        rest.map((cell, i) => h("td", { "data-label": labelOf(heads[i + 1]) }, cell)))))));
}
