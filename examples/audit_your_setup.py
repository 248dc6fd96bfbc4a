"""Audit of a setup like yours: one round, many rounds, dropouts, and parties that collude.

`python examples/audit_your_setup.py`. Replace `SETUP` by your own setup, with the options that you run. Nothing is
sent, and no data is needed. The exit code is 1 if any party is exposed, so that a pipeline can stop there.

"We run secure aggregation" answers the first question only.
"""

import sys
from typing import Any

import tacit
from tacit.designs import Batches

SETUP: dict[str, Any] = {"protocol": "secagg", "parties": 12}
ROUNDS = 40
DROPOUT = 0.02  # The probability with which a party misses a round.
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
    """Audits a setup for several questions, prints the results, and returns the questions with an exposure."""
    bad = {}
    for title, question in questions.items():
        report = tacit.audit(**setup, **question)
        print(f"  {title}: {'exposed: ' + ' '.join(report.exposed) if report.exposed else 'nobody is exposed'}")
        if report.exposed:
            print(f"    such as {next(iter(report.exposed.values()))}")
            bad[title] = question
    return bad


def main() -> int:
    """Audits the setup, and repeats the questions with an exposure for batches, which prevent it."""
    print("as it is:")
    bad = asked(SETUP, QUESTIONS)
    print("with whole batches of three, which clients enforce:")
    asked({**SETUP, "participation": Batches(12, 3)}, bad)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
