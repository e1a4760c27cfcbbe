"""Chapter 2: Hetero-SSFL, self-supervised learning across clients of different architectures, and its baselines."""

from fedbook.papers.hetero_ssfl.algorithm import METHODS, PAPER, Config, HeteroSSFL, Supervised, algorithm, run_on

__all__ = ["Config", "HeteroSSFL", "METHODS", "PAPER", "Supervised", "algorithm", "run_on"]
