"""Writes docs/attacks.md with its pictures, and the table of attacks on docs/claims.md.

`python docs/attacks.py --run decode epsilon` runs attacks in full and keeps their findings in attacks.json (all of them
without a name, which takes half an hour). `--draw` draws the pictures anew. Without either it writes the pages from
what is kept. With `--check` it writes nothing, and exit code 1 says that a page is out of date.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tacit.app.reports import pictures
from tacit.auditing.render.verdicts import ATTACK_VERDICTS
from tacit.core.progress import ignore_progress
from tacit.lab.attacks import collusion, eavesdropper_learning, inversion
from tacit.lab.attacks.attack_result import Attack, Finding
from tacit.lab.attacks.registry import ATTACKS, find_attack

HERE = Path(__file__).parent
PAGE, CLAIMS, KEPT = HERE / "attacks.md", HERE / "claims.md", HERE / "attacks.json"
HEAD = """\
# Attacks: all results

*Reference.* What did each attack find? [Claims and attacks](claims.md#attacks-in-one-table) has the summary.
If you sign off a federation, the summary is enough.

| column | meaning |
| --- | --- |
| target | a protocol with its settings; each attack has targets that it must break and targets that it must not break |
| value | the result; *found to 1e-09* means up to an error of 0.000000001, which is as good as exactly |
| between | a 95 % interval if trials were sampled, bounds of an accountant, or empty if all cases were tried |
| tries | the number of trials |
| verdict | *broken*, or *not broken by this*: this attack fails, which does not show that the target is secure |

`python docs/attacks.py` writes this page from full runs of `tacit attack NAME --full`.
"""
SUMMARY = {
    "admm": (
        "a curious peer solves for vectors of peers that were twice in its group, or from group sums",
        "few iterations with masks",
    ),
    "decode": (
        "an eavesdropper decodes local models with quadratic losses",
        "encrypted (sealed) links, as Tacit always uses",
    ),
    "eavesdropper": (
        "an eavesdropper tells from traffic whether a client's data changed",
        "encrypted (sealed) links; noise stops it only in part",
    ),
    "receiver": ("a receiver of `pushsum` finds a sender's vector up to a factor", "`masked=True`"),
    "disaggregate": ("a server separates the sums of many rounds into users", "whole batches, `Batches(K, T)`"),
    "epsilon": ("an observer measures more privacy loss than the claimed ε", "noise calibrated for honest users"),
    "collusion": ("colluding receivers of `cesar` compare their sums", "a larger masking requirement s"),
    "rotation": (
        "members of `rotating` groups solve averages of overlapping groups",
        "new vectors in each round, and a `minimum` of two more than the members",
    ),
    "inversion": (
        "a server reconstructs images from gradients",
        "`secagg` hides the owner; averages still show images and labels",
    ),
    "lies": (
        "a malicious server sends parties different sets, sums or models",
        "the deployed precautions; two sums of the agreed size remain possible",
    ),
}
"""By attack: what the adversary does, and what stopped it in these runs."""
PICTURES = {
    "eavesdropper": (
        "onlooker.png",
        "Runs of two classes as the eavesdropper's network sees them: the two main directions of its last layer. On "
        "sealed links all runs look the same.",
    ),
    "inversion": (
        "inversion.png",
        "Images of clients, and what the server reconstructs: from one client's model under fedavg, from its masked "
        "model under secagg, and from the average over eight clients. The average shows images, not whose they are.",
    ),
    "collusion": (
        "collusion.png",
        "Share of random 25-regular graphs of 100 nodes in which colluding receivers put a node at risk, by masking "
        "requirement. Lines: one receiver, as the paper counts. Dashed: two that compare their sums.",
    ),
}


NOTES = {
    "lies": """\
**One round.** A server tells each client of `secagg` which users were asked, are left and are summed, in every
possible way. A lie works if the server learns a vector, a sum of fewer users than agreed, or more than one sum.

**Two and three rounds.** A server tries to make parties mask together that hold different models. The sum of one live
model and dead ones then shows the update of the live one. In each round it sends each party one of these:

- A sum of a live or a dead model, or one with a weight of a single unit, in the units of any roster of the sequence. As
  the lineage before it, it names any that a party has reached, that of the start, or a forged one.
- The last sum: any of these again, said to be of any round so far, to parties that have it or lack it.
- Nothing, until the round fails.

Between rounds each party may get the next roster: the same one renewed, one user less or more, another ring, or
contributions that are changes (`norm`) and no longer models. Machines fail in a round, before or after the sum is on
disk. Programs start again from any model that they saved. They restore, continue from its lineage, or call nothing. A
Flower server sends one node other arrays, another order of them, other records, another function, or another
configuration.

A break is a group of the smallest sum or more that accepts each party's keys while two members hold different models.
Deployed clients answer. The state of a party depends only on what it is sent, so one party's states are those of all,
and a group is a choice of them. Where parties sign more than 40 different lineages, each is tried with 8 others. Three
rounds of programs that may fail are searched for rosters with the same ring.

Not covered:

- One bad model for all, or an initial model from elsewhere.
- Programs that name a lineage which their model does not have, or that keep more of the past than the model.
- Folders restored from a copy.
""",
}
"""What an attack tries, where its findings do not state it."""


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
            lines += [f"![{caption}]({file})", "", f"*{caption.removesuffix('.')}*.", ""]
        if attack.name in NOTES:
            lines.append(NOTES[attack.name])
        every = [Finding(**each) for each in findings]
        for tried in dict.fromkeys(finding.tried for finding in every):
            lines += [*table([finding for finding in every if finding.tried == tried]), ""]
    return "\n".join(lines)


def claims_page() -> str:
    """Returns docs/claims.md with the summary of all attacks."""
    lines = [
        "| attack | adversary and aim | broken | not broken by this | stopped by |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for name, findings in kept().items():
        attack = find_attack(name).name
        aim, remedy = SUMMARY[attack]
        broken = sum(each["broken"] for each in findings)
        lines.append(f"| [{attack}](attacks.md#{attack}) | {aim} | {broken} | {len(findings) - broken} | {remedy} |")
    start, end = (f"<!-- {mark}attacks-summary -->" for mark in ("", "/"))
    before, _, rest = CLAIMS.read_text(encoding="utf-8").partition(start)
    return f"{before}{start}\n\n{chr(10).join(lines)}\n\n{end}{rest.partition(end)[2]}"


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
    """Writes the pages, or checks whether they are up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", nargs="*", metavar="NAME", help="run these attacks in full first; all without a name")
    parser.add_argument("--draw", action="store_true", help="draw the pictures anew")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a page is out of date")
    given = parser.parse_args()
    if given.run is not None:
        run(given.run)
    if given.draw:
        draw()
    for path, text in {PAGE: page(), CLAIMS: claims_page()}.items():
        if not given.check:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
