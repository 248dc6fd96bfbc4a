"""Calls that a type checker must not let pass: every one is marked, and nothing else may be."""

import numpy as np

import tacit

VECTORS = [np.zeros(2)] * 3

tacit.aggregate(VECTORS, "secag")  # wrong
tacit.aggregate(VECTORS, "secagg", treshold=3)  # wrong
tacit.aggregate(VECTORS, "secagg", threshold="3")  # wrong
tacit.aggregate(VECTORS, "secagg", graph="ring")  # wrong
tacit.aggregate(VECTORS, "gossip", graph="rng")  # wrong
tacit.aggregate(VECTORS, "gossip", sparsifier="top")  # wrong
tacit.aggregate(VECTORS, "secagg", weight=[1.0, 2.0, 1.0])  # wrong
tacit.aggregate(VECTORS, "secagg", bits=33)  # wrong
tacit.aggregate(VECTORS, "pushsum", y0="unform")  # wrong
tacit.Federation("secag", ["a", "b", "c"])  # wrong
tacit.Federation("secagg", ["a", "b", "c"], treshold=3)  # wrong
tacit.Federation("secagg", 3)  # wrong
tacit.audit("secag", parties=4, coalition="p0")  # wrong
tacit.audit("secagg", parties=4, coalition="p0", treshold=3)  # wrong
tacit.audit("secagg", parties=4, coalition="p0", drift="none")  # wrong
tacit.audit("secagg", coalition="p0")  # wrong
tacit.audit("secagg", parties=4, coalition="p0", coalition_size=1)  # wrong
tacit.audit("secagg", parties=4, coalition_size=2).exposed  # wrong  # noqa: B018
tacit.audit("secagg", parties=4, coalition=["p0"])[0]  # wrong
tacit.Fault(action="crash", paty="p1")  # wrong
tacit.plan("12")  # wrong
