// Comparison of runs: accuracy by round, and by the bytes sent.

import { formatBytes, formatPercent, formatScore, h, replace } from "./dom.js";
import { drawLines, fitRange, formatPercentTick } from "./chart.js";
import { get } from "./events.js";

export function compare(root, query) {
  document.title = "Comparison · Tacit";
  const ids = query.getAll("run").slice(0, 6);
  const body = h("div", { "aria-busy": "true" });
  replace(root, h("h1", {}, "Comparison"), body);
  let left = false;
  Promise.all(ids.map((id) => get(`/api/run?${new URLSearchParams({ id })}`))).then((found) => {
    const begun = found.filter((run) => run.history?.length);
    body.removeAttribute("aria-busy");
    if (!left) replace(body, begun.length ? drawComparison(begun) : h("p", {}, "No round of these runs has ended yet. ", h("a", { href: "/" }, "All runs")));
  });
  return () => { left = true; };
}

function drawComparison(runs) {
  const labels = chooseLabels(runs);
  const how = runs.every((run) => run.accuracy == null) ? ["rmse", "Test rmse"] : ["accuracy", "Test accuracy"];
  const [key, title] = how;
  const shown = key === "accuracy" ? formatPercent : (at) => at.toFixed(2);
  const axis = key === "accuracy" ? formatPercentTick : shown;
  const values = runs.flatMap((run) => run.history.map((at) => at[key]).filter((at) => at != null));
  const range = key === "accuracy" ? fitRange(values, [0, 1], 0.02) : fitRange(values);
  const along = (across) => runs.map((run, i) => ({ label: labels[i], points: across(run) }));
  const byRound = along((run) => run.history.filter((at) => at[key] != null).map((at) => [at.round, at[key]]));
  const byBytes = along((run) => {
    let sum = 0;
    return run.history.map((at) => [(sum += at.bytes) / run.parties, at[key]]).filter(([, at]) => at != null);
  });
  return [h("div", { class: "charts" },
    drawLines(`${title} against rounds`, byRound, { y: shown, axis, range }).element,
    drawLines(`${title} against bytes`, byBytes, { x: "sent by a party", y: shown, axis, xs: formatBytes, range, whole: false }).element),
    makeTable(runs, labels)];
}

/** Returns a label for each run: its protocol if all differ, its title otherwise. */
function chooseLabels(runs) {
  const protocols = runs.map((run) => run.protocol);
  return new Set(protocols).size === runs.length ? protocols : runs.map((run) => `${run.title} (${run.id})`);
}

function makeTable(runs, labels) {
  const heads = ["run", "state", "rounds", "score", "sent by a party", "ε", "verdict of the audit"];
  const rows = runs.map((run, i) => h("tr", {},
    h("th", { scope: "row" }, h("a", { href: `/run?${new URLSearchParams({ id: run.id })}` }, labels[i])),
    [run.state, `${run.done} of ${run.rounds}`, formatScore(run), formatBytes(run.bytes / run.parties),
      run.epsilon == null ? "–" : run.epsilon.toPrecision(3), run.verdict?.heading || run.says || "–"].map((text) => h("td", {}, text))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The runs in figures" },
    h("table", { class: "scores" }, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, rows)));
}
