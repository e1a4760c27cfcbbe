"""Chapter 0: federated averaging, and what it is measured against."""

from fedbook.papers.fedavg.algorithm import PAPER, Config, FedAvg, LocalOnly, algorithm

__all__ = ["Config", "FedAvg", "LocalOnly", "PAPER", "algorithm"]
