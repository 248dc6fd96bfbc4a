"""Calls that a type checker must let pass, and what it must know of their results."""

from typing import assert_type

import numpy as np

import tacit
from tacit.protocols import find

VECTORS = [np.zeros(2)] * 3

out = tacit.aggregate(VECTORS, "secagg", threshold=3, weights=[1.0, 2.0, 1.0], exclude="head.*", seed=1)
assert_type(out, tacit.Outcome)
tacit.aggregate({"a": [1.0], "b": [2.0], "c": [3.0]}, "cesar", graph="ring", masking=1, include=["w"])
tacit.aggregate(VECTORS, "gossip", graph=[("p0", "p1"), ("p1", "p2")], sparsifier="topk", share=0.5)
tacit.aggregate(VECTORS, "admm", group_size=None, masked=True, rho=[0.1, 0.2], bits=64)
tacit.aggregate(
    VECTORS,
    "pushsum",
    graph={"kind": "directed", "degree": 2},
    private=True,
    y0=("uniform", 0.1, 1.0),
    allow_leaks=True,
)
tacit.aggregate(VECTORS, "fedavg", participation=tacit.designs.Random(2), faults=[{"action": "crash", "party": "p1"}])

federation = tacit.Federation("secagg", ("a", "b", "c"), neighbours="all", record=True)
assert_type(federation.average(VECTORS, absent="a"), tacit.Outcome)

report = tacit.audit("admm", parties=9, coalition=["p0"], group_size=3, drift="free", noise=0.1)
assert_type(report, tacit.Report)
assert_type(tacit.audit("secagg", parties=4, coalition="server", rounds=3), tacit.Report)
assert_type(tacit.audit("secagg", parties=["a", "b", "c"], coalition_size=2), list[tacit.Report])
assert_type(tacit.audit("secagg", parties=4), list[tacit.Report])

# A protocol of somebody else, or one whose name is known only when it is run, is given itself.
for name in ("secagg", "fedavg"):
    tacit.aggregate(VECTORS, find(name), threshold=3)
    assert_type(tacit.audit(find(name), parties=3, coalition="p0"), tacit.Report)
    assert_type(tacit.audit(find(name), parties=3, coalition_size=1), list[tacit.Report])
    tacit.Federation(find(name), ["a", "b", "c"])
