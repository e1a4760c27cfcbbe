"""Chapter 3: PriRFed, private federated learning on Riemannian manifolds, and its baselines."""

from fedbook.papers.prirfed.algorithm import METHODS, PAPER, Config, PriRFed, problem_of, rsgd, rsvrg

__all__ = ["Config", "METHODS", "PAPER", "PriRFed", "problem_of", "rsgd", "rsvrg"]
