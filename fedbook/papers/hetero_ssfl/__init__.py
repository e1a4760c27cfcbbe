"""Chapter 2: Hetero-SSFL, self-supervised learning across clients of different architectures, and its baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedbook import arguments
from fedbook.federation.composed import Compression
from fedbook.federation.loop import Rounds
from fedbook.learning import fedbyol
from fedbook.learning.models import Parameters
from fedbook.learning.problems import described
from fedbook.learning.self_supervised import SelfSupervised
from fedbook.papers.description import Paper, own_settings
from fedbook.papers.hetero_ssfl import evaluation as judging
from fedbook.papers.hetero_ssfl.algorithm import AlignmentPassOnly, Config, HeteroSSFL, Supervised, Untrained
from fedbook.papers.hetero_ssfl.problem import PERSONAL, AlignedProblem, AlignedSettings, aligned_problem
from fedbook.randomness import stream

__all__ = ["Config", "HeteroSSFL", "METHODS", "PAPER", "Supervised", "algorithm", "run_on"]

LARGE = 10**6  # parameters of an encoder of which a GPU trains one client after another

METHODS: Mapping[str, str] = {
    "hetero-ssfl": "BYOL or SimSiam, similarity matrices of an alignment set exchanged (Algorithm 1)",
    "local-ssl": "every client alone",
    "local-ssl-plus-rad": "control: every client alone, on its own images and the alignment set",
    "alignment-pass-only": "control: the alignment images are seen in every step, their loss is left out",
    "fedbyol": "BYOL, encoder and predictor averaged",
    "fedsimsiam": "SimSiam, encoder and predictor averaged",
    "fedu": "BYOL, own target, predictor replaced only if the encoder moved little",
    "fedema": "BYOL, own target, the global model mixed into the own one",
    "fedavg-supervised": "labels: cross-entropy, everything averaged",
    "centralized-byol": "control: BYOL on all samples in one place",
    "random-encoder": "control: encoders that nobody trained",
    "raw-pixels": "control: no encoder",
}


def algorithm(method: str, problem: AlignedProblem, settings: Mapping[str, Any]) -> SelfSupervised:
    """The method that the settings name, on a problem's encoders, views and alignment set. Raises: ValueError."""
    arguments.one_of("method", method, [word for word in METHODS if word != "raw-pixels"])
    config, views, one = own_settings(Config, settings), problem.views, problem.model
    if method in PERSONAL:
        nets = {word: fedbyol.online_network(config, net) for word, net in problem.encoders.items()}
        kind = {"random-encoder": Untrained, "alignment-pass-only": AlignmentPassOnly}.get(method, HeteroSSFL)
        shares, receives = method == "hetero-ssfl", method in ("local-ssl-plus-rad", "alignment-pass-only")
        images = problem.levels, problem.alignment
        return kind(config, nets, problem.assigned, views, *images, method, shares, receives)
    if method == "fedavg-supervised":
        return Supervised(config, one, views, len(problem.classes))
    if method == "fedsimsiam":
        config = replace(config, loss="simsiam")
    if method == "centralized-byol":
        config = replace(config, cohort=0)
    kind = fedbyol.METHODS.get(method, fedbyol.FedBYOL)
    return kind(own_settings(fedbyol.Config, vars(config)), one, views, method)


def build(
    method: str, problem: str, settings: Mapping[str, Any], seeds: Sequence[int], device: str, **options: Any
) -> Rounds:
    """The run that the settings name (fields of Config and of AlignedSettings)."""
    images = aligned_problem(problem, own_settings(AlignedSettings, settings), seeds, device)
    return run_on(images, method, settings, seeds, **options)


def run_on(
    images: AlignedProblem, method: str, settings: Mapping[str, Any], seeds: Sequence[int], **options: Any
) -> Rounds:
    """As :func:`build`, on a problem that is there already."""
    config, raw = own_settings(Config, settings), method == "raw-pixels"
    running = algorithm("random-encoder" if raw else method, images, settings)
    personal, pooled = method in PERSONAL or raw, method == "centralized-byol"
    federation = images.federation(personal, pooled, extended=method == "local-ssl-plus-rad")
    if personal:
        nets, architectures, dtype = running.nets, images.assigned, images.x.dtype

        def initial(slot: int, client: int) -> Parameters:
            return running.init_client(seeds[slot], client, architectures[client], dtype)

    else:
        own = isinstance(running, fedbyol.FedBYOL)  # judged by the loss that the method trains
        nets = {"all": running.net if own else fedbyol.online_network(config, images.model)}

        def initial(slot: int, client: int) -> Parameters:
            return running.init(stream(seeds[slot], "init"), images.x.dtype)

    still = isinstance(running, Untrained)
    options.setdefault("every", max(1, config.rounds if still else settings["evaluate_every"] or config.rounds // 2))
    sizes = [net.encoder.size for net in nets.values()]
    if images.x.device.type == "cuda" and max(sizes) > LARGE:
        options.setdefault("how", "loop")  # one client fills the card, and all at once would not fit it
    evaluate = judging.pixels(images) if raw else judging.evaluation(images, nets, config.layer, initial)
    return Rounds(running, federation, config.rounds, seeds=seeds, evaluate=evaluate, **options)


# A client's target outlives the round (FedBYOL too: the FedSSL code's default); mu is relative to one direction.
_COMMON = {"target": "local", "directions": "mean", "weight_decay": 0.0, "max_norm": 0.0}
_SMALL = _COMMON | {"local_epochs": 3, "batch_size": 64, "lr": 0.1, "target_decay": 0.95}
_GREY = {
    "architectures": "cnn,mlp256", "model": "cnn", "width": 64, "train_samples": 4000, "test_samples": 2000,
    "judged_samples": 2000, "fedu_threshold": 0.2,
}  # fmt: skip
_PHOTOGRAPHS = {
    "architectures": "cnn,fixup_resnet20", "model": "fixup_resnet20", "width": 64, "views": "photographs",
    "alignment_samples": 2000, "judged_samples": 5000,
}  # fmt: skip
# Clients hold 9,000 images, not 10,000: the alignment set is taken out first. By Table 4, three ResNet-34 and two
# ResNet-18 come nearest to Table 1's mean. Table 3: --set clients=20 --set cohort=5, and 100 and 10.
# Not in the paper, taken from the public FedSSL code: target decay, augmentation, heads (smaller ones: CKA's bias).
_PUBLISHED = {
    "architectures": "resnet34,resnet18", "model": "resnet34", "width": 128, "projector_hidden": 512,
    "predictor_hidden": 512, "alignment_samples": 5000, "alignment_batch": 256, "judged_samples": 0,
    "precision": "mixed", "views": "fedssl", "bank": 0, "train_samples": 0, "test_samples": 0,
}  # fmt: skip

PAPER = Paper(
    name="hetero_ssfl",
    title="Hetero-SSFL: self-supervised learning across different architectures (chapter 2)",
    methods=METHODS,
    problems=described("digits", "mnist", "fashion_mnist", "cifar10", "cifar100", "tiny_imagenet"),
    profiles={
        "quick": _SMALL | {"rounds": 5},
        "standard": _SMALL | {"rounds": 20},
        "paper": _COMMON | {"batch_size": 200, "lr": 0.032, "lr_schedule": "constant", "probe": "paper"},
    },
    settings=(Config, AlignedSettings, Compression),
    reads=dict.fromkeys(
        ("local-ssl", "local-ssl-plus-rad", "alignment-pass-only", "random-encoder", "raw-pixels"),
        (Config, AlignedSettings),
    ),
    metric="probe_few",
    curves=("probe", "knn", "alignment", "alignment_test", "self_loss", "rank", "own_classes", "bytes"),
    fits={
        "digits": {"fedu_threshold": 0.2},
        "mnist": _GREY | {"views": "handwriting"},
        "fashion_mnist": _GREY | {"views": "clothes"},
        "cifar10": _PHOTOGRAPHS,
        "cifar100": _PHOTOGRAPHS | {"classes_per_client": 20},
        "tiny_imagenet": _PHOTOGRAPHS | {"classes_per_client": 40},
    },
    as_published={
        "cifar10": _PUBLISHED | {"mu": 0.5},
        "cifar100": _PUBLISHED | {"mu": 0.5},
        "tiny_imagenet": _PUBLISHED | {"mu": 1.0},
    },
    judged={"": "the one encoder; a probe with 5 labels a class, on the common test images"}
    | dict.fromkeys(PERSONAL, "the same with each client's own encoder, the mean over clients"),
    build=build,
)  # fmt: skip
