"""Cases for replay tests: every protocol and hardened mode, small enough to be interrupted at every point."""

from dataclasses import dataclass, field

import numpy as np

from tacit.core.suite import Update
from tacit.designs import Batches
from tacit.protocols import REGISTRY
from tacit.runtime.journal import Journal
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation

ENTRIES, ROUNDS = 3, 3


@dataclass(frozen=True)
class Case:
    """A protocol, its settings, and how many parties there are."""

    protocol: str
    parties: int = 4
    options: dict = field(default_factory=dict)

    @property
    def names(self):
        return tuple(f"p{place}" for place in range(self.parties))

    def simulation(self, **more):
        return Simulation.of(
            self.protocol, self.names, ENTRIES, **{"seed": 0, "record": True, "twin": True, **self.options, **more}
        )

    def updates(self, number, seed=0):
        rng = np.random.default_rng([seed, number])
        return {name: Update(rng.normal(size=ENTRIES)) for name in self.names}


CASES = {
    "fedavg": Case("fedavg"),
    "fedavg-batches": Case("fedavg", options={"participation": Batches(2, 2)}),
    "secagg": Case("secagg", options={"threshold": 3}),
    "secagg-batches": Case("secagg", options={"participation": Batches(2, 2)}),
    "secagg-sampled": Case("secagg", options={"sampled": 3, "oversampled": 4, "threshold": 3}),
    "secagg-noise": Case("secagg", options={"threshold": 3, "bits": 16, "noise": 0.5, "norm": 2.0}),
    "secagg-neighbours": Case("secagg", 6, {"neighbours": 4, "threshold": 4}),
    "gossip": Case("gossip", options={"graph": "ring"}),
    "gossip-topk": Case("gossip", options={"share": 0.5, "sparsifier": "topk"}),
    "gossip-change": Case("gossip", options={"share": 0.5, "sparsifier": "topk", "score": "change"}),
    "admm": Case("admm", 6, {"iterations": 2, "allow_leaks": True}),
    "admm-rhos": Case("admm", 6, {"rho": (3.0, 0.0009), "allow_leaks": True}),
    "admm-masked": Case("admm", 6, {"masked": True, "iterations": 2, "allow_leaks": True}),
    "admm-all-to-all": Case("admm", options={"masked": True, "group_size": None, "iterations": 3}),
    "pushsum": Case("pushsum", options={"private": True, "allow_leaks": True}),
    "pushsum-masked": Case("pushsum", options={"masked": True}),
    "pushsum-noise": Case("pushsum", options={"masked": True, "noise": 0.1, "rounding": "stochastic"}),
    "cesar": Case("cesar"),
    "cesar-random": Case("cesar", options={"share": 0.6}),
    "cesar-noise": Case("cesar", options={"share": 0.6, "noise": 0.1, "norm": 2.0}),
    "cesar-topk": Case("cesar", options={"share": 0.6, "sparsifier": "topk", "masking": 2}),
    "rotating": Case("rotating"),
    "rotating-stages": Case("rotating", 6, {"stages": 2, "share": 0.6}),
    "rotating-noise": Case("rotating", 6, {"noise": 0.1, "norm": 2.0, "minimum": 3}),
    "cesar-change": Case("cesar", options={"share": 0.6, "sparsifier": "topk", "score": "change"}),
}
assert {case.protocol for case in CASES.values()} == set(REGISTRY), "a new protocol is cut off like the others"


def journals(case, faults=()):
    """Returns, for each party, its participant, the journal of its second round, and the inputs of that round."""
    watching = [Fault(action="restart", party=party, step=10_000) for party in case.simulation().agreement.everyone]
    simulation = case.simulation(faults=[*watching, *faults])
    for number in (1, 2):
        simulation.average(case.updates(number))
    kept = {party: Journal.decode(each.encode(), each.tip) for party, each in simulation.last._journals.items()}
    return simulation, kept


def seat_and_journal(title="cesar-random", party="p1"):
    case = CASES[title]
    simulation, kept = journals(case)
    return simulation.participants[party].rebuild(), kept[party], case.updates(2)[party]
