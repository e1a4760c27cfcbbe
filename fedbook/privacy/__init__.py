"""Clipping, Gaussian mechanisms, what they guarantee, and the ledger that adds it up over a run."""

from fedbook.privacy.audit import LowerBound, canary_scores, epsilon_lower_bound, gaussian_epsilon_lower_bound
from fedbook.privacy.gaussian import (
    calibrate,
    exact_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_rdp_epsilon,
)  # fmt: skip
from fedbook.privacy.ledger import PrivacyLedger
from fedbook.privacy.mechanisms import (
    ClientGaussian,
    Clip,
    clip,
    gaussian_noise,
    release_sum,
    row_norm,
    sum_sensitivity,
)  # fmt: skip
from fedbook.privacy.release import Release
from fedbook.privacy.sampled import (
    calibrate_sampled,
    paper_sigma,
    sampled_epsilon,
    sampled_gaussian_rdp,
    smallest_paper_epsilon,
)  # fmt: skip

__all__ = [
    "ClientGaussian", "Clip", "LowerBound", "PrivacyLedger", "Release", "calibrate", "calibrate_sampled",
    "canary_scores", "clip", "epsilon_lower_bound", "exact_epsilon", "gaussian_delta", "gaussian_epsilon",
    "gaussian_epsilon_lower_bound", "gaussian_mu", "gaussian_noise", "gaussian_rdp_epsilon",
    "paper_sigma", "release_sum", "row_norm",
    "sampled_epsilon", "sampled_gaussian_rdp", "smallest_paper_epsilon", "sum_sensitivity",
]  # fmt: skip
