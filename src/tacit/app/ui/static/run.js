// One run: the verdict of its audit, its graph and its dropouts round by round, and its results.

import { field, formatBytes, formatCount, formatPercent, formatScore, h, problems, refresh, replace } from "./dom.js";
import { drawBars, drawLines, fitRange, formatPercentTick } from "./chart.js";
import { drawGraph } from "./graph.js";
import { explain } from "./glossary.js";
import { get, listen, post } from "./events.js";
import { makeBadge } from "./runs.js";

const PACE = 700;

export function run(root, query) {
  const id = query.get("id") ?? "";
  document.title = `${id} · Tacit`;
  const view = makeView(root, id);
  let [before, loading, stale] = [null, false, false];

  // Loads this run again, only when the list says that it changed.
  async function load() {
    if (loading) { stale = true; return; }
    loading = true;
    do {
      stale = false;
      const found = await get(`/api/run?${new URLSearchParams({ id })}`);
      if (found.problems) replace(root, h("h1", {}, "No such run"), h("p", {}, found.problems), h("p", {}, h("a", { href: "/" }, "All runs")));
      else if (found.state === "unreadable") replace(root, h("h1", {}, found.title), h("p", {}, `This run cannot be read: ${found.why}.`));
      else view.show(found);
    } while (stale);
    loading = false;
  }
  const stop = listen("/api/watch", {
    runs: ({ runs, starting, failed }) => {
      const mine = runs.find((each) => each.id === id) ?? null;
      const now = JSON.stringify([mine, starting.includes(id), failed[id] ?? ""]);
      if (now === before) return;
      before = now;
      view.showFailure(failed[id]);
      if (!mine && (starting.includes(id) || failed[id])) view.wait(starting.includes(id));
      else load();
    },
  });
  return () => { stop(); view.pause(); };
}

function makeView(root, id) {
  const [title, facts, failure, verdict, figure, now, charts, more] = ["div", "p", "div", "div", "div", "div", "div", "div"].map((tag) => h(tag));
  const slider = h("input", { type: "range", id: "round", min: 1, max: 1, value: 1, "aria-label": "Round",
    oninput: () => { following = false; move(); } });
  const phases = h("div", { class: "segments", role: "group", "aria-label": "Iteration" });
  const button = h("button", { type: "button", class: "quiet", onclick: () => (timer ? pause() : play()) }, "Play");
  const reading = h("output", { for: "round", class: "reading" });
  const body = h("div", {}, h("div", { class: "run" },
    h("section", { class: "panel", "aria-label": "Rounds" }, figure, phases, h("div", { class: "slider" }, button, slider, reading)),
    h("div", {}, now, charts)), more);
  const tags = makeTagField(id);
  let [current, graph, cursors, timer, following, phase] = [null, null, [], 0, true, 0];
  Object.assign(now, { className: "now" });
  Object.assign(charts, { className: "charts" });
  Object.assign(figure, { className: "stage small" });
  body.hidden = true;
  replace(root, title, facts, failure, verdict, body);

  function show(run) {
    const first = !current;
    current = run;
    document.title = `${run.title} · Tacit`;
    body.hidden = false;
    refresh(title, h("div", { class: "head" }, h("h1", {}, run.title), makeBadge(run.state)));
    facts.className = "muted";
    replace(facts, `${run.protocol} · ${formatCount(run.parties, "party", "parties")} · ${run.data} · ${run.done} of ${formatCount(run.rounds, "round")}${run.truncated ? ` · ${run.truncated}` : ""}`);
    refresh(verdict, showVerdict(run));
    if (first) drawStage(run);
    slider.max = Math.max(1, run.history.length);
    slider.disabled = run.history.length < 2;
    if (following) slider.value = slider.max;
    cursors = drawCharts(run, charts);
    tags.fill(run.tags);
    refresh(more, showDetails(run), tags.element);
    move();
  }

  /** Shows that the run was started and has written nothing yet. */
  function wait(going) {
    if (current) return;
    replace(title, h("div", { class: "head" }, h("h1", {}, id), makeBadge(going ? "running" : "interrupted", going ? "starting" : "failed")));
    replace(verdict, going ? h("p", { class: "muted" }, "The run is starting: data are loaded and the settings are audited. It opens here by itself.") : null);
  }

  function showFailure(log) {
    refresh(failure, log ? h("div", { class: "problems", role: "alert" }, h("p", {}, "This run ended with an error. The last lines of its log:"), h("pre", { tabindex: "0", "data-key": "log" }, log)) : []);
  }

  function drawStage(run) {
    if (!run.picture) {
      replace(figure, h("p", { class: "muted" }, run.names.length ? "No exchange is drawn: nobody exchanges anything, or there are too many parties." : "There are too many parties to draw."));
      return;
    }
    graph = drawGraph({ parties: run.names, server: run.server, picture: run.picture, names: run.labels, label: `Who exchanges with whom in ${run.title}` });
    replace(figure, graph.element);
    const count = run.picture.each === "iteration" ? run.picture.phases.length : 0;
    replace(phases, count < 2 ? [] : [h("span", {}, explain("iteration", "Iteration")), Array.from({ length: count }, (_, i) =>
      h("button", { type: "button", "aria-pressed": String(i === 0), onclick: () => { phase = i; move(); } }, i + 1))]);
  }

  function move() {
    const at = current.history[slider.value - 1];
    reading.textContent = at ? `round ${at.round}` : "no round is over yet";
    slider.setAttribute("aria-valuetext", reading.textContent);
    const missing = at?.averaged.length && current.names.length ? current.names.filter((party) => !at.averaged.includes(party)) : Object.keys(at?.left_out ?? {});
    const within = current.picture?.each === "iteration" ? phase : (at?.round ?? 1) - 1;
    graph?.show({ phase: within, absent: missing });
    [...phases.querySelectorAll(":scope > button")].forEach((each, i) => each.setAttribute("aria-pressed", String(i === phase)));
    cursors.forEach((cursor) => cursor(at?.round ?? -1));
    refresh(now, at ? showFigures(at, missing, current) : h("p", { class: "muted" }, "Preparing. The first round shows here when it is over."));
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
  return { show, pause, wait, showFailure };
}

/** Returns the field of a run's tags, which are written when the field is left. */
function makeTagField(id) {
  let known = "";
  const box = h("div", {});
  const control = h("input", { type: "text", id: "tags", placeholder: "pilot, for the board", autocomplete: "off", onchange: async () => {
    const wanted = control.value.split(",").map((each) => each.trim()).filter(Boolean);
    const answer = await post("/api/tags", JSON.stringify({ id, tags: wanted }));
    replace(box, answer.problems.length ? problems(answer.problems) : []);
    if (!answer.problems.length) known = control.value = wanted.join(", ");
  } });
  const element = h("div", { class: "tagging" }, field("Tags", control, "separated by commas; the list of runs can be narrowed to a tag"), box);
  const fill = (tags = []) => {
    if (document.activeElement === control || control.value !== known) return;
    known = control.value = tags.join(", ");
  };
  return { element, fill };
}

/** Returns a sentence with the real names of parties, where the run has them. */
export const nameParties = (text, names = {}) => text.replace(/\bp\d+\b/g, (party) => names[party] ?? party);

/** Returns the verdict of the audit, with its assumptions folded, and the link to the report. */
function showVerdict(run) {
  const { audit } = run;
  const view = h("a", { href: adversaryAddress(run), "data-key": "adversary" }, "See what coalitions could learn");
  const links = h("p", { class: "links" }, run.report ? h("a", { class: "button", href: run.report, target: "_blank", rel: "noopener", "data-key": "report" }, "Open the report") : null, run.picture ? view : null);
  const heading = run.verdict?.heading;
  if (!heading) {
    const why = audit?.says ? `Not audited: ${audit.says}.` : run.state === "finished" ? "This run has no audit." : "The audit is not written yet.";
    return [h("p", { class: "muted" }, nameParties(why, run.labels)), links];
  }
  const said = (text) => nameParties(text, run.labels);
  const list = (name, lines) => (lines.length ? [h("h4", {}, name), h("ul", {}, lines.map((each) => h("li", {}, said(each))))] : []);
  const code = run.verdict.code;
  const kind = run.verdict.exposed ? "bad" : code === "not_audited" ? "fair" : "good";
  return h("section", { class: `banner ${kind}`, "aria-label": "Verdict of the audit" },
    h("h2", {}, h("i", { class: "sign", "aria-hidden": "true" }), heading),
    audit.verdict ? h("p", {}, said(audit.verdict)) : audit.says ? h("p", {}, `${said(audit.says)}.`) : null,
    audit.still?.verdict ? h("p", {}, h("strong", {}, "If models were ", explain("static"), ": "), said(audit.still.verdict)) : null,
    audit.assumed.length || audit.not_covered.length ? h("details", { "data-key": "assumptions" }, h("summary", { "data-key": "assumptions-summary" }, "Assumptions, and what the audit does not cover"),
      list("Assumptions", audit.assumed), list("Not covered", audit.not_covered)) : null,
    links);
}

function adversaryAddress(run) {
  const settings = Object.entries(run.options ?? {}).map(([name, value]) => ["set", `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`]);
  return `/adversary?${new URLSearchParams([["protocol", run.protocol], ["parties", run.parties], ...settings])}`;
}

function showFigures(at, missing, run) {
  const facts = [
    at.accuracy == null && at.rmse != null ? [explain("rmse", "Test rmse"), formatScore(at)] : [explain("accuracy", "Test accuracy"), formatScore(at)],
    [explain("loss", "Training loss"), at.loss == null ? "–" : at.loss.toFixed(3)],
    ["Sent in this round", formatBytes(at.bytes)],
    [explain("contributor", "Contributors"), String(at.contributors)],
    ...(at.epsilon == null ? [] : [[explain("epsilon", "ε spent so far"), at.epsilon.toPrecision(3)]]),
  ];
  const items = missing.map((party) => h("li", {}, run.labels?.[party] ?? party, at.left_out[party] ? h("span", { class: "muted" }, ` ${at.left_out[party]}`) : null));
  return [h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    h("h3", {}, missing.length ? "Not in this average" : run.names.length ? "Nobody was missing" : "There are too many parties to list who was missing"),
    h("ul", { class: "plain-list" }, items.slice(0, 8), items.length > 8 ? h("li", {}, `and ${items.length - 8} more`) : null),
    (at.notes ?? []).slice(0, 3).map((note) => h("p", { class: "note" }, nameParties(note, run.labels)))];
}

/** Draws the charts of a run, and returns the functions that move their cursors. */
function drawCharts(run, charts) {
  const of = (key) => run.history.filter((at) => at[key] != null).map((at) => [at.round, at[key]]);
  const values = (points) => points.map(([, at]) => at);
  const made = [];
  const [accuracy, rmse, loss, epsilon] = ["accuracy", "rmse", "loss", "epsilon"].map(of);
  if (accuracy.length) made.push(drawLines("Test accuracy", [{ label: "accuracy", points: accuracy }], { y: formatPercent, axis: formatPercentTick, range: fitRange(values(accuracy), [0, 1], 0.02) }));
  else if (rmse.length) made.push(drawLines("Test rmse", [{ label: "rmse", points: rmse }], { range: fitRange(values(rmse), [0, Infinity]) }));
  if (loss.length) made.push(drawLines("Training loss", [{ label: "loss", points: loss }], { range: fitRange(values(loss), [0, Infinity]) }));
  const names = [...new Set(run.history.flatMap((at) => Object.keys(at.classes)))]
    .filter((name) => run.history.some((at) => at.classes[name]));
  if (names.length) made.push(drawBars("Bytes sent, by class", names, run.history.map((at) => ({ x: at.round, parts: at.classes })), { y: formatBytes }));
  if (epsilon.length) made.push(drawLines("ε spent", [{ label: "ε", points: epsilon }], { range: [0, Math.max(...values(epsilon))] }));
  replace(charts, made.map(({ element }) => element));
  return made.map(({ cursor }) => cursor);
}

function showDetails(run) {
  const real = Object.entries(run.labels ?? {});
  return [real.length ? h("details", { "data-key": "names" }, h("summary", { "data-key": "names-summary" }, "Names of the parties"),
    h("ul", {}, real.map(([party, name]) => h("li", {}, `${name} is ${party} in commands and files`)))) : null,
    run.scenario ? h("details", { "data-key": "scenario" }, h("summary", { "data-key": "scenario-summary" }, "Scenario"), h("pre", { tabindex: "0", "data-key": "scenario-text" }, run.scenario)) : null];
}
