"""Designs: who takes part in which round, which users form groups, and which nodes are neighbours."""

from tacit.designs.circle import Circle, secure_degree
from tacit.designs.families import Family
from tacit.designs.groups import Groups, groups, randomized_groups
from tacit.designs.history import cardinality, fairness_gap, multi_round_privacy
from tacit.designs.participation import (
    Batches,
    Everyone,
    Partition,
    Random,
    Sampled,
    participation_from,
)
from tacit.designs.policy import Participation

__all__ = [
    "Batches",
    "Circle",
    "Everyone",
    "Family",
    "Groups",
    "Participation",
    "Partition",
    "Random",
    "Sampled",
    "cardinality",
    "fairness_gap",
    "groups",
    "multi_round_privacy",
    "participation_from",
    "randomized_groups",
    "secure_degree",
]
