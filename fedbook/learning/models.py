"""Small models without batch statistics, as pure functions of their parameters.

A model's parameters are a dictionary of tensors; a stack of K models is the same dictionary with a
leading axis. ``kind`` names the row of the committed choice table (``fedbook/learning/choices.json``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedbook import arguments
from fedbook.randomness import torch_seed

Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class Model:
    """A network as a function: ``apply(parameters, x) -> logits``.

    Its last layer, a linear one, is the *head*; what comes before is the *body*:
    ``apply({**body, **head}, x) == classify(head, features(body, x))``.
    Shapes: x [B, C, H, W] to features [B, D] to logits [B, classes].
    """

    kind: str
    module: nn.Sequential
    build: Callable[[], nn.Sequential]

    def apply(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """The logits of ``x`` under ``parameters``."""
        return functional_call(self.module, dict(parameters), (x,))

    def features(self, body: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """What the last layer gets to see of ``x``; only the parameters of the body are used."""
        own = {name: p for name, p in body.items() if name not in self.head_names}
        return functional_call(self.module[:-1], own, (x,))

    def classify(self, head: Mapping[str, Tensor], features: Tensor) -> Tensor:
        """The logits of features; only the parameters of the head are used."""
        prefix = f"{len(self.module) - 1}."
        own = {name.removeprefix(prefix): head[name] for name in self.head_names}
        return functional_call(self.module[-1], own, (features,))

    @property
    def head_names(self) -> tuple[str, ...]:
        """The names of the head's parameters."""
        prefix = f"{len(self.module) - 1}."
        return tuple(name for name, _ in self.module.named_parameters() if name.startswith(prefix))

    def split(self, parameters: Mapping[str, Tensor]) -> tuple[Parameters, Parameters]:
        """``parameters`` as (body, head). Raises: KeyError (a parameter of the head is missing)."""
        head = {name: parameters[name] for name in self.head_names}
        return {name: p for name, p in parameters.items() if name not in head}, head

    def init(self, rng: np.random.Generator, dtype: torch.dtype = torch.float32) -> Parameters:
        """Fresh parameters by PyTorch's default initialisation, keyed by ``rng``. Raises: TypeError."""
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise arguments.wrong(TypeError, "dtype", dtype, "a floating-point dtype of PyTorch")
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(torch_seed(rng))  # torch.manual_seed would touch the GPU's too
            module = self.build()
        return {name: p.detach().to(dtype) for name, p in module.named_parameters()}

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(p.numel() for p in self.module.parameters())


def _linear(c: int, h: int, w: int, classes: int) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(c * h * w, classes))


def _mlp(c: int, h: int, w: int, classes: int) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(c * h * w, 64), nn.ReLU(), nn.Linear(64, classes))


def _cnn(c: int, h: int, w: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(c, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * (h // 4) * (w // 4), classes),
    )  # fmt: skip


def _mlp_fedavg(c: int, h: int, w: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(c * h * w, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, classes)
    )


def _cnn_fedavg(c: int, h: int, w: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(c, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * (h // 4) * (w // 4), 512), nn.ReLU(), nn.Linear(512, classes),
    )  # fmt: skip


MODELS = {"linear": _linear, "mlp": _mlp, "cnn": _cnn, "mlp_fedavg": _mlp_fedavg, "cnn_fedavg": _cnn_fedavg}


def model(name: str, shape: tuple[int, int, int], classes: int) -> Model:
    """The model ``name``.

    "linear" (softmax regression), "mlp" (64 hidden ReLU units), "cnn" (two 3x3 layers of 16 and 32 channels), and
    the two of the FedAvg paper: "mlp_fedavg" (two layers of 200) and "cnn_fedavg" (two 5x5 layers of 32 and 64
    channels, 512 units).
    Shapes: ``shape`` = (C, H, W) of one image. Raises: TypeError, ValueError.
    """
    arguments.one_of("model", name, MODELS)
    if not isinstance(shape, Sequence) or len(shape) != 3:
        raise arguments.wrong(ValueError, "shape", shape, "(channels, height, width)")
    c, h, w = (arguments.integer("shape", n, 1) for n in shape)
    if name.startswith("cnn") and min(h, w) < 4:
        raise arguments.wrong(ValueError, "shape", shape, "images of at least 4 x 4 for a cnn")
    classes = arguments.integer("classes", classes, 2)

    def build() -> nn.Sequential:
        return MODELS[name](c, h, w, classes)

    with torch.random.fork_rng(devices=[]):
        return Model(name, build(), build)


def stack(parameters: list[Parameters]) -> Parameters:
    """K sets of parameters as one with a leading axis [K, ...]. Raises: ValueError (none, or unequal names)."""
    if not parameters or any(p.keys() != parameters[0].keys() for p in parameters):
        names = [sorted(p) for p in parameters]
        raise arguments.wrong(ValueError, "parameters", names, "at least one set, all with the same names")
    return {name: torch.stack([p[name] for p in parameters]) for name in parameters[0]}


def cross_entropy(
    apply: Callable[[Parameters, Tensor], Tensor],
) -> Callable[[Parameters, Mapping[str, Tensor]], Tensor]:
    """The mean cross-entropy over a batch's real rows, as ``loss(parameters, batch)``.

    Shapes: batch["x"] [B, ...], batch["y"] [B], batch["weight"] [B] (1 = real row, 0 = padding).
    """

    def loss(parameters: Parameters, batch: Mapping[str, Tensor]) -> Tensor:
        logits = apply(parameters, batch["x"])
        each = nn.functional.cross_entropy(logits, batch["y"], reduction="none")
        return (each * batch["weight"]).sum() / batch["weight"].sum().clamp(min=1)

    return loss
