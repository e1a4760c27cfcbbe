"""Chapter 0: federated averaging, and what it is measured against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedbook import arguments
from fedbook.federation.composed import Compression
from fedbook.federation.loop import Rounds
from fedbook.learning.models import Model
from fedbook.learning.problems import ImageSettings, described
from fedbook.papers.description import Paper, own_settings
from fedbook.papers.fedavg.algorithm import Config, FedAvg, LocalOnly
from fedbook.papers.fedavg.problem import image_problem

__all__ = ["Config", "FedAvg", "LocalOnly", "METHODS", "PAPER", "algorithm"]

METHODS: Mapping[str, str] = {
    "fedavg": "federated averaging (Algorithm 1)",
    "fedsgd": "its degenerate case: one full-batch gradient step by every client a round",
    "local": "every client alone, nothing crosses",
    "central": "the pooled data on one machine: the same optimiser, one 'client' that holds everything",
}


def algorithm(method: str, config: Config, model: Model) -> FedAvg:
    """The algorithm object of ``method`` (see METHODS). Raises: TypeError, ValueError."""
    arguments.one_of("method", method, METHODS)
    if method == "fedsgd":
        config = replace(config, local_epochs=1, batch_size=0, clients_per_round=0)
    if method == "central":
        config = replace(config, clients_per_round=0)
    return (LocalOnly if method == "local" else FedAvg)(config, model)


def build(
    method: str, problem: str, settings: Mapping[str, Any], seeds: Sequence[int], device: str, **options: Any
) -> Rounds:
    """The run that the settings name (fields of Config and of ImageSettings)."""
    config = own_settings(Config, settings)
    images = image_problem(problem, own_settings(ImageSettings, settings), seeds, device)
    method_algorithm = algorithm(method, config, images.model)
    federation = images.federation(pooled=method == "central")
    every = settings["evaluate_every"] or max(1, config.rounds // 25)
    return Rounds(
        method_algorithm, federation, config.rounds, seeds=seeds, evaluate=images.evaluation(), every=every, **options
    )


PAPER = Paper(
    name="fedavg",
    title="Federated averaging (chapter 0)",
    methods=METHODS,
    problems=described("mnist", "fashion_mnist", "digits", "cifar10"),
    profiles={
        "quick": {"rounds": 10, "clients": 20, "clients_per_round": 10, "train_samples": 4000, "test_samples": 1000},
        "standard": {"rounds": 100, "clients": 100, "clients_per_round": 10, "local_epochs": 5, "test_samples": 5000},
        "paper": {
            "rounds": 1000, "clients": 100, "clients_per_round": 10, "local_epochs": 5, "partition": "shards",
            "model": "cnn_fedavg",
        },
    },
    settings=(Config, ImageSettings, Compression),
    reads={"local": (Config, ImageSettings)},
    fits={"digits": {"train_samples": 0, "test_samples": 0}},
    judged={
        "": "the global model on the common test images",
        "local": "each client's own model on test images in its own mixture of classes (the fewer, the easier)",
    },
    common="accuracy_all",
    build=build,
)  # fmt: skip
