// One run: who exchanged with whom, round by round, who was missing, and what came of it.

import { bytes, counted, h, listed, percent, replace, score } from "./dom.js";
import { lines, stacked } from "./chart.js";
import { drawing } from "./drawing.js";
import { get, listen } from "./events.js";
import { badge } from "./runs.js";

const PACE = 700;

export function run(place, query) {
  const id = query.get("id") ?? "";
  document.title = `${id} · Tacit`;
  const view = page(place);
  let [seen, asking, again] = ["", false, false];

  // Only this run is asked for again, and only if the list says that it changed.
  async function refresh() {
    if (asking) { again = true; return; }
    asking = true;
    do {
      again = false;
      const told = await get(`/api/run?${new URLSearchParams({ id })}`);
      if (told.problems) replace(place, h("h1", {}, "No such run"), h("p", {}, told.problems));
      else if (told.state === "unreadable") replace(place, h("h1", {}, told.title), h("p", {}, `This run cannot be read: ${told.why}.`));
      else view.show(told);
    } while (again);
    asking = false;
  }
  const stop = listen("/api/watch", {
    runs: ({ runs }) => {
      const mine = JSON.stringify(runs.find((each) => each.id === id) ?? null);
      if (mine !== seen) { seen = mine; refresh(); }
    },
  });
  return () => { stop(); view.pause(); };
}

function page(place) {
  const [title, facts, figure, now, charts, more] = ["div", "p", "div", "div", "div", "div"].map((tag) => h(tag));
  const slider = h("input", { type: "range", id: "round", min: 1, max: 1, value: 1, "aria-label": "Round",
    oninput: () => { following = false; move(); } });
  const phases = h("div", { class: "segments", role: "group", "aria-label": "Iteration" });
  const button = h("button", { type: "button", class: "quiet", onclick: () => (timer ? pause() : play()) }, "Play");
  const reading = h("output", { for: "round", class: "reading" });
  let [told, shown, cursors, timer, following, phase] = [null, null, [], 0, true, 0];
  Object.assign(now, { className: "now" });
  Object.assign(charts, { className: "charts" });
  Object.assign(figure, { className: "stage small" });
  replace(place, title, facts,
    h("div", { class: "run" }, h("section", { class: "panel", "aria-label": "Rounds" }, figure, phases, h("div", { class: "slider" }, button, slider, reading)),
      h("div", {}, now, charts)), more);

  function show(run) {
    const fresh = !told;
    told = run;
    document.title = `${run.title} · Tacit`;
    replace(title, h("div", { class: "head" }, h("h1", {}, run.title), badge(run.state)));
    facts.className = "muted";
    replace(facts, `${run.protocol} · ${counted(run.parties, "party", "parties")} · ${run.data} · ${run.done} of ${counted(run.rounds, "round")}${run.truncated ? ` · ${run.truncated}` : ""}`);
    if (fresh) stage(run);
    slider.max = Math.max(1, run.history.length);
    slider.disabled = run.history.length < 2;
    if (following) slider.value = slider.max;
    cursors = plots(run, charts);
    replace(more, below(run));
    move();
  }

  function stage(run) {
    if (!run.picture) {
      replace(figure, h("p", { class: "muted" }, "Nobody exchanges anything here, or with too many to draw."));
      return;
    }
    shown = drawing({ parties: run.names, server: run.server, picture: run.picture, label: `Who exchanges with whom in ${run.title}` });
    replace(figure, shown.element);
    const count = run.picture.each === "iteration" ? run.picture.phases.length : 0;
    replace(phases, count < 2 ? [] : [h("span", {}, "Iteration"), Array.from({ length: count }, (_, i) =>
      h("button", { type: "button", "aria-pressed": String(i === 0), onclick: () => { phase = i; move(); } }, i + 1))]);
  }

  function move() {
    const at = told.history[slider.value - 1];
    reading.textContent = at ? `round ${at.round}` : "no round is over yet";
    slider.setAttribute("aria-valuetext", reading.textContent);
    const missing = at?.averaged.length && told.names.length ? told.names.filter((party) => !at.averaged.includes(party)) : Object.keys(at?.left_out ?? {});
    const within = told.picture?.each === "iteration" ? phase : (at?.round ?? 1) - 1;
    shown?.show({ phase: within, absent: missing });
    [...phases.querySelectorAll("button")].forEach((each, i) => each.setAttribute("aria-pressed", String(i === phase)));
    cursors.forEach((cursor) => cursor(at?.round ?? -1));
    replace(now, at ? figures(at, missing, told) : h("p", { class: "muted" }, "Preparing. The first round shows here when it is over."));
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

function figures(at, missing, run) {
  const facts = [
    [at.accuracy == null && at.rmse != null ? "Rmse" : "Test accuracy", score(at)],
    ["Training loss", at.loss == null ? "–" : at.loss.toFixed(3)],
    ["Sent in this round", bytes(at.bytes)],
    ["Averaged", String(at.contributors)],
    ...(at.epsilon == null ? [] : [["ε spent so far", at.epsilon.toPrecision(3)]]),
  ];
  const lost = missing.map((party) => h("li", {}, party, at.left_out[party] ? h("span", { class: "muted" }, ` ${at.left_out[party]}`) : null));
  return [h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    h("h3", {}, missing.length ? "Not in this average" : run.names.length ? "Nobody was missing" : "Too many parties to name who was missing"),
    h("ul", { class: "plain-list" }, lost.slice(0, 8), lost.length > 8 ? h("li", {}, `and ${lost.length - 8} more`) : null),
    (at.notes ?? []).slice(0, 3).map((note) => h("p", { class: "note" }, note))];
}

/** Draws what there is to draw, and returns what moves the lines that say where the slider is. */
function plots(run, charts) {
  const of = (key) => run.history.filter((at) => at[key] != null).map((at) => [at.round, at[key]]);
  const drawn = [];
  if (of("accuracy").length) drawn.push(lines("Test accuracy", [{ label: "accuracy", points: of("accuracy") }], { y: percent, axis: (at) => `${Math.round(100 * at)} %`, range: [0, 1] }));
  else if (of("rmse").length) drawn.push(lines("Test rmse", [{ label: "rmse", points: of("rmse") }], {}));
  if (of("loss").length) drawn.push(lines("Training loss", [{ label: "loss", points: of("loss") }], {}));
  const names = [...new Set(run.history.flatMap((at) => Object.keys(at.classes)))]
    .filter((name) => run.history.some((at) => at.classes[name]));
  if (names.length) drawn.push(stacked("Bytes sent, by class", names, run.history.map((at) => ({ x: at.round, parts: at.classes })), { y: bytes }));
  if (of("epsilon").length) drawn.push(lines("ε spent", [{ label: "ε", points: of("epsilon") }], { range: [0, Math.max(...of("epsilon").map(([, at]) => at))] }));
  replace(charts, drawn.map(({ element }) => element));
  return drawn.map(({ cursor }) => cursor);
}

function below(run) {
  const settings = Object.entries(run.options ?? {}).map(([name, value]) => ["set", `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`]);
  const view = new URLSearchParams([["protocol", run.protocol], ["parties", run.parties], ...settings]);
  return [run.says ? h("p", {}, "The audit before the start: exposed in one round ", h("strong", {}, run.says), ".") : null,
    run.picture ? h("p", {}, h("a", { href: `/adversary?${view}` }, "What coalitions would learn under these settings")) : null,
    run.scenario ? h("details", {}, h("summary", {}, "Scenario"), h("pre", { tabindex: "0" }, run.scenario)) : null];
}
