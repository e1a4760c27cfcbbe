"""Chapter 4: DP2-FedSAM, client-level private learning of a shared body with personal heads, and its baselines."""

from fedbook.papers.dp2_fedsam.algorithm import METHODS, PAPER, Config, DP2FedSAM, problem_of

__all__ = ["Config", "DP2FedSAM", "METHODS", "PAPER", "problem_of"]
