"""Chapter 1: FedSC, spectral contrast across clients, and the methods that it is compared with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedbook import arguments
from fedbook.federation.composed import Compression
from fedbook.federation.loop import Rounds
from fedbook.learning import fedbyol
from fedbook.learning.problems import described
from fedbook.learning.self_supervised import SelfSupervised
from fedbook.papers.description import Paper, own_settings
from fedbook.papers.fedsc import contrastive
from fedbook.papers.fedsc.algorithm import Config, FedSC, Untrained
from fedbook.papers.fedsc.problem import PretrainingProblem, PretrainingSettings, pretraining_problem

__all__ = ["Config", "FedSC", "METHODS", "PAPER", "algorithm", "run_on"]

LARGE = 10**6  # parameters of an encoder of which a GPU trains one client after another

METHODS: Mapping[str, str] = {
    "fedsc": "spectral contrast, correlation matrices exchanged (Algorithm 1)",
    "fedavg-sc": "spectral contrast, every client against its own samples only",
    "fedavg-byol": "BYOL, encoder and predictor averaged",
    "fedu": "BYOL, own target, predictor replaced only if the encoder moved little",
    "fedema": "BYOL, own target, the global model mixed into the own one",
    "fedx": "local and global contrast and relations, distilled",
    "fedca": "contrast with a dictionary of all clients' representations",
    "centralized-sc": "control: spectral contrast on all samples in one place",
    "local-sc": "control: every client alone with its own encoder",
    "random-encoder": "control: an encoder that nobody trained",
    "raw-pixels": "control: no encoder",
}
WITHOUT_SPECTRAL_LOSS = ("fedavg-byol", "fedu", "fedema", "fedx", "fedca", "raw-pixels")


def algorithm(method: str, problem: PretrainingProblem, settings: Mapping[str, Any]) -> SelfSupervised:
    """The method that the settings name, on a problem's encoder and views. Raises: ValueError."""
    encoder, views = problem.encoder, problem.views
    if method in fedbyol.METHODS:
        return fedbyol.METHODS[method](own_settings(fedbyol.Config, settings), encoder, views, method)
    if method in contrastive.METHODS:
        dictionary = own_settings(contrastive.Config, settings)
        if dictionary.alignment and dictionary.alignment_source == problem.name:  # they are the clients' own
            allowed = "a source that is not the problem's own: its images would be called public"
            raise arguments.wrong(ValueError, "alignment_source", problem.name, allowed)
        return contrastive.METHODS[method](dictionary, encoder, views, method)
    config = own_settings(Config, settings)
    if method in ("random-encoder", "raw-pixels"):
        return Untrained(config, encoder, views, method)
    if method == "centralized-sc":  # as many updates as one client makes
        config = replace(config, cohort=0, batch_size=config.batch_size * problem.settings.clients)
    return FedSC(config, encoder, views, method, shares=method == "fedsc", silent=method == "local-sc")


def build(
    method: str, problem: str, settings: Mapping[str, Any], seeds: Sequence[int], device: str, **options: Any
) -> Rounds:
    """The run that the settings name (fields of the configurations and of PretrainingSettings)."""
    images = pretraining_problem(problem, own_settings(PretrainingSettings, settings), seeds, device)
    return run_on(images, method, settings, seeds, **options)


def run_on(
    images: PretrainingProblem, method: str, settings: Mapping[str, Any], seeds: Sequence[int], **options: Any
) -> Rounds:
    """As :func:`build`, on a problem that is there already."""
    running = algorithm(method, images, settings)
    mu = None if method in WITHOUT_SPECTRAL_LOSS else (settings["mu"] if settings["clip_in_loss"] else math.inf)
    config = running.config
    every = max(
        1, config.rounds if isinstance(running, Untrained) else settings["evaluate_every"] or config.rounds // 5
    )
    options.setdefault("every", every)
    if images.x.device.type == "cuda" and images.encoder.size > LARGE:
        options.setdefault("how", "loop")  # one client fills the card, and all at once would not fit it
    return Rounds(
        running, images.federation(pooled=method == "centralized-sc"), config.rounds, seeds=seeds,
        evaluate=images.evaluation(mu, raw=method == "raw-pixels"), delta=settings["delta"], **options,
    )  # fmt: skip


_PHOTOGRAPHS = {"model": "cnn", "width": 128, "views": "photographs", "bank": 0, "judged_samples": 5000}
# The step size, its clip and the decay are those of the authors' scripts, whose spectral loss is twice the paper's.
_PUBLISHED = {
    "model": "fixup_resnet20_x8", "width": 512, "batch_size": 512, "pairs": 2, "neighbours": 200, "judged_samples": 0,
    "lr": 0.06, "max_norm": 1.5, "weight_decay": 2.5e-4, "precision": "mixed",
}  # fmt: skip
_BYOL = {"lr": 0.1, "max_norm": 1.0, "weight_decay": 5e-4}
_RIVALS = {  # the scripts' own; FedCA's are not known, these are the usual ones
    "fedavg-byol": _BYOL,
    "fedema": _BYOL,
    "fedu": _BYOL | {"lr": 0.03},
    "fedx": _BYOL | {"lr": 0.03, "max_norm": 0.0},
    "fedca": _BYOL | {"lr": 0.03, "max_norm": 3.0},
}

PAPER = Paper(
    name="fedsc",
    title="FedSC: self-supervised learning with contrast across clients (chapter 1)",
    methods=METHODS,
    problems=described("digits", "mnist", "fashion_mnist", "cifar10", "cifar100", "svhn"),
    profiles={
        "quick": {"rounds": 60, "batch_size": 64, "weight_decay": 0.0},
        "standard": {"rounds": 60, "batch_size": 64, "weight_decay": 0.0},
        "paper": {},
    },
    settings=(Config, fedbyol.Config, contrastive.Config, PretrainingSettings, Compression),
    metric="knn",
    curves=("probe", "probe_few", "loss", "gap", "rank", "gradient", "bytes"),
    delta=1e-2,
    fits={
        "digits": {"projector": "linear", "fedu_threshold": 0.02, "dictionary_samples": 64},
        "mnist": {
            "model": "mlp256", "width": 64, "projector": "linear", "views": "handwriting", "bank": 0,
            "train_samples": 4000, "judged_samples": 2000, "rounds": 50, "local_epochs": 3, "batch_size": 50,
            "fedu_threshold": 0.02, "dictionary_samples": 64,
        },
        "fashion_mnist": {
            "model": "cnn", "width": 64, "projector": "linear", "views": "clothes", "bank": 0,
            "train_samples": 4000, "judged_samples": 2000, "rounds": 50, "local_epochs": 3, "batch_size": 50,
            "fedu_threshold": 0.02, "dictionary_samples": 64,
        },
        "cifar10": _PHOTOGRAPHS,
        "cifar100": _PHOTOGRAPHS | {"clients": 20, "classes_per_client": 5},
        "svhn": _PHOTOGRAPHS | {"clients": 5, "classes_per_client": 2},
    },
    as_published={
        "svhn": _PUBLISHED | {"mu": 2.0},
        "cifar10": _PUBLISHED | {"mu": 4.0},
        "cifar100": _PUBLISHED | {"mu": 5.0, "model": "fixup_resnet50", "batch_size": 256},
    },
    published_for=_RIVALS,
    reads={word: (fedbyol.Config, PretrainingSettings, Compression) for word in fedbyol.METHODS}
    | {word: (contrastive.Config, PretrainingSettings, Compression) for word in contrastive.METHODS}
    | {
        word: (Config, PretrainingSettings, Compression)
        for word in METHODS
        if word not in fedbyol.METHODS | contrastive.METHODS
    }
    | {word: (Config, PretrainingSettings) for word in ("local-sc", "random-encoder", "raw-pixels")},
    judged={
        "": "the one encoder; its neighbours among the training images vote on the common test images",
        "local-sc": "the same with each client's own encoder, the mean over clients",
    },
    build=build,
)  # fmt: skip
