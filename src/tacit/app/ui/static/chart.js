// Line and bar charts as SVG: a few hundred points need no library.

import { h, s } from "./dom.js";

const WIDTH = 520, HEIGHT = 240, LEFT = 68, RIGHT = 14, TOP = 12, BOTTOM = 38;
const DASHES = ["", "7 4", "2 3", "9 3 2 3", "1 4", "12 4"];
const MARKS = 40;

/** Returns about four tick positions over a range, in steps of 1, 2 or 5. */
export function findTicks(low, high, whole = false) {
  const span = high - low || 1;
  const power = 10 ** Math.floor(Math.log10(span / 4));
  const factor = [1, 2, 5, 10].find((each) => span / (each * power) <= 5);
  const step = whole ? Math.max(1, Math.round(factor * power)) : factor * power;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

/**
 * Returns a range that fits the values with a little room, within limits that the values cannot pass. A curve that
 * hardly moves is not blown up: the range is at least as wide as `least`.
 */
export function fitRange(values, [bottom, top] = [-Infinity, Infinity], least = 0) {
  if (!values.length) return [0, 1];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = Math.max((high - low) * 0.08, (least - (high - low)) / 2, high === low && !least ? 0.5 : 0);
  return [Math.max(bottom, low - room), Math.min(top, high + room)];
}

/** Returns a percentage for an axis, with as many decimals as its steps need. */
export const formatPercentTick = (at, step) => `${(100 * at).toFixed(step < 0.01 ? 1 : 0)} %`;

/**
 * Returns a chart of several lines, each `{ label, points: [[x, y], …] }`. Lines differ in dashes as well as in
 * colour. `cursor(x)` moves a line to a position on the axis.
 */
export function drawLines(title, series, { x = "round", y = formatShort, axis = y, xs = String, whole = true, range } = {}) {
  const every = series.flatMap(({ points }) => points);
  const [right, [low, high]] = [Math.max(1, ...every.map(([at]) => at)), range ?? findRange(every.map(([, at]) => at))];
  const left = Math.min(right, whole ? 1 : 0);
  const position = makeScale(left, right === left ? left + 1 : right, low, high);
  const marker = s("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, x1: -10, x2: -10 });
  const curves = series.map(({ points }, number) => drawLine(points, number, position));
  const figure = makeFrame(title, describe(title, series, x, y), [
    drawAxes(position, left, right, low, high, x, xs, axis, whole), curves, marker]);
  const key = series.length > 1 ? drawLegend(series.map(({ label }) => label)) : null;
  const element = h("figure", { class: "chart" }, h("figcaption", {}, title), figure, key);
  const cursor = (at) => { const px = position.x(at); marker.setAttribute("x1", px); marker.setAttribute("x2", px); };
  return { element, cursor };
}

/** Returns a chart of stacked bars: `rows` of `{ x, parts: { name: value } }`. */
export function drawBars(title, names, rows, { y = String, x = "round" } = {}) {
  const high = Math.max(1, ...rows.map(({ parts }) => names.reduce((sum, name) => sum + (parts[name] ?? 0), 0)));
  const right = Math.max(1, ...rows.map((row) => row.x));
  const position = makeScale(0.5, right + 0.5, 0, high);
  const width = Math.max(1, Math.min(26, ((WIDTH - LEFT - RIGHT) / right) * 0.7));
  const bars = rows.flatMap(({ x: at, parts }) => {
    let sum = 0;
    return names.map((name, number) => {
      const from = sum;
      sum += parts[name] ?? 0;
      return s("rect", { class: `bar kind-${number}`, x: position.x(at) - width / 2, width,
        y: position.y(sum), height: Math.max(0, position.y(from) - position.y(sum)) });
    });
  });
  const marker = s("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, x1: -10, x2: -10 });
  const total = rows.length ? `; ${names.map((n) => `${n} ${y(rows.at(-1).parts[n] ?? 0)}`).join(", ")} in the last` : "";
  const figure = makeFrame(title, `${title}, by ${x}${total}`, [drawAxes(position, 1, right, 0, high, x, String, y, true), bars, marker]);
  const element = h("figure", { class: "chart" }, h("figcaption", {}, title), figure, drawLegend(names, "kind"));
  const cursor = (at) => { const px = position.x(at); marker.setAttribute("x1", px); marker.setAttribute("x2", px); };
  return { element, cursor };
}

/** Returns a sparkline: a curve without axes, for a list. */
export function drawSparkline(points) {
  if (points.length < 2) return s("svg", { class: "spark", viewBox: "0 0 90 24", "aria-hidden": "true" });
  const [low, high] = findRange(points.map(([, at]) => at));
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const path = points.map(([x, y], i) =>
    `${i ? "L" : "M"}${(2 + (86 * (x - first)) / (last - first)).toFixed(1)} ${(22 - (20 * (y - low)) / (high - low)).toFixed(1)}`);
  return s("svg", { class: "spark", viewBox: "0 0 90 24", "aria-hidden": "true" }, s("path", { d: path.join("") }));
}

const formatShort = (value) => String(Number(value.toPrecision(3)));

function findRange(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  if (!values.length) return [0, 1];
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

function makeScale(left, right, low, high) {
  return {
    x: (at) => LEFT + ((at - left) / (right - left)) * (WIDTH - LEFT - RIGHT),
    y: (at) => HEIGHT - BOTTOM - ((at - low) / (high - low)) * (HEIGHT - TOP - BOTTOM),
  };
}

function drawAxes(position, left, right, low, high, xLabel, xs, ys, whole) {
  const rows = findTicks(low, high);
  const step = rows.length > 1 ? rows[1] - rows[0] : 1;
  const across = rows.map((at) => s("g", { class: "tick" },
    s("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: position.y(at), y2: position.y(at) }),
    s("text", { x: LEFT - 8, y: position.y(at) + 4, "text-anchor": "end" }, ys(at, step))));
  const along = findTicks(left, right, whole).map((at) =>
    s("text", { x: position.x(at), y: HEIGHT - BOTTOM + 17, "text-anchor": "middle" }, xs(at)));
  const name = s("text", { class: "name", x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, xLabel);
  return s("g", { class: "axes" }, across, along, name);
}

function drawLine(points, number, position) {
  const path = points.map(([x, y], i) => `${i ? "L" : "M"}${position.x(x).toFixed(1)} ${position.y(y).toFixed(1)}`).join("");
  const dots = points.length <= MARKS
    ? points.map(([x, y]) => s("circle", { cx: position.x(x), cy: position.y(y), r: 2.6 })) : [];
  return s("g", { class: `series series-${number % DASHES.length}` },
    s("path", { d: path, "stroke-dasharray": DASHES[number % DASHES.length] }), dots);
}

function makeFrame(title, label, children) {
  return s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label }, children);
}

function describe(title, series, x, y) {
  const ends = series.filter(({ points }) => points.length)
    .map(({ label, points }) => `${label}: ${y(points.at(-1)[1])} at the end`);
  return `${title}, by ${x}. ${ends.join("; ")}`;
}

function drawLegend(names, kind = "series") {
  return h("ul", { class: "legend" }, names.map((name, number) => h("li", {},
    s("svg", { viewBox: "0 0 26 10", "aria-hidden": "true", class: `key ${kind}-${number % DASHES.length}` },
      kind === "series"
        ? s("path", { d: "M1 5H25", "stroke-dasharray": DASHES[number % DASHES.length] })
        : s("rect", { class: `bar kind-${number}`, x: 6, y: 0, width: 12, height: 10 })), name)));
}
