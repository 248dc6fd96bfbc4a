"""Writes docs/attacks.md and its pictures: what the attacks found.

`python docs/attacks.py --run decode epsilon` runs attacks in full and keeps their findings in attacks.json (all of them
without a name, which takes half an hour); `--draw` draws the pictures anew. Without either it writes the page from what
is kept, and with `--check` nothing at all: exit code 1 then says that the page is out of date.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tacit.app.reports import pictures
from tacit.auditing.render.text import ATTACK_VERDICTS
from tacit.core.progress import ignore_progress
from tacit.lab.attacks import collusion, eavesdropper_learning, inversion
from tacit.lab.attacks.attack_result import Attack, Finding
from tacit.lab.attacks.registry import ATTACKS, find_attack

HERE = Path(__file__).parent
PAGE, KEPT = HERE / "attacks.md", HERE / "attacks.json"
HEAD = """\
# What the attacks found

Written by `python docs/attacks.py` from full runs of `tacit attack NAME --full`. Every attack is tried on targets on
which it must win and on ones on which it must not. Values come with what they lie between: a 95 % interval of what was
sampled, bounds of what was accounted for, and nothing of what was counted out. That an attack fails shows only that
this attack fails, so such targets are *not broken by this*, never secure.
"""
PICTURES = {
    "eavesdropper": (
        "onlooker.png",
        "What the eavesdropper's network makes of runs of two classes, by the two main directions of its last layer. "
        "On sealed links all runs look the same.",
    ),
    "inversion": (
        "inversion.png",
        "Images of clients, and what the server makes of what it receives: one client's model under fedavg, its masked "
        "model under secagg, and the average over eight clients, in which the images are but not whose they are.",
    ),
    "collusion": (
        "collusion.png",
        "Random 25-regular graphs of 100 nodes in which colluding receivers put a node at risk, by masking "
        "requirement: one receiver as the paper counts, and two that compare their sums.",
    ),
}


NOTES = {
    "lies": """\
**One round.** A server tells each client of `secagg` who was asked, who is left and who is summed, in every way
there is. A lie works if the server learns a vector, a sum of fewer users than agreed, or more than one sum.

**Two and three rounds.** A server tries to make parties mask together that hold different models: from the sum of
one live model and dead ones the update of the live one follows. In each round it sends each party one of these:

- a sum of a live or a dead model, or one that weighs a single unit, in the units of any roster of the sequence. It
  names as the lineage before it any that a party has reached, that of the start, or a forged one;
- the last sum: any of these again, said to be of any round so far, to parties that have it or lack it;
- nothing, until the round fails.

Between rounds each party gets the next roster when it likes: the same one renewed, one user less or more, another
ring, or contributions that are changes (`norm`) and no longer models. Machines fail in a round, before or after the
sum is on disk. Programs start again from any model that they saved, and restore, continue from its lineage, or call
nothing. A Flower server sends one node other arrays, another order of them, other records, another function, or
another configuration.

A break is a group of the smallest sum or more that accepts each other's keys while two members hold different
models. Deployed clients answer. What becomes of a party depends on what it is sent alone, so the states of one
party are those of all, and a group is a choice of them. Where parties sign more than 40 different lineages, each is
tried with 8 others. Three rounds of programs that may fail are searched for rosters with the same ring.

Not covered: one bad model for all, an initial model from elsewhere, programs that name a lineage which their model
does not have or keep more of the past than the model, and folders that are put back from a copy.
""",
}
"""What an attack tries, where its findings do not say it."""


def kept() -> dict[str, Any]:
    """Returns what was found so far, by attack."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}


def stored_name(attack: Attack) -> str:
    """Returns the name under which findings are stored: the first that the attack ever had."""
    return attack.aliases[0] if attack.aliases else attack.name


def run(names: list[str]) -> None:
    """Runs attacks in full and keeps what they found."""
    for name in names or ATTACKS:
        found = kept()
        attack = find_attack(name)
        found[stored_name(attack)] = [asdict(finding) for finding in attack.run(True, 0, ignore_progress)]
        order = map(stored_name, ATTACKS.values())
        KEPT.write_text(json.dumps({each: found[each] for each in order if each in found}, indent=1), encoding="utf-8")


def draw() -> None:
    """Draws the pictures."""
    trials = [
        trial
        for trial in eavesdropper_learning.tables_1_and_2(eavesdropper_learning.QUICK)
        if trial.eavesdropper == "strong" and trial.target in ("CBGD", "PSGD", "PPSGD", "PPSGD, sealed links")
    ]
    rows = eavesdropper_learning.run_trials(trials, 0)
    named = [(f"{row.trial.target}: {row.accuracy:.0%} told", row.plane, row.labels) for row in rows]
    pictures.planes(named, str(HERE / "onlooker.png"))

    pictures.images(inversion.look(False, 0, ignore_progress)[1], str(HERE / "inversion.png"))

    lines = {}
    for name, count in (("one", collusion.one_receiver), ("two", collusion.two_receivers)):
        table = collusion.compute_figure6((5, 15, 25), graphs=20_000, count=count)
        for number in (5, 15, 25):
            lines[f"{name}, {number} collude"] = list(table), [table[s][number].value for s in table]
    dashed = [name for name in lines if name.startswith("two")]
    title = "Random graphs in which colluding receivers put a node at risk", "100 nodes of 25 neighbours, 20,000 graphs"
    axes = "masking requirement s", "share of graphs at risk"
    pictures.curves(lines, axes, str(HERE / "collusion.png"), dashed, title)


def page() -> str:
    """Returns the page."""
    lines = [HEAD]
    for name, findings in kept().items():
        attack = find_attack(name)
        lines += [
            f"## {attack.name}",
            "",
            f"{attack.summary[:1].upper()}{attack.summary[1:]}. Paper: {attack.paper}.",
            "",
        ]
        if attack.name in PICTURES:
            file, caption = PICTURES[attack.name]
            lines += [f"![{caption}]({file})", "", f"*{caption}*", ""]
        if attack.name in NOTES:
            lines.append(NOTES[attack.name])
        every = [Finding(**each) for each in findings]
        for tried in dict.fromkeys(finding.tried for finding in every):
            lines += [*table([finding for finding in every if finding.tried == tried]), ""]
    return "\n".join(lines)


def table(findings: list[Finding]) -> list[str]:
    """Returns the lines of a table of findings for which the same was tried."""
    printed = any(finding.paper for finding in findings)
    lines = [
        f"| target | measured | value | between | {findings[0].tried} | verdict |{' in the paper |' * printed}",
        f"| --- | --- | --- | --- | --- | --- |{' --- |' * printed}",
    ]
    for finding in findings:
        kind = "" if finding.has_interval else f" ({finding.bracket})"
        interval = f"{finding.low:.4g} to {finding.high:.4g}{kind}" if finding.bracket else ""
        values = f"{finding.value:.4g} | {interval} | {finding.samples:,} | {ATTACK_VERDICTS[finding.verdict]}"
        where = f" {finding.paper} |" if printed else ""
        target = finding.target.replace("an onlooker", "an eavesdropper")  # as it was called when it was stored
        lines.append(f"| {target} | {finding.measure} | {values} |{where}")
    return lines


def main() -> int:
    """Writes the page, or says whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", nargs="*", metavar="NAME", help="run these attacks in full first; all without a name")
    parser.add_argument("--draw", action="store_true", help="draw the pictures anew")
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    given = parser.parse_args()
    if given.run is not None:
        run(given.run)
    if given.draw:
        draw()
    if given.check:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
