"""Chapter 5: C-VFL, vertical federated learning with compressed embeddings, and its baselines."""

from fedbook.papers.cvfl.algorithm import CVFL, EXACT, METHODS, PAPER, Config, batch_ids

__all__ = ["CVFL", "Config", "EXACT", "METHODS", "PAPER", "batch_ids"]
