"""Differential privacy of averages: calibration of noise, accounting, and the ledger of spent privacy."""

from tacit.privacy.distributed_noise import SharedNoise, count_honest, distributed_sigma, shared_noise
from tacit.privacy.epsilon_bounds import BoundKind, EpsilonBound
from tacit.privacy.ledger import Ledger, LedgerState, People, PlanExceeds, RunRecord, Spent, read_ledger, set_budget
from tacit.privacy.noise import (
    Accountant,
    accounted_epsilon,
    central_sigma,
    clip_gradients,
    epsilon_of,
    local_sigma,
    noisy,
    noisy_on_grid,
    of_sample,
    of_user,
    paper_sigma,
    user_sigma,
)

__all__ = [
    "Accountant",
    "BoundKind",
    "EpsilonBound",
    "Ledger",
    "LedgerState",
    "People",
    "PlanExceeds",
    "RunRecord",
    "SharedNoise",
    "Spent",
    "accounted_epsilon",
    "central_sigma",
    "clip_gradients",
    "count_honest",
    "distributed_sigma",
    "epsilon_of",
    "local_sigma",
    "noisy",
    "noisy_on_grid",
    "of_sample",
    "of_user",
    "paper_sigma",
    "read_ledger",
    "set_budget",
    "shared_noise",
    "user_sigma",
]
