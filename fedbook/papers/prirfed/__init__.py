"""Chapter 3: PriRFed, private federated learning on Riemannian manifolds, and its baselines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedbook.federation.loop import Rounds
from fedbook.papers.description import Paper, own_settings
from fedbook.papers.prirfed.algorithm import METHODS, Config, PriRFed, rsgd, rsvrg
from fedbook.papers.prirfed.problem import PROBLEMS, ManifoldProblem, ManifoldSettings, manifold_problem

__all__ = ["Config", "METHODS", "PAPER", "PriRFed", "problem_of", "rsgd", "rsvrg"]


def problem_of(problem: str, settings: Mapping[str, Any], seeds: Sequence[int], device: str) -> ManifoldProblem:
    """The records and splits that the settings name (those of ManifoldSettings; others are ignored)."""
    return manifold_problem(problem, own_settings(ManifoldSettings, settings), seeds, device)


def build(
    method: str, problem: str, settings: Mapping[str, Any], seeds: Sequence[int], device: str, **options: Any
) -> Rounds:
    """The run that the settings name (fields of Config and of ManifoldSettings)."""
    config = own_settings(Config, settings)
    task = problem_of(problem, settings, seeds, device)
    pooled = METHODS[method].pooled
    usual = PAPER.defaults() | dict(PAPER.fits.get(problem, {}))
    told = {name: settings[name] for name in NOT_IN_RECORDS if settings[name] != usual[name]}
    algorithm = PriRFed(
        config, task.loss, task.start, method, bound=task.bound, smoothness=task.smoothness, public=task.public,
        inner_steps=max(1, 10 * settings["agents"] // 3), told=told,
    )  # fmt: skip
    federation = task.federation(pooled)
    sizes = federation.sizes.flatten().tolist()
    config.sampler(federation.num_clients if not pooled else settings["agents"])  # refused here by its own name
    figures = {"epsilon_call": algorithm.call(sizes)}
    for word, guarantee in (("promised", algorithm.promised(federation.num_clients, sizes)),
                            ("claimed", algorithm.claimed(federation.num_clients))):  # fmt: skip
        figures |= {f"epsilon_{word}": guarantee and guarantee.epsilon, f"delta_{word}": guarantee and guarantee.delta}
    return Rounds(
        algorithm, federation, config.rounds, seeds=seeds,
        evaluate=task.evaluation(**{name: math.nan if v is None else v for name, v in figures.items()}),
        every=settings["evaluate_every"] or max(1, config.rounds // 50), delta=config.delta or config.delta_call,
        budget=config.budget or None, **options,
    )  # fmt: skip


# Settings of a problem that neither its records nor their split show.
NOT_IN_RECORDS = ("start", "word", "ridge", "kernel_width", "kernel_rule")
MATRICES = {"agents": 50, "inner_steps": 10, "lr": 0.3, "start": "origin"}
PAPER = Paper(
    name="prirfed",
    title="PriRFed: private federated learning on Riemannian manifolds (chapter 3)",
    methods={word: method.words for word, method in METHODS.items()},
    problems=PROBLEMS,
    profiles={
        "quick": {"rounds": 20, "agents": 10, "samples": 2000},
        "standard": {},
        "paper": {"sigma_rule": "paper"},
    },
    settings=(Config, ManifoldSettings),
    fits={
        "pca-digits": {"samples": 0},
        "pca-synthetic": {
            "agents": 16, "samples": 1120, "agents_per_round": 0, "local_steps": 1, "lr": 0.0, "delta_call": 1e-5,
        },
        "pca-directional": {
            "agents": 8, "samples": 4000, "agents_per_round": 0, "local_steps": 1, "lr": 0.5, "delta_call": 1e-5,
        },
        "frechet-patches": MATRICES,
        "frechet-cifar10": MATRICES,
        "frechet-pathmnist": MATRICES,
        "frechet-wishart": {"agents": 20, "samples": 5000, "inner_steps": 10, "lr": 0.05},
        "frechet-ball": {"agents": 10, "samples": 4000, "agents_per_round": 0, "local_steps": 1, "lr": 0.0},
        "words-mammals": {"agents": 9, "samples": 0, "inner_steps": 5, "lr": 0.3, "start": "origin"},
        "words-tree": {"agents": 9, "samples": 0, "inner_steps": 5, "lr": 0.3, "start": "origin", "ridge": 1e-3},
    },
    judged={"": "the server's point on the records of all agents, f(x) - f(x*)"},
    build=build,
    delta=1e-4,
    metric="excess_risk",
    larger_is_better=False,
    curves=("grad_norm", "error"),
)  # fmt: skip
