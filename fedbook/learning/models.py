"""Small models without batch statistics, as pure functions of their parameters.

A model's parameters are a dictionary of tensors; a stack of K models is the same dictionary with a
leading axis. ``kind`` names the row of the committed choice table (``fedbook/federation/choices.json``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedbook import arguments
from fedbook.learning.resnets import resnet18, resnet18_imagenet
from fedbook.randomness import torch_seed

Parameters = dict[str, Tensor]
Builder = Callable[[int, int, int, int], nn.Sequential]  # channels, height, width, classes
_DENSE = (nn.Flatten, nn.Linear, nn.ReLU, nn.Tanh)


@dataclass(frozen=True)
class Network:
    """A network without state as a function: ``apply(parameters, x)``.

    ``module`` only says how it is computed and what its parameters are called; ``build`` makes a fresh one.
    """

    kind: str
    module: nn.Module
    build: Callable[[], nn.Module]

    @classmethod
    def of(cls, kind: str, build: Callable[[], nn.Module], *rest: Any) -> Self:
        """The network that ``build`` makes; PyTorch's own generator stays as it was."""
        with torch.random.fork_rng(devices=[]):
            return cls(kind, build(), build, *rest)

    def to(self, device: torch.device | str) -> Self:
        """The same with its module on ``device``."""
        self.module.to(device)
        return self

    def apply(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """What the network makes of ``x`` under ``parameters``."""
        return functional_call(self.module, dict(parameters), (x,))

    def apply_each(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """R networks side by side, each on its own samples; of dense ones a layer is one batched product.

        Shapes: the leaves of ``parameters`` [R, ...], ``x`` [R, B, ...] to [R, B, ...].
        """
        if not _layer_by_layer(self.module):
            return vmap(self.apply)(dict(parameters), x)
        for name, layer in self.module.named_children():
            if isinstance(layer, nn.Linear):
                x = torch.baddbmm(parameters[f"{name}.bias"][:, None], x, parameters[f"{name}.weight"].mT)
            else:
                x = x.flatten(2) if isinstance(layer, nn.Flatten) else layer(x)
        return x

    def init(self, rng: np.random.Generator, dtype: torch.dtype = torch.float32) -> Parameters:
        """Fresh parameters by the module's own initialisation, keyed by ``rng``."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(torch_seed(rng))  # torch.manual_seed would touch the GPU's too
            module = self.build()
        return {name: p.detach().to(dtype) for name, p in module.named_parameters()}

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(p.numel() for p in self.module.parameters())


@dataclass(frozen=True)
class Model(Network):
    """A network of which ``apply(parameters, x)`` are the logits.

    Its last layer, a linear one, is the *head*; what comes before is the *body*:
    ``apply({**body, **head}, x) == classify(head, features(body, x))``.
    Shapes: x [B, C, H, W] to features [B, D] to logits [B, classes].
    """

    module: nn.Sequential
    build: Callable[[], nn.Sequential]

    def __post_init__(self):
        if not isinstance(self.module, nn.Sequential) or not len(self.module):
            raise arguments.wrong(TypeError, "build", self.build, "a function that makes an nn.Sequential of layers")

    def features(self, body: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """What the last layer gets to see of ``x``; only the parameters of the body are used."""
        own = {name: p for name, p in body.items() if name not in self.head_names}
        return functional_call(self.module[:-1], own, (x,))

    def classify(self, head: Mapping[str, Tensor], features: Tensor) -> Tensor:
        """The logits of features; only the parameters of the head are used."""
        own = {name.removeprefix(self._last): head[name] for name in self.head_names}
        return functional_call(self.module[-1], own, (features,))

    @property
    def head_names(self) -> tuple[str, ...]:
        """The names of the head's parameters."""
        return tuple(name for name, _ in self.module.named_parameters() if name.startswith(self._last))

    @property
    def _last(self) -> str:
        """How the names of the last layer's parameters begin."""
        names = [name for name, _ in self.module.named_modules(remove_duplicate=False) if name and "." not in name]
        return names[-1] + "."

    @property
    def form(self) -> str:
        """What tells this model from others: its kind, and of one's own also its layers."""
        return self.kind if self.kind in MODELS else f"{self.kind}: {self.module}"

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the linear layers if the model is these with ReLU between; of any other model, none."""
        kinds = [nn.Flatten, *[nn.Linear, nn.ReLU] * (len(self.module) // 2)][: len(self.module)]
        dense = (
            [type(layer) for layer in self.module] == kinds and kinds[-1] is nn.Linear and _layer_by_layer(self.module)
        )
        return tuple(name for name, layer in self.module.named_children() if dense and type(layer) is nn.Linear)

    def split(self, parameters: Mapping[str, Tensor]) -> tuple[Parameters, Parameters]:
        """``parameters`` as (body, head). Raises: KeyError (a parameter of the head is missing)."""
        head = {name: parameters[name] for name in self.head_names}
        return {name: p for name, p in parameters.items() if name not in head}, head


def _dense(*widths: int) -> Builder:
    """ReLU layers of these widths, then the head."""

    def build(c: int, h: int, w: int, classes: int) -> nn.Sequential:
        layers, inward = [nn.Flatten()], c * h * w
        for width in widths:
            layers += [nn.Linear(inward, width), nn.ReLU()]
            inward = width
        return nn.Sequential(*layers, nn.Linear(inward, classes))

    return build


# Pooling stands before the ReLU: the same numbers and gradients, bit for bit, for a quarter of its work.
def _cnn(c: int, h: int, w: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(c, 16, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * (h // 4) * (w // 4), classes),
    )  # fmt: skip


def _cnn_fedavg(c: int, h: int, w: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(c, 32, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(32, 64, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(64 * (h // 4) * (w // 4), 512), nn.ReLU(), nn.Linear(512, classes),
    )  # fmt: skip


def _cnn_dp2fedsam(c: int, h: int, w: int, classes: int) -> nn.Sequential:
    layers, inward = [], c
    for outward in (64, 128, 256):
        layers += [nn.Conv2d(inward, outward, 3), nn.MaxPool2d(2), nn.ReLU()]
        inward, h, w = outward, (h - 2) // 2, (w - 2) // 2
    return nn.Sequential(*layers, *_dense(256, 128)(inward, h, w, classes))


def _cnn_small(c: int, h: int, w: int, classes: int) -> nn.Sequential:
    h, w = (((n + 1) // 4 - 2) // 2 for n in (h, w))
    return nn.Sequential(
        nn.Conv2d(c, 8, 5, stride=2, padding=2), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(8, 16, 3), nn.MaxPool2d(2), nn.ReLU(),
        *_dense(32)(16, h, w, classes),
    )  # fmt: skip


class Kind(NamedTuple):
    """How a model is built, and the least height and width of its images."""

    build: Builder
    side: int = 1


MODELS = {
    "linear": Kind(_dense()),
    "mlp": Kind(_dense(64)),
    "mlp16": Kind(_dense(16)),
    "mlp32": Kind(_dense(32)),
    "mlp_fedavg": Kind(_dense(200, 200)),
    "cnn": Kind(_cnn, 4),
    "cnn_small": Kind(_cnn_small, 15),
    "cnn_fedavg": Kind(_cnn_fedavg, 4),
    "cnn_dp2fedsam": Kind(_cnn_dp2fedsam, 22),
    "resnet18": Kind(resnet18),
    "resnet18_imagenet": Kind(resnet18_imagenet),
}


def model(name: str, shape: tuple[int, int, int], classes: int) -> Model:
    """The model ``name``. Parameters of body + head, for 10 classes and images of 1x28x28 unless said otherwise:

    * linear: softmax regression, 0 + 7,850; mlp, mlp16, mlp32: one layer of 64, 16, 32 ReLU units, 50,240 + 650,
      12,560 + 170, 25,120 + 330 (mlp16 on the digits of 1x8x8: 1,040 + 170).
    * mlp_fedavg, cnn_fedavg: the two of the FedAvg paper, two layers of 200 units, 197,200 + 2,010; two 5x5
      convolutions of 32 and 64 channels and 512 units, 1,658,240 + 5,130.
    * cnn: two 3x3 convolutions of 16 and 32 channels, 4,800 + 15,690. cnn_small: 5x5 of stride 2 and
      3x3, 8 and 16 channels, 32 units, 3,456 + 330: for private learning on a CPU, as the noise's norm grows with the
      root of the body's size.
    * cnn_dp2fedsam: the DP2-FedSAM paper's, three unpadded 3x3 convolutions of 64, 128 and 256 channels, 256 and 128
      units; 3x32x32: 666,112 + 1,290; 1x28x28: 468,352 + 1,290 (flattened: 1,024 and 256).
    * resnet18, resnet18_imagenet: group normalisation, the stem for small and for large images; 3 channels:
      11,168,832 + 5,130 and 11,176,512 + 5,130.

    Shapes: ``shape`` = (C, H, W) of one image. Raises: TypeError, ValueError (also: images too small for the model).
    """
    kind = MODELS[arguments.one_of("model", name, MODELS)]
    size, classes = image_size(name, shape, kind.side), arguments.integer("classes", classes, 1)
    return Model.of(name, lambda: kind.build(*size, classes))


def image_size(name: str, shape: Sequence[int], side: int) -> tuple[int, int, int]:
    """``shape`` if it is (C, H, W) of images large enough for the network ``name``. Raises: TypeError, ValueError."""
    if not isinstance(shape, Sequence) or len(shape) != 3:
        raise arguments.wrong(ValueError, "shape", shape, "(channels, height, width)")
    c, h, w = (arguments.integer("shape", n, 1) for n in shape)
    if min(h, w) < side:
        raise arguments.wrong(ValueError, "shape", shape, f"images of at least {side} x {side} for {name}")
    return c, h, w


def stack(parameters: list[Parameters]) -> Parameters:
    """K sets of parameters as one with a leading axis [K, ...]."""
    return {name: torch.stack([p[name] for p in parameters]) for name in parameters[0]}


@dataclass(frozen=True)
class Loss:
    """A loss of one client, ``loss(parameters, batch)``, and where there is one the same for R clients side by side.

    ``stacked(parameters, batch, take) -> losses [R]`` also hands each layer's gradient to ``take`` once it needs the
    parameter no more: ``take(name, g)`` is the gradient itself [R, ...], ``take(name, g, x)`` its factors, g^T x.
    ``many(parameters, batch) -> losses [R]`` leaves the gradients to autograd.
    """

    one: Callable[[Parameters, Mapping[str, Tensor]], Tensor]
    stacked: Callable[[Parameters, Mapping[str, Tensor], Callable[..., None]], Tensor] | None = None
    many: Callable[[Parameters, Mapping[str, Tensor]], Tensor] | None = None

    def __call__(self, parameters: Parameters, batch: Mapping[str, Tensor]) -> Tensor:
        return self.one(parameters, batch)


def cross_entropy(
    apply: Callable[[Parameters, Tensor], Tensor],
    layers: Sequence[str] = (),
    apply_each: Callable[[Parameters, Tensor], Tensor] | None = None,
) -> Loss:
    """The mean cross-entropy over a batch's real rows, as ``loss(parameters, batch)``.

    ``layers``: the names of the linear layers if ``apply`` is nothing but these with ReLU between (``Model.layers``).
    ``apply_each``: the same as ``apply`` for R clients side by side (``Network.apply_each``).
    Shapes: batch["x"] [B, ...], batch["y"] [B], batch["weight"] [B] (1 = real row, 0 = padding).
    """

    def mean(apply: Callable[[Parameters, Tensor], Tensor], parameters: Parameters, batch: Mapping) -> Tensor:
        weight, y = batch["weight"], batch["y"]
        each = nn.functional.cross_entropy(apply(parameters, batch["x"]).flatten(0, -2), y.flatten(), reduction="none")
        return (each.view(y.shape) * weight).sum(-1) / weight.sum(-1).clamp(min=1)

    stacked = partial(_backpropagation, tuple(layers)) if layers else None
    return Loss(partial(mean, apply), stacked, apply_each and partial(mean, apply_each))


def _backpropagation(
    layers: Sequence[str], parameters: Parameters, batch: Mapping[str, Tensor], take: Callable[..., None]
) -> Tensor:
    """R dense networks side by side, forward and backward in batched products: a third of the time of vmap and grad.

    Shapes: batch["x"] [R, B, ...], batch["y"] and batch["weight"] [R, B]; parameters [R, ...]; losses [R].
    """
    inputs = [batch["x"].flatten(2)]  # of each layer, [R, B, D]
    for name in layers:
        z = torch.baddbmm(parameters[f"{name}.bias"][:, None], inputs[-1], parameters[f"{name}.weight"].mT)
        inputs.append(z if name == layers[-1] else z.relu_())
    y, logp = batch["y"][..., None], inputs.pop().log_softmax(-1)
    share = batch["weight"] / batch["weight"].sum(1, keepdim=True).clamp(min=1)
    losses = -(logp.gather(-1, y).squeeze(-1) * share).sum(1)
    g = logp.exp_().scatter_(-1, y, -1.0, reduce="add").mul_(share[..., None])  # d losses / d z, (p - onehot) / n
    for name, x in zip(reversed(layers), reversed(inputs), strict=True):
        below = None if name == layers[0] else torch.bmm(g, parameters[f"{name}.weight"]).mul_(x.sign())  # ReLU: x >= 0
        take(f"{name}.weight", g, x)
        take(f"{name}.bias", g.sum(1))
        g = below
    return losses


def _layer_by_layer(module: nn.Module) -> bool:
    """Whether :meth:`Network.apply_each` can take ``module`` layer by layer: these layers alone, as they are."""
    if type(module) is not nn.Sequential or len({id(layer) for layer in module}) < len(module):
        return False  # a layer that stands in it twice would be met once
    return all(
        type(layer) in _DENSE
        and not (isinstance(layer, nn.Linear) and layer.bias is None)
        and not (isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1))
        for layer in module
    )
