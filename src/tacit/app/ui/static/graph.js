// Graph of the parties: on a circle, around their server, or in groups that change.

import { s } from "./dom.js";

const SIZE = 600, MIDDLE = SIZE / 2;
const EAVESDROPPER = "onlooker"; // its name in coalitions
const LONGEST = 16; // characters of a name in the picture

/**
 * Returns the graph of the parties. `show({ phase, roles, captions, absent })` updates it: the phase of the picture, the
 * role of each party ("member", "exposed"), the caption under its name, and who is missing. With `toggle` parties are
 * buttons. `names` are the real names of parties, where they have some.
 */
export function drawGraph({ parties, server, picture, toggle, eavesdropper, label, names = {} }) {
  const everyone = [...parties, ...(server ? ["server"] : []), ...(eavesdropper ? [EAVESDROPPER] : [])];
  const outside = parties.some((party) => (names?.[party] ?? party).length > 6);  // long names are written below
  const radius = Math.max(7, Math.min(27, (Math.PI * 245 * 0.72) / Math.max(parties.length, 6)));
  const [ties, hulls] = [s("g", { class: "ties" }), s("g", { class: "hulls" })];
  const nodes = Object.fromEntries(everyone.map((party) => [party, makeNode(party, party === "server" ? 34 : Math.min(radius, party === EAVESDROPPER ? 20 : radius), toggle, names?.[party] ?? party, outside)]));
  const order = [...(server ? ["server"] : []), ...parties, ...(eavesdropper ? [EAVESDROPPER] : [])];
  const element = s("svg", { class: "graph", viewBox: `0 0 ${SIZE} ${SIZE}`, role: "group", "aria-label": label },
    makeArrow(), hulls, ties, order.map((party) => nodes[party].element));
  if (toggle) element.addEventListener("keydown", (event) => moveFocus(event, order, nodes));

  function show({ phase = 0, roles = {}, captions = {}, absent = [] } = {}) {
    const now = picture?.phases[phase % picture.phases.length] ?? {};
    const where = findPositions(parties, server, now.groups, radius);
    if (eavesdropper) where[EAVESDROPPER] = [SIZE - 30, SIZE - 40];
    for (const party of everyone)
      nodes[party].show(where[party], roles[party] ?? "plain", captions[party] ?? "", absent.includes(party));
    hulls.replaceChildren(...(now.groups ?? []).map((group) => drawHull(group.map((i) => where[parties[i]]), radius)));
    ties.replaceChildren(...listEdges(parties, server, picture, now)
      .map(([a, b]) => drawEdge(where[a], where[b], picture.directed, radius, isSeen(roles, a, b), absent.includes(a) || absent.includes(b))));
  }
  return { element, show };
}

const isSeen = (roles, a, b) => roles[a] === "member" || roles[b] === "member";

/** Returns the position of every party: on a circle, or around the centre of its group. */
function findPositions(parties, server, groups, radius) {
  const found = server ? { server: [MIDDLE, MIDDLE] } : {};
  const around = (center, out, i, n) => {
    const angle = (2 * Math.PI * i) / n - Math.PI / 2;
    return [center[0] + out * Math.cos(angle), center[1] + out * Math.sin(angle)];
  };
  if (!groups || groups.length === 1) {
    parties.forEach((party, i) => { found[party] = around([MIDDLE, MIDDLE], 245, i, parties.length); });
    return found;
  }
  const largest = Math.max(...groups.map((group) => group.length));
  const inner = (radius * 1.5) / Math.sin(Math.PI / Math.max(largest, 2));
  const outer = SIZE / 2 - inner - radius - 14;
  groups.forEach((group, g) => {
    const center = around([MIDDLE, MIDDLE], outer, g, groups.length);
    group.forEach((i, k) => { found[parties[i]] = around(center, inner, k, group.length); });
  });
  return found;
}

function listEdges(parties, server, picture, now) {
  if (server) return parties.map((party) => ["server", party]);
  return (now.edges ?? []).map(([a, b]) => [parties[a], parties[b]]);
}

function drawEdge([x1, y1], [x2, y2], directed, radius, seen, absent) {
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  const gap = directed ? (radius + 5) / length : 0;
  const kind = `tie${seen ? " seen" : ""}${absent ? " absent" : ""}`;
  return s("line", { class: kind, x1, y1, x2: x2 - (x2 - x1) * gap, y2: y2 - (y2 - y1) * gap,
    "marker-end": directed ? "url(#arrow)" : null });
}

function drawHull(points, radius) {
  const cx = points.reduce((sum, [x]) => sum + x, 0) / points.length;
  const cy = points.reduce((sum, [, y]) => sum + y, 0) / points.length;
  const out = Math.max(...points.map(([x, y]) => Math.hypot(x - cx, y - cy)));
  return s("circle", { class: "hull", cx, cy, r: out + radius + 9 });
}

function makeArrow() {
  return s("defs", {}, s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" },
    s("path", { class: "arrow", d: "M0 0.8L7 4L0 7.2z" })));
}

/** Returns the node of a party: a circle, a square if it is in the coalition, a diamond if it is exposed. */
function makeNode(party, r, toggle, name, below) {
  const [wide, tall] = [r * 1.85, r * 1.32];
  const outside = name.length > 6 || (below && party !== "server");
  const size = outside ? 13 : Math.max(8, r * (name.length > 4 ? 0.52 : 0.82));
  const text = s("text", { class: `who${outside ? " outside" : ""}`, y: outside ? r + 15 : r * 0.3, "font-size": size }, name.length > LONGEST ? `${name.slice(0, LONGEST - 1)}…` : name);
  const under = s("text", { class: "caption", y: outside ? r + 30 : tall + 14, "text-anchor": "middle" });
  const element = s("g", { class: "node plain", ...(toggle ? { role: "button", tabindex: "0", "aria-pressed": "false", "data-party": party,
    onclick: () => toggle(party), onkeydown: (event) => onPress(event, () => toggle(party)) } : {}) },
    !toggle && name.length > LONGEST ? s("title", {}, name) : null,
    s("circle", { class: "ring", r: r + 5 }),
    s("circle", { class: "shape circle", r }),
    s("rect", { class: "shape square", x: -wide / 2, y: -wide / 2, width: wide, height: wide, rx: r * 0.28 }),
    s("path", { class: "shape diamond", d: `M0 ${-tall}L${tall} 0L0 ${tall}L${-tall} 0z` }), text, under);
  function show(where, role, caption, absent) {
    element.setAttribute("class", `node ${role}${absent ? " absent" : ""}`);
    element.style.transform = `translate(${where[0]}px, ${where[1]}px)`;
    under.textContent = caption;
    if (!toggle) return;
    element.setAttribute("aria-pressed", String(role === "member"));
    element.setAttribute("aria-label", [name, role === "member" && "in the coalition", role === "exposed" && "exposed", caption,
      absent && "missing"].filter(Boolean).join(", "));
  }
  return { element, show };
}

function onPress(event, action) {
  if (event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  action();
}

/** Moves the focus from party to party with the arrow keys. */
function moveFocus(event, order, nodes) {
  const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const at = order.findIndex((party) => nodes[party].element === document.activeElement);
  if (!move || at < 0) return;
  event.preventDefault();
  nodes[order[(at + move + order.length) % order.length]].element.focus();
}
