"""Chapter 5: C-VFL, vertical federated learning with compressed embeddings, and its baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedbook import arguments
from fedbook.federation.loop import Rounds
from fedbook.papers.cvfl.algorithm import CVFL, EXACT, METHODS, Config, batch_ids
from fedbook.papers.cvfl.problem import PROBLEMS, VerticalProblem, VerticalSettings, vertical_problem
from fedbook.papers.description import Paper, own_settings

__all__ = ["CVFL", "Config", "EXACT", "METHODS", "PAPER", "batch_ids", "problem_of"]


def problem_of(problem: str, method: str, settings: Mapping[str, Any], device: str) -> VerticalProblem:
    """The parties' data and networks that the settings name (those of VerticalSettings; others are ignored)."""
    own = own_settings(VerticalSettings, settings)
    parties = METHODS[arguments.one_of("method", method, METHODS)].parties
    return vertical_problem(problem, replace(own, parties=parties, only_party=0) if parties else own, device)


def build(
    method: str, problem: str, settings: Mapping[str, Any], seeds: Sequence[int], device: str, **options: Any
) -> Rounds:
    """The run that the settings name (fields of Config and of VerticalSettings)."""
    config = own_settings(Config, settings)
    task = problem_of(problem, method, settings, device)
    algorithm = CVFL(config, task, method)
    nothing = METHODS[method].down == "nothing"
    labels = METHODS[method].down in ("views", "sum")
    return Rounds(
        algorithm, task.pooled() if nothing else task.federation(labels), config.rounds, seeds=seeds,
        evaluate=task.evaluation(), every=settings["evaluate_every"] or max(1, config.rounds // 30), **options,
    )  # fmt: skip


PAPER = Paper(
    name="cvfl",
    title="C-VFL: vertical learning with compressed embeddings (chapter 5)",
    methods={word: method.words for word, method in METHODS.items()},
    problems=PROBLEMS,
    profiles={
        "quick": {"rounds": 30, "train_samples": 2000, "test_samples": 1000},
        "standard": {"rounds": 300, "train_samples": 20_000, "test_samples": 5000},
        "paper": {},
    },
    settings=(Config, VerticalSettings),
    fits={
        "digits": {"train_samples": 0, "test_samples": 0},
        "cifar10": {"tower": "cnn", "lr": 0.1},
        "solids": {"tower": "mvcnn", "train_samples": 1000, "test_samples": 500, "lr": 0.1},
        "modelnet10": {"tower": "mvcnn", "train_samples": 0, "test_samples": 0, "lr": 0.1},
        "series": {"tower": "lstm", "embedding": 16, "train_samples": 3000, "test_samples": 1500},
        "mimic3": {"tower": "lstm", "embedding": 16, "train_samples": 0, "test_samples": 0},
        "breast_cancer": {"parties": 3, "batch_size": 50, "train_samples": 0, "test_samples": 0},
        "imagenet100": {"tower": "resnet18_imagenet", "embedding": 128, "batch_size": 256, "lr": 0.001},
    },
    as_published={
        "cifar10": {
            "tower": "resnet18", "embedding": 16, "train_samples": 0, "test_samples": 0, "lr": 1e-4, "rounds": 100_000,
            "evaluate_every": 500,
        },
        "modelnet10": {
            "embedding": 4096, "train_samples": 1008, "test_samples": 0, "batch_size": 64, "lr": 1e-3,
            "rounds": 1600, "evaluate_every": 16,
        },
        "mimic3": {"fusion": "concat_mlp", "batch_size": 1000, "lr": 0.01, "rounds": 15_000, "evaluate_every": 15},
        "imagenet100": {"lr_drop": 24_750, "rounds": 49_500, "evaluate_every": 495},
    },
    judged={"": "all parties' networks together on the common test samples"},
    build=build,
    curves=("loss", "f1", "bytes"),
)  # fmt: skip
