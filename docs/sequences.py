"""Draws docs/protocols/NAME-round.svg: who sends what to whom in one round, as it was recorded, and what it is to read.

`python docs/sequences.py` runs one round of each protocol with real keys and draws what the courier carried, in the
order in which it did. Every message is opened with its receiver's own keys: a vector in it that follows from one
party's model is drawn as that model, one that follows from several as their sum, and one that follows from none as
noise. With `--check` nothing is written; exit code 1 then says that a diagram is out of date.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

import tacit
from tacit.core.messages import Address, Message
from tacit.core.suite import SERVER
from tacit.runtime.simulation.transcript import Transcript

FOLDER = Path(__file__).with_name("protocols")
ENTRIES = 256
SPREAD = 6.0
"""The standard deviation of entries: large beside what ADMM adds to disguise them, and below the clip."""

LEFT, GAP, TOP, LANE, BAND = 214, 74, 58, 9, 20
"""Pixels: the column of names, between parties, above the first message, between arrows, and between steps."""

KINDS = {
    "model": "a model: whoever receives it reads the sender's",
    "sum": "a sum of several models",
    "noise": "a masked model: noise to whoever receives it",
    "rest": "everything else: who is there, keys, shares, sets, consents",
}


@dataclass(frozen=True)
class Case:
    """The round that is drawn of a protocol."""

    title: str
    parties: int
    options: Mapping[str, Any] = field(default_factory=dict)
    receiver: str | None = None
    """Draw only how this one receives, where everybody does and all at once would be too much."""


CASES = {
    "fedavg": Case("four parties and a server", 4),
    "secagg": Case("four parties and a server", 4),
    "gossip": Case("five nodes on a ring", 5, {"graph": "ring"}),
    "admm": Case("nine peers in threes, masked, two iterations", 9, {"masked": True, "iterations": 2}),
    "pushsum": Case(
        "five clients on one-way links, masked",
        5,
        {"masked": True, "graph": nx.DiGraph([(place, (place + hop) % 5) for place in range(5) for hop in (1, 2)])},
    ),
    "rotating": Case("six parties in two groups", 6),
    "cesar": Case(
        "how p0 receives, of ten nodes with three neighbours each",
        10,
        {"graph": {"kind": "regular", "degree": 3, "girth": 5}, "masking": 2},
        receiver="p0",
    ),
}


@dataclass(frozen=True)
class Arrow:
    """A message as it is drawn."""

    time: float
    address: Address
    size: int
    kind: str


def recorded(protocol: str, case: Case) -> list[Arrow]:
    """Returns what passed in a round, each message with what it is to its receiver."""
    rng = np.random.default_rng(0)
    vectors = {f"p{place}": rng.normal(0, SPREAD, ENTRIES) for place in range(case.parties)}
    out = tacit.aggregate(vectors, protocol, seed=0, record=True, **case.options)
    transcript = out.transcript
    if transcript is None:
        raise AssertionError("the round was not recorded")
    opened = {
        (address.sender, address.to, address.kind, nth): message
        for to in (*vectors, SERVER)
        if to in transcript.holdings
        for address, message, nth in _numbered(transcript, to)
    }
    arrows, counted = [], dict[tuple[str, str, str], int]()
    for passed in transcript:
        address = passed.envelope.address
        way = address.sender, address.to, address.kind
        counted[way] = counted.get(way, 0) + 1
        kind = _kind(transcript, opened[*way, counted[way]], vectors)
        arrows.append(Arrow(passed.time, address, len(passed.envelope.sealed), kind))
    return [arrow for arrow in arrows if case.receiver is None or _received_by(case.receiver, arrow.address)]


def _numbered(transcript: Transcript, to: str) -> Iterator[tuple[Address, Message, int]]:
    """Yields what a party received, with how many of that kind it had of the same sender."""
    counted = dict[tuple[str, str], int]()
    for address, message in transcript.open_messages(to):
        if address.to == to:
            counted[address.sender, address.kind] = counted.get((address.sender, address.kind), 0) + 1
            yield address, message, counted[address.sender, address.kind]


def _received_by(receiver: str, address: Address) -> bool:
    # A receiver of cesar sends turns, and its neighbours send it everything else.
    return address.sender == receiver if address.kind == "Turn" else address.to == receiver


def _kind(transcript: Transcript, message: Message, vectors: Mapping[str, np.ndarray]) -> str:
    """Returns what a message is to read, by least squares on everybody's vectors."""
    packed = getattr(message, "vector", None)
    if packed is None:
        return "rest"
    ring = transcript.ring()
    found = ring.floats(ring.unpack(packed, len(packed) * 8 // ring.bits))[:ENTRIES]
    models = np.array(list(vectors.values())).T
    # What ADMM adds has a mean, which everybody knows.
    known, found = models - models.mean(axis=0), found - found.mean()
    parts, *_ = np.linalg.lstsq(known, found, rcond=None)
    left = found - known @ parts
    if left @ left > 0.5 * (found @ found):
        return "noise"
    return "model" if np.count_nonzero(np.abs(parts) > 0.1 * np.abs(parts).max()) == 1 else "sum"


# --- drawing -------------------------------------------------------------------------------------------------------

STYLE = """
    text { font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; font-size: 13px; fill: #24292f; }
    .name, .step { font-weight: 600; } .small { font-size: 11.5px; fill: #57606a; }
    .life { stroke: #c4cad1; } .split { stroke: #eaeef2; }
    path { fill: none; }
    .rest { stroke: #6e7781; stroke-width: 1; } .rest-tip { fill: #6e7781; }
    .model { stroke: #bc4c00; stroke-width: 2.4; } .model-tip { fill: #bc4c00; }
    .noise { stroke: #0969da; stroke-width: 2.4; stroke-dasharray: 2 3; } .noise-tip { fill: #0969da; }
    .sum { stroke: #116329; stroke-width: 2.4; stroke-dasharray: 9 3; } .sum-tip { fill: #116329; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; } .small { fill: #9198a1; } .life { stroke: #4b535d; } .split { stroke: #2f363f; }
      .rest { stroke: #9198a1; } .rest-tip { fill: #9198a1; }
      .model { stroke: #f0883e; } .model-tip { fill: #f0883e; }
      .noise { stroke: #58a6ff; } .noise-tip { fill: #58a6ff; }
      .sum { stroke: #56d364; } .sum-tip { fill: #56d364; }
    }"""


def drawn(protocol: str, case: Case, arrows: Sequence[Arrow]) -> str:
    """Returns a round as SVG."""
    seen = {name for arrow in arrows for name in (arrow.address.sender, arrow.address.to)}
    parties = sorted(seen - {SERVER}, key=lambda name: int(name[1:])) + sorted(seen & {SERVER})
    at = {name: LEFT + 36 + GAP * place for place, name in enumerate(parties)}
    width = max(at.values()) + 46
    body, y = [], TOP
    for (_, _), step in groupby(arrows, key=lambda arrow: (arrow.time, arrow.address.kind)):
        band = list(step)
        lanes = _lanes(band, at)
        body += _named(band, y)
        for arrow, lane in zip(band, lanes, strict=True):
            body.append(_arrow(arrow, at, y + LANE * lane))
        y += max(30, LANE * (max(lanes) + 1) + BAND)
        body.append(f'<path class="split" d="M8 {y - 13}h{width - 16}"/>')
    shown = [kind for kind in KINDS if any(arrow.kind == kind for arrow in arrows)]
    lives = [f'<path class="life" d="M{x} {TOP - 16}V{y - 13}"/>' for x in at.values()]
    names = [f'<text class="name" x="{x}" y="{TOP - 24}" text-anchor="middle">{name}</text>' for name, x in at.items()]
    title = f"A round of {protocol}: {case.title}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y + 22 * len(shown)}" '
            f'viewBox="0 0 {width} {y + 22 * len(shown)}" role="img" aria-labelledby="title text">',
            f'  <title id="title">{escape(title)}</title>',
            f'  <desc id="text">{escape(_told(arrows))}</desc>',
            f"  <style>{STYLE}\n  </style>",
            "  <defs>",
            *map(_tip, KINDS),
            "  </defs>",
            f'  <text class="small" x="8" y="14">{escape(title[0].upper() + title[1:])}</text>',
            *(f"  {line}" for line in (*lives, *names, *body)),
            *(f"  {line}" for place, kind in enumerate(shown) for line in _legend(kind, y + 8 + 22 * place)),
            "</svg>\n",
        ]
    )


def _lanes(band: Sequence[Arrow], at: Mapping[str, int]) -> list[int]:
    """Returns a lane for each arrow: the first in which it meets no other."""
    taken: list[list[tuple[int, int]]] = []
    lanes = []
    for arrow in band:
        left, right = sorted((at[arrow.address.sender], at[arrow.address.to]))
        lane = next((n for n, spans in enumerate(taken) if all(right < a or b < left for a, b in spans)), len(taken))
        if lane == len(taken):
            taken.append([])
        taken[lane].append((left, right))
        lanes.append(lane)
    return lanes


def _named(band: Sequence[Arrow], y: int) -> list[str]:
    sizes = sorted({arrow.size for arrow in band})
    size = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    return [
        f'<text class="step" x="8" y="{y + 4}">{band[0].address.kind}</text>',
        f'<text class="small" x="8" y="{y + 19}">{len(band)} of {size} bytes</text>',
    ]


def _arrow(arrow: Arrow, at: Mapping[str, int], y: int) -> str:
    start, end = at[arrow.address.sender], at[arrow.address.to]
    before = end - 7 if end > start else end + 7
    return (
        f'<circle class="{arrow.kind}-tip" cx="{start}" cy="{y}" r="2.6"/>'
        f'<path class="{arrow.kind}" d="M{start} {y}H{before}" marker-end="url(#{arrow.kind})"/>'
    )


def _tip(kind: str) -> str:
    return (
        f'    <marker id="{kind}" viewBox="0 0 8 8" refX="1" refY="4" markerWidth="7" markerHeight="7" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path class="{kind}-tip" d="M0 0l8 4l-8 4z"/></marker>'
    )


def _legend(kind: str, y: int) -> list[str]:
    return [
        f'<path class="{kind}" d="M8 {y}h38" marker-end="url(#{kind})"/>',
        f'<text class="small" x="62" y="{y + 4}">{KINDS[kind]}</text>',
    ]


def _told(arrows: Sequence[Arrow]) -> str:
    """Returns the diagram in words, for those who cannot see it."""
    steps = groupby(arrows, key=lambda arrow: (arrow.time, arrow.address.kind, arrow.kind))
    return ". ".join(f"{kind}: {len(list(step))} messages, {KINDS[read]}" for (_, kind, read), step in steps) + "."


def main() -> int:
    """Draws every protocol, or checks the drawings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a diagram is out of date")
    options = parser.parse_args()
    stale = 0
    for protocol, case in CASES.items():
        path = FOLDER / f"{protocol}-round.svg"
        text = drawn(protocol, case, recorded(protocol, case))
        if not options.check:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{path.name} is out of date; run: python docs/sequences.py\n")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
