"""Differential privacy on top of averaging: noise, accounting, and the ledger of spent privacy."""

from tacit.privacy.distributed_noise import SharedNoise, count_honest, distributed_sigma, shared_noise
from tacit.privacy.ledger import Ledger, Spent
from tacit.privacy.noise import (
    Accountant,
    accounted_epsilon,
    central_sigma,
    clip_gradients,
    epsilon_of,
    local_sigma,
    noisy,
    of_sample,
    of_user,
    paper_sigma,
    user_sigma,
)

__all__ = [
    "Accountant",
    "Ledger",
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
    "of_sample",
    "of_user",
    "paper_sigma",
    "shared_noise",
    "user_sigma",
]
