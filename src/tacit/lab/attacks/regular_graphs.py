"""Random regular graphs, generated many at a time and close to uniformly."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError

Graphs: TypeAlias = NDArray[np.bool_]
"""Adjacency matrices, one per graph."""
Marks: TypeAlias = NDArray[np.bool_]
Whole: TypeAlias = NDArray[np.int64]


class _Multigraphs:
    """Regular multigraphs during generation, all in lockstep. Slots 2e and 2e + 1 hold the ends of edge e."""

    def __init__(self, nodes: int, degree: int, count: int, rng: np.random.Generator) -> None:
        """Draws graphs from the pairing model: `degree` stubs per node, joined at random, including loops and double
        edges."""
        self.nodes, self.count, self.rng = nodes, count, rng
        self.slots, self.edges = nodes * degree, nodes * degree // 2
        stubs = np.repeat(np.arange(nodes, dtype=np.int32), degree)
        self.ends = rng.permuted(np.tile(stubs, (count, 1)), axis=1).ravel()
        # Cell (u, v), u ≤ v, of each graph's matrix counts the edges that join u and v. Until the end a node counts as
        # joined to itself, so that a loop never looks like a missing edge.
        self.copies = np.zeros((count, nodes, nodes), np.uint8)
        self.copies[:, range(nodes), range(nodes)] = 1
        self.flat = self.copies.reshape(-1)
        self.first_slot, self.first_cell = np.arange(count) * self.slots, np.arange(count) * nodes**2

        u, v = self.ends[0::2], self.ends[1::2]
        cell = np.repeat(self.first_cell, self.edges) + self.cell(u, v)
        # Of several edges in one cell, the last one written is good. The others and all loops are bad.
        every = np.arange(len(cell))
        entered = np.empty(self.flat.shape, np.int32)
        entered[cell] = every
        self.bad = np.flatnonzero((entered[cell] != every) | (u == v))
        self.flat[cell] = 1
        np.add.at(self.flat, cell[self.bad], 1)

    def cell(self, u: NDArray[np.int32], v: NDArray[np.int32]) -> NDArray[np.int32]:
        """Returns the cell that counts the edges between u and v."""
        return np.minimum(u, v) * self.nodes + np.maximum(u, v)

    def random_slots(self) -> Whole:
        """Returns two random slots of each graph."""
        return self.first_slot + self.rng.integers(self.slots, size=(2, self.count))

    def switch(self, slots: Whole) -> Marks:
        """Swaps the ends in two slots of each graph if that gives two new edges; returns where it does.

        Two slots of one edge would give loops, and other degenerate choices an existing edge.
        """
        moving, staying = self.ends[slots], self.ends[slots ^ 1]
        old = self.first_cell + self.cell(staying, moving)
        new = self.first_cell + self.cell(staying, moving[::-1])
        fits: Marks = (self.flat[new[0]] | self.flat[new[1]]) == 0
        self.ends[slots] = np.where(fits, moving[::-1], moving)
        for cell in old:
            self.flat[cell] -= fits
        for cell in new:
            self.flat[cell] += fits
        return fits

    def settle(self) -> None:
        """Switches until no bad edge is left, and then random edges until each was drawn twice on average."""
        amount = np.bincount(self.bad // self.edges, minlength=self.count)
        end = np.cumsum(amount)
        turn = end - amount  # Index of the current bad edge, from here to the end of the graph's bad edges.
        broken, steps = np.flatnonzero(turn < end), 0
        while broken.size or steps < self.edges:
            slots = self.random_slots()
            slots[0, broken] = 2 * self.bad[turn[broken]]
            turn[broken] += self.switch(slots)[broken]
            broken = broken[turn[broken] < end[broken]]
            # Some bad edges cannot be switched before others have changed.
            self.switch(self.random_slots())
            steps += 2


def regular_graphs(nodes: int, degree: int, count: int, rng: np.random.Generator) -> Graphs:
    """Returns random regular graphs, close to uniformly distributed.

    The graphs start from the pairing model. Its loops and double edges are switched with random edges until none is
    left, which is already close to uniform. Further random switches bring the distribution closer: a switch and its
    reverse are equally likely, and switches connect all graphs, so only the uniform distribution is stationary. None of
    this depends on the labels of the nodes, so the first few nodes are a random choice of nodes.
    """
    if not 2 <= degree <= nodes - 2 or nodes * degree % 2:
        raise ConfigError(
            f"cannot draw {degree}-regular graphs on {nodes} nodes; try: "
            f"take a degree from 2 to {nodes - 2}, and an even "
            "one if the number of nodes is odd"
        )
    drawn = _Multigraphs(nodes, degree, count, rng)
    drawn.settle()
    drawn.copies[:, range(nodes), range(nodes)] = 0
    joined = drawn.copies.astype(np.bool_)
    return joined | joined.transpose(0, 2, 1)
