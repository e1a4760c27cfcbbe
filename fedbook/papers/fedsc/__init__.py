"""Chapter 1: FedSC, spectral contrast across clients, and the methods that it is compared with."""

from fedbook.papers.fedsc.algorithm import METHODS, PAPER, Config, FedSC, algorithm, run_on

__all__ = ["Config", "FedSC", "METHODS", "PAPER", "algorithm", "run_on"]
