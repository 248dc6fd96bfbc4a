// Start view: the runs of the folder, with search, sorting and tags.

import { command, formatBytes, formatCount, formatScore, h, refresh, replace } from "./dom.js";
import { drawSparkline } from "./chart.js";
import { explain } from "./glossary.js";
import { listen } from "./events.js";
import { go } from "./main.js";

const EXAMPLE = "/adversary?protocol=admm&parties=9&set=group_size%3D3&set=iterations%3D5&coalition=p0";
const SORTS = {
  changed: ["last changed", (a, b) => b.changed - a.changed],
  title: ["title", (a, b) => a.title.localeCompare(b.title)],
  accuracy: ["accuracy", (a, b) => (b.accuracy ?? -1) - (a.accuracy ?? -1)],
  sent: ["bytes sent", (a, b) => b.bytes - a.bytes],
  parties: ["parties", (a, b) => b.parties - a.parties],
};

export function runs(root, query) {
  document.title = "Runs · Tacit";
  const [chosen, rows] = [new Set(), new Map()];
  const [folder, list, tags, shown, health] = [h("p", { class: "muted" }), h("div", { class: "list", "aria-busy": "true" }),
    h("div", { class: "chips", role: "group", "aria-label": "Tags" }), h("p", { class: "muted", role: "status" }), h("div", {})];
  const button = h("button", { type: "button", class: "main", disabled: true, onclick: () => openComparison(chosen) }, "Compare");
  const search = h("input", { type: "search", id: "search", "aria-label": "Search runs", placeholder: "Search title, protocol, data or tag",
    value: query.get("q") ?? "", oninput: () => narrow() });
  const sort = h("select", { id: "sort", "aria-label": "Sort by", onchange: () => narrow() }, Object.entries(SORTS).map(([name, [label]]) =>
    h("option", { value: name, selected: name === query.get("sort") }, `Sort by ${label}`)));
  const tools = h("div", { class: "tools", hidden: true }, search, sort);
  replace(root, h("div", { class: "head" }, h("div", {}, h("h1", {}, "Runs"), folder), button), health, tools, tags, shown, list);
  let [tag, event] = [query.get("tag") ?? "", null];

  function choose(id, wanted) {
    wanted ? chosen.add(id) : chosen.delete(id);
    button.disabled = chosen.size < 2;
    button.textContent = chosen.size > 1 ? `Compare ${chosen.size}` : "Compare";
  }

  /** Puts the search into the address, and shows the runs that match it. */
  function narrow() {
    const wanted = new URLSearchParams([["q", search.value.trim()], ["sort", sort.value === "changed" ? "" : sort.value], ["tag", tag]].filter(([, value]) => value));
    history.replaceState(null, "", wanted.size ? `/?${wanted}` : "/");
    show();
  }

  function show() {
    if (!event) return;
    const waiting = event.starting.filter((id) => !event.runs.some((run) => run.id === id));
    const failed = Object.entries(event.failed);
    const none = !event.runs.length && !waiting.length && !failed.length;
    button.hidden = none;
    tools.hidden = event.runs.length < 2;
    const every = [...new Set(event.runs.flatMap((run) => run.tags ?? []))].sort();
    if (!every.includes(tag)) tag = "";
    refresh(tags, every.map((name) => h("button", { type: "button", class: "quiet tag", "data-key": `tag-${name}`, "aria-pressed": String(name === tag),
      onclick: () => { tag = name === tag ? "" : name; narrow(); } }, name)));
    const found = findRuns(event.runs, search.value, tag, sort.value);
    shown.textContent = found.length < event.runs.length ? `${found.length} of ${formatCount(event.runs.length, "run")}` : "";
    refresh(list, failed.map(makeFailedRow), waiting.map(makeStartingRow),
      none ? makeEmptyNote() : found.length ? found.map((run) => keepRow(rows, run, chosen, choose)) : h("p", { class: "muted" }, "No run matches."));
  }
  return listen("/api/watch", {
    runs: (news) => {
      event = news;
      replace(folder, event.folder, event.unlisted ? h("span", {}, h("br"), `${event.unlisted}.`) : null);
      list.removeAttribute("aria-busy");
      refresh(health, describeFederation(event.parties));
      show();
    },
    problem: ({ problems }) => refresh(list, h("p", { class: "problems", role: "alert" }, problems)),
  });
}

function openComparison(chosen) {
  go(`/compare?${new URLSearchParams([...chosen].map((id) => ["run", id]))}`);
}

/** Returns the runs that have every word of a search, and a tag, in order. */
export function findRuns(listed, text, tag, order) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const has = (run) => [run.title, run.id, run.protocol, run.data, run.state, run.verdict?.heading, ...(run.tags ?? [])].join(" ").toLowerCase();
  const found = listed.filter((run) => (!tag || run.tags?.includes(tag)) && words.every((word) => has(run).includes(word)));
  return order === "changed" || !(order in SORTS) ? found : found.sort((a, b) => SORTS[order][1](a, b));
}

/** Returns the row of a run: the same element as before if the run did not change. */
function keepRow(rows, run, chosen, choose) {
  const now = JSON.stringify(run);
  if (rows.get(run.id)?.now !== now) rows.set(run.id, { now, row: makeRow(run, chosen.has(run.id), choose) });
  return rows.get(run.id).row;
}

function makeRow(run, ticked, choose) {
  if (run.state === "unreadable")
    return h("article", { class: "row" }, h("span"), h("div", { class: "what" }, run.title, h("small", {}, `cannot be read: ${run.why}`)));
  const link = h("a", { href: `/run?${new URLSearchParams({ id: run.id })}`, "data-key": `open-${run.id}` }, run.title);
  const box = h("input", { type: "checkbox", id: `pick-${run.id}`, checked: ticked, "aria-label": `Compare ${run.title}`,
    onchange: (event) => choose(run.id, event.target.checked) });
  const score = run.rmse != null && run.accuracy == null ? "rmse" : "accuracy";
  return h("article", { class: "row" }, box,
    h("div", { class: "what" }, link, h("small", {}, `${run.protocol} · ${formatCount(run.parties, "party", "parties")} · ${run.data}${run.truncated ? ` · ${run.truncated}` : ""}`),
      run.verdict?.heading ? h("small", { class: `says ${run.verdict.exposed ? "bad" : ""}` }, run.verdict.heading) : null,
      run.tags?.length ? h("span", { class: "tags" }, run.tags.map((name) => h("span", { class: "tag" }, name))) : null),
    makeBadge(run.state, run.state === "finished" ? "finished" : `${run.state}, ${run.done} of ${run.rounds}`),
    drawSparkline(run.curve),
    h("div", { class: "number" }, formatScore(run), h("small", {}, score)),
    h("div", { class: "number" }, formatBytes(run.bytes), h("small", {}, run.epsilon != null ? `ε ${run.epsilon.toPrecision(3)}` : "sent")));
}

export const makeBadge = (state, text = state) =>
  h("span", { class: `badge ${state}` }, h("i", { "aria-hidden": "true" }), text);

const makeStartingRow = (id) => h("article", { class: "row" }, h("span"),
  h("div", { class: "what" }, h("a", { href: `/run?${new URLSearchParams({ id })}`, "data-key": `open-${id}` }, id)), makeBadge("running", "starting"));

function makeFailedRow([id, why]) {
  return h("article", { class: "row failed", role: "alert" }, h("span"),
    h("div", { class: "what" }, id, h("pre", {}, why)), makeBadge("interrupted", "failed"));
}

function makeEmptyNote() {
  return h("div", { class: "empty" },
    h("h2", {}, "No runs yet"),
    h("p", {}, "A run trains a model. It records the model’s accuracy, the bytes sent, and what a ", explain("coalition"), " could learn."),
    h("p", {}, h("a", { class: "button main", href: "/start" }, "Start one here"), " or in a terminal:"),
    command("tacit train scenario.toml"),
    h("p", {}, "Without any run, you can see ", h("a", { href: EXAMPLE }, "what one of nine parties can recover"), "."));
}

/** Returns one line about the federation in this folder, with a link to its view. */
function describeFederation(parties) {
  if (!parties.length) return [];
  const running = parties.filter((each) => each.running);
  const missing = new Set(running.flatMap((each) => (each.peers ?? []).filter((peer) => peer.missing != null).map((peer) => peer.party)));
  const well = running.length === parties.length && !missing.size && !parties.some((each) => each.trouble);
  const words = [`${running.length} of ${formatCount(parties.length, "party", "parties")} running`, missing.size ? `${missing.size} missing` : ""].filter(Boolean).join(", ");
  return h("p", { class: "panel federation" }, makeBadge(well ? "finished" : "interrupted", words), " ",
    h("a", { href: "/federation", "data-key": "federation" }, "Open the federation"));
}
