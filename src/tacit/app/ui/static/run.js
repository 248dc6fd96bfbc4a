// One run: its graph and its dropouts round by round, and its results.

import { formatBytes, formatCount, formatPercent, formatScore, h, joinNames, replace } from "./dom.js";
import { drawBars, drawLines } from "./chart.js";
import { drawGraph } from "./graph.js";
import { get, listen } from "./events.js";
import { makeBadge } from "./runs.js";

const PACE = 700;

export function run(root, query) {
  const id = query.get("id") ?? "";
  document.title = `${id} · Tacit`;
  const view = makeView(root);
  let [before, loading, stale] = ["", false, false];

  // Loads this run again, only when the list says that it changed.
  async function refresh() {
    if (loading) { stale = true; return; }
    loading = true;
    do {
      stale = false;
      const found = await get(`/api/run?${new URLSearchParams({ id })}`);
      if (found.problems) replace(root, h("h1", {}, "No such run"), h("p", {}, found.problems));
      else if (found.state === "unreadable") replace(root, h("h1", {}, found.title), h("p", {}, `This run cannot be read: ${found.why}.`));
      else view.show(found);
    } while (stale);
    loading = false;
  }
  const stop = listen("/api/watch", {
    runs: ({ runs }) => {
      const mine = JSON.stringify(runs.find((each) => each.id === id) ?? null);
      if (mine !== before) { before = mine; refresh(); }
    },
  });
  return () => { stop(); view.pause(); };
}

function makeView(root) {
  const [title, facts, figure, now, charts, more] = ["div", "p", "div", "div", "div", "div"].map((tag) => h(tag));
  const slider = h("input", { type: "range", id: "round", min: 1, max: 1, value: 1, "aria-label": "Round",
    oninput: () => { following = false; move(); } });
  const phases = h("div", { class: "segments", role: "group", "aria-label": "Iteration" });
  const button = h("button", { type: "button", class: "quiet", onclick: () => (timer ? pause() : play()) }, "Play");
  const reading = h("output", { for: "round", class: "reading" });
  let [current, graph, cursors, timer, following, phase] = [null, null, [], 0, true, 0];
  Object.assign(now, { className: "now" });
  Object.assign(charts, { className: "charts" });
  Object.assign(figure, { className: "stage small" });
  replace(root, title, facts,
    h("div", { class: "run" }, h("section", { class: "panel", "aria-label": "Rounds" }, figure, phases, h("div", { class: "slider" }, button, slider, reading)),
      h("div", {}, now, charts)), more);

  function show(run) {
    const first = !current;
    current = run;
    document.title = `${run.title} · Tacit`;
    replace(title, h("div", { class: "head" }, h("h1", {}, run.title), makeBadge(run.state)));
    facts.className = "muted";
    replace(facts, `${run.protocol} · ${formatCount(run.parties, "party", "parties")} · ${run.data} · ${run.done} of ${formatCount(run.rounds, "round")}${run.truncated ? ` · ${run.truncated}` : ""}`);
    if (first) drawStage(run);
    slider.max = Math.max(1, run.history.length);
    slider.disabled = run.history.length < 2;
    if (following) slider.value = slider.max;
    cursors = drawCharts(run, charts);
    replace(more, showDetails(run));
    move();
  }

  function drawStage(run) {
    if (!run.picture) {
      replace(figure, h("p", { class: "muted" }, "Nobody exchanges anything here, or with too many to draw."));
      return;
    }
    graph = drawGraph({ parties: run.names, server: run.server, picture: run.picture, label: `Who exchanges with whom in ${run.title}` });
    replace(figure, graph.element);
    const count = run.picture.each === "iteration" ? run.picture.phases.length : 0;
    replace(phases, count < 2 ? [] : [h("span", {}, "Iteration"), Array.from({ length: count }, (_, i) =>
      h("button", { type: "button", "aria-pressed": String(i === 0), onclick: () => { phase = i; move(); } }, i + 1))]);
  }

  function move() {
    const at = current.history[slider.value - 1];
    reading.textContent = at ? `round ${at.round}` : "no round is over yet";
    slider.setAttribute("aria-valuetext", reading.textContent);
    const missing = at?.averaged.length && current.names.length ? current.names.filter((party) => !at.averaged.includes(party)) : Object.keys(at?.left_out ?? {});
    const within = current.picture?.each === "iteration" ? phase : (at?.round ?? 1) - 1;
    graph?.show({ phase: within, absent: missing });
    [...phases.querySelectorAll("button")].forEach((each, i) => each.setAttribute("aria-pressed", String(i === phase)));
    cursors.forEach((cursor) => cursor(at?.round ?? -1));
    replace(now, at ? showFigures(at, missing, current) : h("p", { class: "muted" }, "Preparing. The first round shows here when it is over."));
  }

  function play() {
    if (Number(slider.value) >= Number(slider.max)) slider.value = 1;
    following = false;
    button.textContent = "Pause";
    timer = setInterval(() => {
      if (Number(slider.value) >= Number(slider.max)) return pause();
      slider.value = Number(slider.value) + 1;
      return move();
    }, PACE);
  }

  function pause() {
    clearInterval(timer);
    timer = 0;
    button.textContent = "Play";
  }
  return { show, pause };
}

function showFigures(at, missing, run) {
  const facts = [
    [at.accuracy == null && at.rmse != null ? "Rmse" : "Test accuracy", formatScore(at)],
    ["Training loss", at.loss == null ? "–" : at.loss.toFixed(3)],
    ["Sent in this round", formatBytes(at.bytes)],
    ["Averaged", String(at.contributors)],
    ...(at.epsilon == null ? [] : [["ε spent so far", at.epsilon.toPrecision(3)]]),
  ];
  const items = missing.map((party) => h("li", {}, party, at.left_out[party] ? h("span", { class: "muted" }, ` ${at.left_out[party]}`) : null));
  return [h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    h("h3", {}, missing.length ? "Not in this average" : run.names.length ? "Nobody was missing" : "Too many parties to name who was missing"),
    h("ul", { class: "plain-list" }, items.slice(0, 8), items.length > 8 ? h("li", {}, `and ${items.length - 8} more`) : null),
    (at.notes ?? []).slice(0, 3).map((note) => h("p", { class: "note" }, note))];
}

/** Draws the charts of a run, and returns the functions that move their cursors. */
function drawCharts(run, charts) {
  const of = (key) => run.history.filter((at) => at[key] != null).map((at) => [at.round, at[key]]);
  const made = [];
  if (of("accuracy").length) made.push(drawLines("Test accuracy", [{ label: "accuracy", points: of("accuracy") }], { y: formatPercent, axis: (at) => `${Math.round(100 * at)} %`, range: [0, 1] }));
  else if (of("rmse").length) made.push(drawLines("Test rmse", [{ label: "rmse", points: of("rmse") }], {}));
  if (of("loss").length) made.push(drawLines("Training loss", [{ label: "loss", points: of("loss") }], {}));
  const names = [...new Set(run.history.flatMap((at) => Object.keys(at.classes)))]
    .filter((name) => run.history.some((at) => at.classes[name]));
  if (names.length) made.push(drawBars("Bytes sent, by class", names, run.history.map((at) => ({ x: at.round, parts: at.classes })), { y: formatBytes }));
  if (of("epsilon").length) made.push(drawLines("ε spent", [{ label: "ε", points: of("epsilon") }], { range: [0, Math.max(...of("epsilon").map(([, at]) => at))] }));
  replace(charts, made.map(({ element }) => element));
  return made.map(({ cursor }) => cursor);
}

function showDetails(run) {
  const settings = Object.entries(run.options ?? {}).map(([name, value]) => ["set", `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`]);
  const view = new URLSearchParams([["protocol", run.protocol], ["parties", run.parties], ...settings]);
  return [run.says ? h("p", {}, "The audit before the start: exposed in one round ", h("strong", {}, run.says), ".") : null,
    run.picture ? h("p", {}, h("a", { href: `/adversary?${view}` }, "What coalitions would learn under these settings")) : null,
    run.scenario ? h("details", {}, h("summary", {}, "Scenario"), h("pre", { tabindex: "0" }, run.scenario)) : null];
}
