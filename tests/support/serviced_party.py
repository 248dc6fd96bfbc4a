"""A party that averages until it gets SIGTERM: `python serviced_party.py ROSTER NAME PLACE PARTIES LOG`.

Each vector is zero except for a unique number at the party's own place, so that an average shows who contributed what.
It runs with every release that it is started with, so it imports nothing of the tests.
"""

import json
import signal
import sys
import time
from pathlib import Path

import numpy as np

import tacit

roster, name, place, parties, log = sys.argv[1:]
stop = []


def note(**what):
    with Path(log).open("a") as file:
        file.write(json.dumps(what | {"release": tacit.__version__}) + "\n")
        file.flush()


with tacit.join(roster, me=name) as peer:

    def take(*_):
        stop.append(True)
        peer.drain()

    signal.signal(signal.SIGTERM, take)
    note(joined=True)
    peer.restore(np.zeros(int(parties)))
    while not stop:
        vector = np.zeros(int(parties))
        brought = 1 + int(place) + len(Path(log).read_text().splitlines()) / 4096  # no other contribution has it
        vector[int(place)] = brought
        note(brought=brought)
        begun = peer.rounds
        try:
            outcome = peer.average(vector)
        except tacit.TacitError as error:
            if not (stop and peer.rounds == begun):
                note(error=error.code, text=str(error), round=peer.rounds)
                time.sleep(0.2)
            continue
        average = outcome.average[name].tolist()
        note(round=peer.last.round, contributors=outcome.contributors, average=average)
