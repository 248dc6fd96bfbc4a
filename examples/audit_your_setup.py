"""Who could learn whose model in a setup like yours: one round, many rounds, bad days, and parties that collude.

`python examples/audit_your_setup.py`. Put your own setup in the place of `SETUP`, with the options that you run.
Nothing is sent, and no data is needed. The exit code is 1 if anybody is exposed, so that a pipeline can stop there.

"We run secure aggregation" is an answer to the first question only.
"""

import sys
from typing import Any

import tacit
from tacit.designs import Batches

SETUP: dict[str, Any] = {"protocol": "secagg", "parties": 12}
ROUNDS = 40
DROPOUT = 0.02  # the chance with which a party misses a round
SERVER = ["server"]

QUESTIONS: dict[str, dict[str, Any]] = {
    "the server, in one round": {"coalition": SERVER},
    "the server and two parties, in one round": {"coalition": [*SERVER, "p0", "p1"]},
    f"the server, in {ROUNDS} rounds to which all come": {"coalition": SERVER, "rounds": ROUNDS},
    f"the server, in {ROUNDS} rounds, some missing": {"coalition": SERVER, "rounds": ROUNDS, "dropout": DROPOUT},
    "the same, if models change from round to round": {
        "coalition": SERVER,
        "rounds": ROUNDS,
        "dropout": DROPOUT,
        "drift": "free",
    },
}


def asked(setup: dict[str, Any], questions: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Asks questions of a setup, prints the answers, and returns the questions of which the answer was bad."""
    bad = {}
    for title, question in questions.items():
        report = tacit.audit(**setup, **question)
        print(f"  {title}: {'exposed: ' + ' '.join(report.exposed) if report.exposed else 'nobody is exposed'}")
        if report.exposed:
            print(f"    such as {next(iter(report.exposed.values()))}")
            bad[title] = question
    return bad


def main() -> int:
    """Audits the setup, and asks what was bad again of the same with batches, which is what helps."""
    print("as it is:")
    bad = asked(SETUP, QUESTIONS)
    print("with whole batches of three, which clients enforce:")
    asked({**SETUP, "participation": Batches(12, 3)}, bad)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
