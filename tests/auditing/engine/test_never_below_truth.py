"""No optimal attack on real rounds shows more than the account says, whatever drops out, colludes, or reacts.

The adversary knows everything but one bit about the victim's data: all rows of the account, all other contributions and
both candidates for the victim's. Each entry of a long vector is a trial of its own. In every round the victim's entry
moves by the whole sensitivity, in a direction that depends on what it adopted before.
"""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from scipy.stats import beta

from tacit.auditing.engine.noisy_rows import NoisyRows
from tacit.auditing.engine.symbolic_run import SymbolicRun
from tacit.auditing.scope import Scope
from tacit.auditing.symbolic.simulation import in_session
from tacit.core.suite import SERVER, Update
from tacit.privacy.matrix.accountant import account, noise_of_vector
from tacit.runtime.simulation.simulator import Simulation
from tacit.vectors.fixedpoint import FixedPoint

SETTINGS, TRIALS, DELTA = 60, 20_000, 1e-3
CHANCE = 1e-3 / (3 * SETTINGS)
"""Chance of a false alarm of one comparison, so that that of all three in all settings is at most a thousandth."""
SHORT = tuple(range(8))
"""Settings that are tried whenever all tests run: one of each protocol."""


class Setting:
    """A random setting, its symbolic account, and the same rounds on numbers."""

    def __init__(self, number):
        rng = np.random.default_rng(number)
        names = ["fedavg", "secagg", "gossip", "cesar", "rotating", "rotating", "pushsum", "admm"]
        self.protocol = names[number % len(names)]
        parties = [f"p{place}" for place in range(int(rng.integers(6, 10)))]
        self.rounds = int(rng.integers(2, 5))
        self.bits = int(rng.choice([16, 32])) if self.protocol in ("fedavg", "secagg", "gossip") else 32
        self.sensitivity = 2.0
        options = {"noise": float(rng.uniform(2.0, 4.0)), "clip": 8.0, "bits": self.bits, "allow_leaks": True}
        if self.protocol in ("gossip", "cesar"):
            options["graph"] = {"kind": "regular", "degree": 4}
        if self.protocol == "rotating":
            options |= {"group_size": 3, "stages": 1 if number % 8 == 4 else 2}
        if self.protocol == "secagg":
            options["threshold"] = len(parties) // 2 + 2
        if self.protocol == "admm":
            options |= {"masked": True, "group_size": "all"}
        away = [f"p{place}" for place in rng.choice(len(parties), 2, replace=False)]
        faults = [{"action": "silence", "party": party, "round": 1 + turn} for turn, party in enumerate(away)]
        if self.protocol == "admm":
            faults = []
        members = [f"p{place}" for place in rng.choice(len(parties), int(rng.integers(1, 3)), replace=False)]
        if self.protocol in ("fedavg", "secagg") and rng.random() < 0.5:
            members.append(SERVER)
        self.coalition = tuple(members)
        self.scope = Scope.of(
            self.protocol,
            parties,
            options,
            faults=faults,
            rounds=self.rounds,
            sensitivity=self.sensitivity,
            delta=DELTA,
            length=1,
            seed=number,
        )
        self.run = SymbolicRun(self.scope, noisy=True)
        rows = NoisyRows(self.run)
        self.releases = rows.releases(self.coalition)
        self.linear = rows.linear
        self.shares = account(self.releases, linear=rows.linear)
        self.victim = max(self.shares, key=lambda party: self.shares[party].leverage)
        self.share = self.shares[self.victim]
        # Rounding to steps is exact here, because changes are whole steps: so it adds nothing to the sensitivity.
        self.noise = replace(noise_of_vector(self.scope.terms, 1, sensitivity=self.sensitivity), entries=1)
        self.rng = rng

    def contribution(self, party, number, adopted, bit):
        """Returns a contribution: a bounded, nonlinear function of what the party adopted, and of the victim's bit."""
        turn = sum(map(ord, party)) + number
        vector = np.tanh(adopted * (1 + turn % 3)) * 0.5 + math.sin(turn)
        if party == self.victim:
            vector = vector + np.where(np.sin(5 * adopted + number) >= 0, 1, -1) * (bit - 0.5) * self.sensitivity
        return vector

    def play(self, monkeypatch):
        """Runs the rounds; returns the bits, and for each noisy vector its value and the victim's two candidates."""
        encoded, encode = {}, FixedPoint._encode_noisy

        def record(ring, into, vector, part):
            encode(ring, into, vector, part)
            content = np.array(vector, dtype=np.float64)
            encoded.setdefault(id(ring), []).append((into.view(ring._signed).astype(np.float64), content, part))

        monkeypatch.setattr(FixedPoint, "_encode_noisy", record)
        scope, bit = self.scope, self.rng.integers(0, 2, TRIALS)
        simulation = Simulation.on(scope.protocol, scope.terms, TRIALS, scope.seed, scope.faults, twin=True)
        simulation.join(in_session(simulation.agreement, self.run.simulation.agreement.session))
        adopted = dict.fromkeys(scope.parties, np.zeros(TRIALS))
        self.residuals, self.moves, self.values = {}, {}, {}
        for number in range(1, self.rounds + 1):
            given = {party: self.contribution(party, number, adopted[party], bit) for party in scope.parties}
            outcome = simulation.average({party: Update(vector) for party, vector in given.items()})
            for party, round_ in simulation.last.rounds.items():
                ring = getattr(round_.suite, "ring", None)
                for call, (value, content, part) in enumerate(encoded.get(id(ring), ()), start=1):
                    scale = ring.scale * part
                    assert np.abs(content).max() < ring.clip
                    self.values[party, number, call] = value
                    self.residuals[party, number, call] = value - np.rint(content * scale)
                    if party == self.victim:
                        both = [self.contribution(party, number, adopted[party], each) for each in (0, 1)]
                        shift = content - given[party]  # What a step starts from, which is known.
                        ends = [np.rint((each + shift) * scale) for each in both]
                        self.moves[party, number, call] = [end - np.rint(content * scale) for end in ends]
            encoded.clear()
            for party, vector in outcome.average.items():
                adopted[party] = np.array(vector, dtype=np.float64)
                self.check_rows(party, number, given[party], adopted[party])
        return bit

    def check_rows(self, party, number, own, adopted):
        """Asserts that what a party adopts in the real round is a function of its rows in the account."""
        rows = [
            sum(factor * self.values[tuple(vector)[:3]] for vector, factor in row.factors.items())
            for row in self.releases.trained[party, number]
            if row.factors
        ]
        known = np.array([np.ones(TRIALS), own, *(row * self.noise.step for row in rows)]).T
        rest = adopted - known @ np.linalg.lstsq(known, adopted)[0]
        assert np.abs(rest).max() < 1e-3 * self.noise.sigma

    def ratios(self):
        """Returns the log-likelihood ratio of both bits for every trial, given all rows of the account."""
        rows, _ = self.releases.list_retained()
        given = [
            {tuple(v)[:3]: (f, v.part) for v, f in row.factors.items() if v.party not in self.coalition} for row in rows
        ]
        if not self.linear:
            given = [{key: each} for row in given for key, each in row.items() if key[0] == self.victim]
        keys = sorted({key for row in given for key in row})
        matrix = np.array([[row.get(key, (0, 1))[0] for key in keys] for row in given], dtype=np.float64)
        parts = np.array([next(row[key][1] for row in given if key in row) for key in keys])
        matrix = np.unique(matrix[matrix.any(axis=1)], axis=0)
        steps = self.noise.sigma / self.noise.step * parts
        whitened = np.linalg.svd(matrix * steps, full_matrices=False)
        rank = np.linalg.matrix_rank(matrix * steps)
        basis = whitened[2][
            :rank
        ]  # The adversary sees these projections of all noisy vectors, in units of their noise.
        zero = np.zeros(TRIALS)
        noise = np.array([self.residuals.get(key, zero) for key in keys]) / steps[:, None]
        # Under a candidate what is left of a vector is its noise, minus the candidate's distance to the truth.
        logs = []
        for end in (0, 1):
            moved = np.array([self.moves[key][end] if key in self.moves else zero for key in keys]) / steps[:, None]
            logs.append(-((basis @ (noise - moved)) ** 2).sum(axis=0) / 2)
        return logs[1] - logs[0]


def lower_bound(ratios, bit):
    """Returns a lower bound on ε at δ, from a threshold that one half of the trials chose and the other half tests."""
    half = len(ratios) // 2
    best, at = -math.inf, 0.0
    for threshold in np.quantile(ratios[:half], np.linspace(0.3, 0.999, 60)):
        hit, false = (np.mean(ratios[:half][bit[:half] == each] > threshold) for each in (1, 0))
        if false > 0 and hit > DELTA and math.log((hit - DELTA) / false) > best:
            best, at = math.log((hit - DELTA) / false), threshold
    over, truth = ratios[half:] > at, bit[half:]
    hits, ones, wrong, zeros = (
        int(x) for x in (over[truth == 1].sum(), (truth == 1).sum(), over[truth == 0].sum(), (truth == 0).sum())
    )
    low, high = beta.ppf(CHANCE / 2, hits, ones - hits + 1), beta.ppf(1 - CHANCE / 2, wrong + 1, zeros - wrong)
    return math.log((low - DELTA) / high) if low > DELTA else 0.0


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=pytest.mark.long if number in SHORT else pytest.mark.slow)
        for number in range(SETTINGS)
    ],
)
def test_no_attack_shows_more_than_the_account_says(number, monkeypatch):
    setting = Setting(number)
    bit = setting.play(monkeypatch)
    ratios = setting.ratios()
    stated, rho = setting.share.bound(setting.noise, DELTA), setting.share.rho(setting.noise)
    assert lower_bound(ratios, bit) <= stated.epsilon
    # The mean of the log-ratio is a divergence, of at most ρ. It is a sharper test than that of ε.
    gained = np.where(bit == 1, ratios, -ratios)
    margin = NormalDist().inv_cdf(1 - CHANCE) * gained.std() / math.sqrt(TRIALS)
    assert gained.mean() <= rho + margin
    assert gained.mean() >= 0.2 * rho - margin, "the attack would be too weak to find a wrong account"
    assert gained.var() <= 2 * rho * (1 + 6 * math.sqrt(2 / TRIALS)) + 1e-9
