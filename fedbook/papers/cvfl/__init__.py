"""Chapter 5: C-VFL, vertical federated learning with compressed embeddings, and its baselines."""

from fedbook.papers.cvfl.algorithm import COMPRESSORS, CVFL, EXACT, METHODS, PAPER, Config, batch_ids

__all__ = ["COMPRESSORS", "CVFL", "Config", "EXACT", "METHODS", "PAPER", "batch_ids"]
