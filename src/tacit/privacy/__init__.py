"""Differential privacy on top of averaging: noise, and what it is worth."""

from tacit.privacy.noise import Accountant, accounted_epsilon, clipped, noisy, paper_sigma, user_sigma

__all__ = ["Accountant", "accounted_epsilon", "clipped", "noisy", "paper_sigma", "user_sigma"]
