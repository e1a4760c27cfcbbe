"""New paper: what `fedbook list`, `run` and `compare` know of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedbook.federation.composed import Compression
from fedbook.federation.loop import Rounds
from fedbook.learning.problems import ImageSettings, described
from fedbook.papers.description import Paper, own_settings
from fedbook.papers.fedavg import Config as FedAvgConfig
from fedbook.papers.fedavg import algorithm as fedavg
from fedbook.papers.fedavg.problem import image_problem
from fedbook.papers.new_paper.algorithm import Config, NewPaper

__all__ = ["Config", "NewPaper", "PAPER"]


def build(
    method: str, problem: str, settings: Mapping[str, Any], seeds: Sequence[int], device: str, **options: Any
) -> Rounds:
    """The run that the settings name (fields of Config and of ImageSettings)."""
    config = own_settings(Config, settings)
    images = image_problem(problem, own_settings(ImageSettings, settings), seeds, device)
    if method == "new-paper":
        algorithm = NewPaper(config, images.model)
    else:
        shared = {name: settings[name] for name in FedAvgConfig.__dataclass_fields__ if name in settings}
        algorithm = fedavg(method, FedAvgConfig(**shared), images.model)
    every = settings["evaluate_every"] or max(1, config.rounds // 25)
    return Rounds(
        algorithm, images.federation(), config.rounds, seeds=seeds, evaluate=images.evaluation(), every=every, **options
    )


PAPER = Paper(
    name="new_paper",
    title="NewPaper (chapter NN)",
    methods={
        "new-paper": "the paper's algorithm",
        "fedavg": "federated averaging",
        "local": "every client alone, the control",
    },
    problems=described("digits", "mnist", "fashion_mnist"),
    profiles={
        "quick": {"rounds": 10, "clients": 10},
        "standard": {"rounds": 100, "clients": 100},
        "paper": {"rounds": 1000, "clients": 100},
    },
    settings=(Config, ImageSettings, Compression),
    judged={
        "": "the global model on the common test images",
        "local": "each client's own model on test images in its own mixture of classes (the fewer, the easier)",
    },
    common="accuracy_all",
    build=build,
)
