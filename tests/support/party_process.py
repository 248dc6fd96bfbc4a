"""A party in a process of its own: `python party_process.py ROSTER NAME PLACE PARTIES ROUNDS LOG [PAUSE]`.

Each vector is zero except for a unique number at the party's own place, so that an average shows who contributed what.
A vector is logged before it is sent, and the result of the round after it.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

import tacit

roster, name, place, parties, rounds, log, pause = [*sys.argv[1:], "0"][:7]


def note(**what):
    with Path(log).open("a") as file:
        file.write(json.dumps(what) + "\n")
        file.flush()


with tacit.join(roster, me=name) as peer:
    peer.restore(np.zeros(int(parties)))  # as a program does that was killed between rounds
    while peer.rounds < int(rounds):
        vector = np.zeros(int(parties))
        # No other contribution ever has this number.
        vector[int(place)] = 1 + int(place) + (peer.rounds + 1) / 1024
        note(brought=vector[int(place)])
        try:
            outcome = peer.average(vector)
        except tacit.TacitError as error:
            note(error=error.code, text=str(error))
            continue
        note(round=peer.last.round, contributors=outcome.contributors, average=outcome.average[name].tolist())
        time.sleep(float(pause))
