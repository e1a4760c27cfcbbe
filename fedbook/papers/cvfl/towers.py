"""Networks of vertical learning: a tower embeds what one party holds of a sample, the server's network fuses them.

Towers and fusions keep no state and mix no rows, so an embedding that is computed twice is the same twice: what a party
sent at the start of a round and what it recomputes in its first local step agree.

Source: Castiglia, Das, Wang and Patterson, Compressed-VFL (ICML 2022), section 6: h_m are the towers; the fusion is the
part of the loss l that has the parameters theta_0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedbook import arguments
from fedbook.learning.models import MODELS, Network

HIDDEN = 128  # units of the fusion of two layers


@dataclass(frozen=True)
class Tower(Network):
    """A party's network: ``apply(parameters, x [B, *shape]) -> [B, width]``."""

    shape: tuple[int, ...]
    width: int
    activation: str

    def apply(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """The embeddings of ``x`` under ``parameters``. Raises: RuntimeError (a parameter is missing, or too many)."""
        return functional_call(self.module, dict(parameters), (x,), strict=True)


class Views(nn.Module):
    """The same layers for each view, then the largest value over the views, element by element (view pooling).

    Shapes: [B, v, C, H, W] to what the layers make of [B, C, H, W].
    Source: Su et al., Multi-view Convolutional Neural Networks (2015).
    """

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        """[B, v, C, H, W] to [B, C', H', W']."""
        each = self.layers(x.flatten(0, 1))
        return each.unflatten(0, x.shape[:2]).amax(1)


class LSTM(nn.Module):
    """One layer of long short-term memory, from zeros; its last hidden state is the answer.

    Each gate has its rows of W x_t + U h_{t-1} + b, in the order i, f, g, o; i, f and o through the logistic function,
    g through tanh. Then c_t = f c_{t-1} + i g and h_t = o tanh(c_t), element by element.
    Weights start uniform in +-1 / sqrt(width), biases at 0, those of the forget gates at 1, so that long series are
    remembered from the start.
    By hand, as PyTorch's own layer has no rule for ``vmap``, and with one bias a gate instead of two that only add up.
    Shapes: [B, steps, features] to [B, width].
    Source: Hochreiter and Schmidhuber (1997); forget gates: Gers et al. (2000); their bias: Jozefowicz et al. (2015).
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.inward = nn.Parameter(torch.empty(4 * width, features))
        self.across = nn.Parameter(torch.empty(4 * width, width))
        self.bias = nn.Parameter(torch.zeros(4 * width))
        for weight in (self.inward, self.across):
            nn.init.uniform_(weight, -1 / math.sqrt(width), 1 / math.sqrt(width))
        nn.init.ones_(self.bias[width : 2 * width].detach())

    def forward(self, x: Tensor) -> Tensor:
        """[B, steps, features] to [B, width], each entry between -1 and 1."""
        driven = x @ self.inward.mT + self.bias  # [B, steps, 4 width], all steps at once
        h = c = driven.new_zeros(len(x), self.across.shape[1])
        for now in driven.unbind(1):
            i, f, g, o = (now + h @ self.across.mT).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h


class Kind(NamedTuple):
    """How a tower is built from a sample's shape and a width, what the shape's axes are, the least height and width."""

    build: Callable[[tuple[int, ...], int], nn.Sequential]
    axes: tuple[str, ...] = ()
    side: int = 1


def _dense(*units: int) -> Kind:
    """Layers of these tanh units, then a linear one."""

    def build(shape: tuple[int, ...], width: int) -> nn.Sequential:
        layers, inward = [nn.Flatten()], math.prod(shape)
        for count in units:
            layers += [nn.Linear(inward, count), nn.Tanh()]
            inward = count
        return nn.Sequential(*layers, nn.Linear(inward, width))

    return Kind(build)


def _image_model(name: str) -> Kind:
    """The model of that name, its logits taken as the embedding."""
    kind = MODELS[name]
    return Kind(lambda shape, width: kind.build(*shape, width), ("channels", "height", "width"), kind.side)


def _mvcnn(shape: tuple[int, ...], width: int) -> nn.Sequential:
    layers = MODELS["cnn"].build(*shape[1:], width)
    return nn.Sequential(Views(layers[:-2]), *layers[-2:])


TOWERS = {
    "linear": _dense(),
    "mlp": _dense(32),
    "mlp64": _dense(64),
    "cnn": _image_model("cnn"),
    "resnet18": _image_model("resnet18"),
    "resnet18_imagenet": _image_model("resnet18_imagenet"),
    "mvcnn": Kind(_mvcnn, ("views", "channels", "height", "width"), MODELS["cnn"].side),
    "lstm": Kind(lambda shape, width: nn.Sequential(LSTM(shape[1], width)), ("steps", "features")),
}


def tower(name: str, shape: Sequence[int], width: int, activation: str = "tanh") -> Tower:
    """The network ``name`` for samples of ``shape``, with embeddings of ``width`` components.

    * linear: one linear layer; mlp, mlp64: one layer of 32 or 64 tanh units before it. Any shape, flattened.
    * cnn: two 3x3 convolutions of 16 and 32 channels, each with ReLU and 2x2 pooling, then a linear layer; images
      (C, H, W) from 4x4 on. resnet18, resnet18_imagenet: group normalisation, for small and for large images, any size.
    * mvcnn: the cnn, its convolutions shared by the party's views, the largest value over the views before the linear
      layer; (views, C, H, W) from 4x4 on. The linear layer sees 32 (H/4) (W/4) numbers: keep views small.
    * lstm: one layer of ``width`` units over (steps, features), the last hidden state.

    ``activation`` after the last layer: "tanh" (embeddings between -1 and 1, a range both sides know; large values
    round to the ends) or "linear" (none). The lstm's hidden state lies in that range by itself: nothing is
    put after it, and both words give the same network.
    Shapes: ``shape`` of one sample of one party.
    Raises: TypeError, ValueError (also: a shape the network is not made for, too small an image).
    """
    kind = TOWERS[arguments.one_of("tower", name, TOWERS)]
    arguments.one_of("activation", activation, ("tanh", "linear"))
    width = arguments.integer("width", width, 1)
    if kind.axes and len(shape) != len(kind.axes):
        raise arguments.wrong(ValueError, "shape", shape, f"({', '.join(kind.axes)}) for {name}")
    if kind.side > min(shape[-2:]):
        raise arguments.wrong(ValueError, "shape", shape, f"images of at least {kind.side} x {kind.side} for {name}")

    def build() -> nn.Sequential:
        net = kind.build(shape, width)
        return nn.Sequential(*net, nn.Tanh()) if activation == "tanh" and name != "lstm" else net

    return Tower.of(name, build, tuple(shape), width, activation)


@dataclass(frozen=True)
class Fusion(Network):
    """The server's network: ``apply(theta0, combine(views)) -> logits``, of M parties' embeddings.

    ``widths``: P_m of each party in order; P is their sum, or P_m where embeddings are added. A party that trains
    while the others stand still puts its own block to what the others sent: ``put(others, own, columns(m))``, the same
    code for every party, so that parties of equal width are simulated together by ``vmap`` (or by a leading axis) with
    a row of columns for each. ``others`` are all embeddings side by side, of which the party's own columns are
    replaced; where the fusion ``sums``, the sum of the others' without its own.
    """

    widths: tuple[int, ...]
    classes: int

    @property
    def name(self) -> str:
        """The word of FUSIONS."""
        return self.kind

    @property
    def sums(self) -> bool:
        """Whether only the sum of the embeddings is needed (which secure aggregation can give)."""
        return self.kind in ("sum", "logits")

    def apply(self, theta0: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """The logits of combined embeddings.

        Shapes: ``z`` [..., B, P] to [..., B, classes]; the leaves of ``theta0`` without leading axes, or with as many
        as z has (one theta_0 for each z). Raises: KeyError (a missing parameter).
        """
        for place, layer in enumerate(self.module):
            if isinstance(layer, nn.Linear):
                weight, bias = theta0[f"{place}.weight"], theta0[f"{place}.bias"]
                z = z @ weight.mT + bias.unsqueeze(-2)
            else:
                z = layer(z)
        return z

    def combine(self, views: Sequence[Tensor]) -> Tensor:
        """All parties' embeddings as one: side by side, or their sum, in the order of the parties.

        Shapes: M tensors [..., B, P_m] to [..., B, P].
        """
        return functools.reduce(torch.add, views) if self.sums else torch.cat(list(views), -1)

    def columns(self, party: int) -> Tensor:
        """Where the components of a party stand in z. Shapes: [P_m] integers."""
        start = 0 if self.sums else sum(self.widths[:party])
        return torch.arange(start, start + self.widths[party])

    def put(self, others: Tensor, own: Tensor, columns: Tensor) -> Tensor:
        """z with the block ``own``: in place of its columns, or added to the others' sum.

        A gradient flows into ``own`` alone; of embeddings side by side the other columns keep every bit.
        Shapes: ``others`` [..., B, P], ``own`` [..., B, P_m], ``columns`` [..., P_m] to the shape of ``others``, with
        the leading axes of ``own``.
        """
        others = others.detach()
        if self.sums:
            return others + own
        # not torch.where with a gather: that took three times as long, gradient included
        return others.expand(*own.shape[:-1], -1).scatter(-1, columns.unsqueeze(-2).expand(own.shape), own)


FUSIONS = {
    "concat": lambda inward, classes: nn.Sequential(nn.Linear(inward, classes)),
    "concat_mlp": lambda inward, classes: nn.Sequential(
        nn.Linear(inward, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes)
    ),
    "sum": lambda inward, classes: nn.Sequential(nn.Linear(inward, classes)),
    "logits": lambda inward, classes: nn.Sequential(),
}


def fusion(name: str, widths: Sequence[int], classes: int) -> Fusion:
    """The server's network ``name`` for parties with embeddings of these widths.

    * concat: one linear layer on all embeddings side by side (the paper's for images).
    * concat_mlp: a layer of 128 ReLU units before it (the paper's text for MIMIC-III says two layers, no size).
    * sum: one linear layer on the sum of the embeddings; logits: the sum is the logits, there is no theta_0.

    theta_0 is called "0.weight" and "0.bias", and of the second layer "2.weight" and "2.bias".
    Raises: TypeError, ValueError (also: a sum of unequal widths, widths that are not the classes for logits).
    """
    arguments.one_of("fusion", name, FUSIONS)
    arguments.integer("classes", classes, 1)
    if not widths:
        raise arguments.wrong(ValueError, "widths", widths, "one for each party")
    for width in widths:
        arguments.integer("widths", width, 1)
    if name in ("sum", "logits") and len(set(widths)) > 1:
        raise arguments.wrong(ValueError, "widths", widths, f"equal ones for {name}")
    if name == "logits" and widths[0] != classes:
        raise arguments.wrong(ValueError, "widths", widths, f"the {classes} classes for logits")
    inward = widths[0] if name in ("sum", "logits") else sum(widths)
    return Fusion.of(name, lambda: FUSIONS[name](inward, classes), tuple(widths), classes)
