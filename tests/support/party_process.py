"""A party in a process of its own: `python party_process.py ROSTER NAME PLACE PARTIES ROUNDS LOG`.

Everybody brings zeros but for a number of its own, in its own place, so that an average tells who is in it with what.
What is brought is in the log before it leaves, and what comes of it after.
"""

import json
import sys
from pathlib import Path

import numpy as np

import tacit

roster, name, place, parties, rounds, log = sys.argv[1:]


def note(**what):
    with Path(log).open("a") as file:
        file.write(json.dumps(what) + "\n")
        file.flush()


with tacit.join(roster, me=name) as peer:
    peer.restore(np.zeros(int(parties)))  # as a program does that was killed between rounds
    while peer.rounds < int(rounds):
        vector = np.zeros(int(parties))
        # No other number is ever brought by anybody.
        vector[int(place)] = 1 + int(place) + (peer.rounds + 1) / 1024
        note(brought=vector[int(place)])
        try:
            outcome = peer.average(vector)
        except tacit.TacitError as error:
            note(error=error.code, text=str(error))
            continue
        note(round=peer.last.round, contributors=outcome.contributors, average=outcome.average[name].tolist())
