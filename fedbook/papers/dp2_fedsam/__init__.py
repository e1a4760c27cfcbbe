"""Chapter 4: DP2-FedSAM, client-level private learning of a shared body with personal heads, and its baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedbook.federation.composed import Compression
from fedbook.federation.loop import Rounds
from fedbook.learning.problems import described
from fedbook.papers.description import Paper, own_settings
from fedbook.papers.dp2_fedsam.algorithm import METHODS, Config, DP2FedSAM
from fedbook.papers.dp2_fedsam.problem import PersonalProblem, PersonalSettings, personal_problem

__all__ = ["Config", "DP2FedSAM", "METHODS", "PAPER", "problem_of"]


def problem_of(problem: str, settings: Mapping[str, Any], seeds: Sequence[int], device: str) -> PersonalProblem:
    """The images and splits that the settings name (those of PersonalSettings; others are ignored)."""
    return personal_problem(problem, own_settings(PersonalSettings, settings), seeds, device)


def build(
    method: str, problem: str, settings: Mapping[str, Any], seeds: Sequence[int], device: str, **options: Any
) -> Rounds:
    """The run that the settings name (fields of Config and of PersonalSettings)."""
    config = own_settings(Config, settings)
    clients = settings["clients"]
    private = METHODS[method].private
    by_paper = config.accountant == "paper" and not config.noise_multiplier  # its noise may not keep the budget
    if private:
        config = config.with_noise(clients, heads=METHODS[method].shared == "body")
    images = problem_of(problem, settings, seeds, device)
    algorithm = DP2FedSAM(config, images.model, method)
    return Rounds(
        algorithm, images.federation(), config.rounds, seeds=seeds, evaluate=algorithm.evaluation(images, seeds),
        every=settings["evaluate_every"] or max(1, config.rounds // 5), delta=config.delta_for(clients),
        budget=config.epsilon if private and config.epsilon and not by_paper else None, **options,
    )  # fmt: skip


PAPER = Paper(
    name="dp2_fedsam",
    title="DP2-FedSAM: personal heads and flat minima under client-level privacy (chapter 4)",
    methods={word: method.words for word, method in METHODS.items()},
    problems=described("mnist", "fashion_mnist", "digits", "cifar10", "femnist"),
    profiles={
        "quick": {
            "rounds": 10, "clients": 100, "client_rate": 0.5, "batch_size": 20, "train_samples": 6000, "epsilon": 2.0,
            "model": "mlp16", "lr_head": 0.1, "clip_norm": 0.5, "momentum": 0.0, "head_epochs": 1, "body_epochs": 1,
            "lr_decay": 1.0,
        },
        "standard": {
            "rounds": 40, "clients": 1000, "client_rate": 0.2, "batch_size": 20, "epsilon": 2.0, "model": "mlp16",
            "lr_head": 0.2, "clip_norm": 0.5, "momentum": 0.0, "lr_decay": 1.0, "fine_tune_epochs": 10,
            "lr_fine_tune": 0.05,
        },
        "paper": {"clients": 1000, "classes_per_client": 2, "epsilon": 1.0, "model": "cnn_dp2fedsam"},
    },
    settings=(Config, PersonalSettings, Compression),
    reads={word: (Config, PersonalSettings) for word, method in METHODS.items() if method.silent},
    fits={
        "femnist": {
            "train_samples": 0, "partition": "natural", "clients": 500, "model": "resnet18_imagenet", "momentum": 0.3,
            "clip_norm": 0.2, "sam_radius": 0.5,
        },
        "digits": {
            "train_samples": 0, "clients": 100, "client_rate": 0.5, "own_share": 0.25, "batch_size": 0, "lr_body": 0.3,
            "lr_head": 0.3, "head_epochs": 5, "body_epochs": 5, "lr_decay": 1.0, "momentum": 0.0, "clip_norm": 0.5,
            "model": "mlp16", "delta": 1e-3,
        },
    },
    judged={"": "each client's model on the images that this client kept to be judged on, the mean over clients"},
    build=build,
)  # fmt: skip
