"""Decoders of paper 001, Section 3, in its notation: they compute local models w_i* from recorded traffic."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.float64]


def decode_fedavg(w: Numbers, w_i: Numbers) -> Numbers:
    """Returns w_i* from two rounds: the server sent w[t], and the client returned w_i[t] after any number of epochs."""
    x_to_the_e = (w_i[1] - w_i[0]) / (w[1] - w[0])  # (7)
    return np.asarray((w_i[0] - x_to_the_e * w[0]) / (1 - x_to_the_e))  # (8)


def decode_steps(w: Numbers, d: Numbers, eta: Numbers) -> tuple[Numbers, Numbers]:
    """Returns a_i and w_i* from two gradient steps d[t] = −2 η_t a_i (w[t] − w_i*): the last step of Proofs 2 and 3."""
    a = (d[1] / (2 * eta[1]) - d[0] / (2 * eta[0])) / (w[0] - w[1])
    return a, w[0] + d[0] / (2 * a * eta[0])  # In Proof 3 the bracket of this formula closes too late.


def decode_cbgd(w: Numbers, p: Numbers, eta: Numbers, *, at_own: bool) -> Numbers:
    """Returns w_i* from the models w[t] that clients broadcast, and the weights P with which they mix them.

    The gradient is taken at the client's own model w_i(t) if `at_own`, otherwise at the mixed one, z_i(t).
    """
    z = p @ w
    return decode_steps(w if at_own else z, w[1:] - z[:-1], eta)[1]  # (9), (10)


@dataclass(frozen=True)
class ClientMasses:
    """Masses of client i in push-sum as the eavesdropper records them, round by round. Only y_i(0) is unknown."""

    ratio: Numbers
    """Ratio x_i(t) / y_i(t), the same in everything that the client pushes."""
    gained: Numbers
    """Recorded inflow minus recorded outflow, of x_i and, in the last place, of y_i."""
    pushed: Numbers
    """Outflow of y_i(t)."""

    @classmethod
    def of(cls, masses: Numbers, i: int) -> Self:
        """Returns the ledger of client i; masses[t, i, j] is what i pushes to j in round t, with y_i behind x_i."""
        heard_in, heard_out = masses[:, :, i].sum(axis=1), masses[:, i].sum(axis=1)
        return cls(heard_out[:, :-1] / heard_out[:, -1:], heard_in - heard_out, heard_out[:, -1])

    @property
    def grown(self) -> Numbers:
        """y_i(t) − y_i(0), by (12)."""
        return np.append(0.0, np.cumsum(self.gained[:-1, -1]))

    def steps(self, y0: float) -> tuple[Numbers, Numbers, Numbers]:
        """Returns y_i(t), w_i(t) and d_i(t) = x_i(t) − z_i(t), for t from 1 on, assuming y_i(0) = y0."""
        y = (y0 + self.grown)[:, np.newaxis]
        x = self.ratio * y
        z = x[:-1] + self.gained[:-1, :-1]  # (11)
        return y[1:], z / y[1:], x[1:] - z

    def starts(self, eta: Numbers) -> Iterator[float]:
        """Yields the values of y_i(0) for which three consecutive gradient steps fit one quadratic loss."""
        # The client keeps the part p_ii of y_i(t), and Algorithm 4 has 0 < p_ii < 1/2 in every round.
        low, high = float(np.max(self.pushed - self.grown)), float(np.min(2 * self.pushed - self.grown))
        if not low < high:
            return
        # By (13), multiplied by y_i(t), the rows (d_i/2η, w_i, 1) y_i(t) are orthogonal to (1, a_i, −a_i w_i*), so the
        # determinant of three of them is zero. z_i, x_i and y_i are linear in y_i(0), so it has degree 4 in y_i(0).
        tried = np.linspace(low, high, 5)
        rows = []
        for y0 in tried:
            y, w, d = self.steps(y0)
            rows.append(np.stack([d / (2 * eta) * y, w * y, np.broadcast_to(y, w.shape)], axis=-1))
        for t in range(len(eta) - 2):
            determinants = np.linalg.det(np.stack(rows)[:, t : t + 3].swapaxes(1, 2))
            for of_coordinate in determinants.T:
                roots: NDArray[np.complex128] = np.asarray(Polynomial.fit(tried, of_coordinate, deg=4).roots())
                # Rounding may turn a double root into a complex pair, so real parts are taken.
                yield from roots.real[(low < roots.real) & (roots.real < high)]


def decode_psgd(masses: Numbers, eta: Numbers) -> Numbers:
    """Returns w_i*, given y_i(0) = 1; eta[t] is for the step between rounds t and t + 1, the paper's η_{t+1}."""
    found = []
    for i in range(masses.shape[1]):
        _, w, d = ClientMasses.of(masses, i).steps(1.0)
        found.append(decode_steps(w, d, eta)[1])  # (13), (14)
    return np.array(found)


def decode_ppsgd(masses: Numbers, eta: Numbers) -> Numbers:
    """Returns w_i* although y_i(0) and p_ii are secret; NaN for clients for which no value fits."""
    return np.array([decode_private(ClientMasses.of(masses, i), eta) for i in range(masses.shape[1])])


def decode_private(ledger: ClientMasses, eta: Numbers) -> Numbers:
    """Returns w_i* of the client of a ledger, from that client's links alone."""
    eta = eta[: len(ledger.pushed) - 1, np.newaxis]
    found, least = np.full(ledger.ratio.shape[1], np.nan), np.inf
    for y0 in ledger.starts(eta):
        _, w, d = ledger.steps(y0)
        a, w_star = decode_steps(w, d, eta)
        misfit = float(np.max(np.abs(d / (2 * eta) + a * (w - w_star))))
        if misfit < least:
            least, found = misfit, w_star
    return found
