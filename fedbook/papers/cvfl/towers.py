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
from fedbook.learning.models import MODELS, Network, Parameters
from fedbook.papers.cvfl.layers import LSTM, Views

ACTIVATIONS = ("tanh", "linear")
HIDDEN = 128  # units of the fusion of two layers


@dataclass(frozen=True)
class Tower(Network):
    """A party's network: ``apply(parameters, x [B, *shape]) -> [B, width]``."""

    shape: tuple[int, ...]
    width: int
    activation: str

    def apply(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """The embeddings of ``x`` under ``parameters``.

        Raises: TypeError, ValueError (``x``), RuntimeError (a parameter that is missing, or one too many).
        """
        arguments.tensor("x", x, shape=(None, *self.shape), kind="float", finite=False)
        return functional_call(self.module, dict(parameters), (x,), strict=True)


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
    sizes = _sizes("shape", shape, "the sizes of one sample, as (features,) or (C, H, W)")
    if kind.axes and len(sizes) != len(kind.axes):
        raise arguments.wrong(ValueError, "shape", sizes, f"({', '.join(kind.axes)}) for {name}")
    if kind.side > min(sizes[-2:]):
        raise arguments.wrong(ValueError, "shape", sizes, f"images of at least {kind.side} x {kind.side} for {name}")
    width = arguments.integer("width", width, 1)
    arguments.one_of("activation", activation, ACTIVATIONS)

    def build() -> nn.Sequential:
        net = kind.build(sizes, width)
        return nn.Sequential(*net, nn.Tanh()) if activation == "tanh" and name != "lstm" else net

    with torch.random.fork_rng(devices=[]):
        return Tower(name, build(), build, sizes, width, activation)


@dataclass(frozen=True)
class Fusion(Network):
    """The server's network: ``apply(theta0, combine(views)) -> logits``, of M parties' embeddings.

    ``widths``: P_m of each party in order. A party that trains while the others stand still puts its own block to what
    the others sent: ``put(others, own, columns(m))``, the same code for every party, so that parties of equal width
    are simulated together by ``vmap`` (or by a leading axis) with a row of columns for each. ``others`` are all
    embeddings side by side, of which the party's own columns are replaced; where the fusion ``sums``, the sum of the
    others' without its own.
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

    @property
    def input_width(self) -> int:
        """Components of z: all parties' P_m, or P of a sum."""
        return self.widths[0] if self.sums else sum(self.widths)

    def apply(self, theta0: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """The logits of combined embeddings.

        Shapes: ``z`` [..., B, input_width] to [..., B, classes]; the leaves of ``theta0`` without leading axes, or with
        as many as z has (one theta_0 for each z).
        Raises: TypeError, ValueError (shapes), KeyError (a missing parameter).
        """
        if arguments.tensor("z", z, kind="float", finite=False).ndim < 2 or z.shape[-1] != self.input_width:
            raise arguments.wrong(ValueError, "z", z, f"[..., B, {self.input_width}]")
        for place, layer in enumerate(self.module):
            if isinstance(layer, nn.Linear):
                weight, bias = theta0[f"{place}.weight"], theta0[f"{place}.bias"]
                if weight.ndim not in (2, z.ndim):  # they would be matched with the wrong axes
                    raise arguments.wrong(ValueError, "theta0", weight, f"a weight with 2 or {z.ndim} axes")
                z = z @ weight.mT + bias.unsqueeze(-2)
            else:
                z = layer(z)
        return z

    def combine(self, views: Sequence[Tensor]) -> Tensor:
        """All parties' embeddings as one: side by side, or their sum, in the order of the parties.

        Shapes: M tensors [..., B, P_m] to [..., B, input_width]. Raises: TypeError, ValueError.
        """
        allowed = f"one tensor [..., B, P_m] for each party, P_m {self.widths}"
        if not isinstance(views, Sequence):
            raise arguments.wrong(TypeError, "views", views, allowed)
        found = [tuple(arguments.tensor("views", h, kind="float", finite=False).shape) for h in views]
        if [shape[-1:] for shape in found] != [(width,) for width in self.widths]:
            raise arguments.wrong(ValueError, "views", found, allowed)
        return functools.reduce(torch.add, views) if self.sums else torch.cat(list(views), -1)

    def columns(self, party: int) -> Tensor:
        """Where the components of a party stand in z. Shapes: [P_m] integers. Raises: TypeError, ValueError."""
        party = arguments.integer("party", party, 0, len(self.widths) - 1)
        start = 0 if self.sums else sum(self.widths[:party])
        return torch.arange(start, start + self.widths[party])

    def put(self, others: Tensor, own: Tensor, columns: Tensor) -> Tensor:
        """z with the block ``own``: in place of its columns, or added to the others' sum.

        A gradient flows into ``own`` alone; of embeddings side by side the other columns keep every bit.
        Shapes: ``others`` [..., B, input_width], ``own`` [..., B, P_m], ``columns`` [..., P_m] to the shape of
        ``others``, with the leading axes of ``own``. Raises: ValueError.
        """
        if others.shape[-1] != self.input_width or own.shape[-1] != columns.shape[-1]:
            shapes = [tuple(x.shape) for x in (others, own, columns)]
            allowed = f"[..., B, {self.input_width}], [..., B, P_m] and [..., P_m]"
            raise arguments.wrong(ValueError, "others, own and columns", shapes, allowed)
        others = others.detach()
        if self.sums:
            return others + own
        # not torch.where with a gather: that took three times as long, gradient included
        return others.expand(*own.shape[:-1], -1).scatter(-1, columns.unsqueeze(-2).expand(own.shape), own)

    def permute(self, theta0: Mapping[str, Tensor], order: Sequence[int]) -> Parameters:
        """``theta0`` for the same parties in another order: the party at place i is the one now at ``order[i]``.

        Raises: TypeError, ValueError (no permutation of the parties).
        """
        allowed = f"each of the {len(self.widths)} parties once"
        order = _sizes("order", order, allowed, 0)
        if sorted(order) != list(range(len(self.widths))):
            raise arguments.wrong(ValueError, "order", order, allowed)
        if self.sums:
            return dict(theta0)
        columns = torch.cat([self.columns(m) for m in order])
        weight = theta0["0.weight"]
        return {**theta0, "0.weight": weight[..., columns.to(weight.device)]}


FUSIONS = {
    "concat": lambda inward, classes: nn.Sequential(nn.Linear(inward, classes)),
    "concat_mlp": lambda inward, classes: nn.Sequential(
        nn.Linear(inward, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes)
    ),
    "sum": lambda inward, classes: nn.Sequential(nn.Linear(inward, classes)),
    "logits": lambda inward, classes: nn.Sequential(),
}


def _sizes(name: str, value: Sequence[int], allowed: str, minimum: int = 1) -> tuple[int, ...]:
    """A sequence of whole numbers, not empty."""
    if not isinstance(value, Sequence) or not value:
        raise arguments.wrong(ValueError if isinstance(value, Sequence) else TypeError, name, value, allowed)
    return tuple(arguments.integer(name, n, minimum) for n in value)


def fusion(name: str, widths: Sequence[int], classes: int) -> Fusion:
    """The server's network ``name`` for parties with embeddings of these widths.

    * concat: one linear layer on all embeddings side by side (the paper's for images).
    * concat_mlp: a layer of 128 ReLU units before it (the paper's text for MIMIC-III says two layers, no size).
    * sum: one linear layer on the sum of the embeddings; logits: the sum is the logits, there is no theta_0.

    theta_0 is called "0.weight" and "0.bias", and of the second layer "2.weight" and "2.bias".
    Raises: TypeError, ValueError (also: a sum of unequal widths, widths that are not the classes for logits).
    """
    arguments.one_of("fusion", name, FUSIONS)
    widths = _sizes("widths", widths, "the embedding size of each party")
    classes = arguments.integer("classes", classes, 2)
    if name in ("sum", "logits") and len(set(widths)) > 1:
        raise arguments.wrong(ValueError, "widths", widths, f"equal ones for {name}")
    if name == "logits" and widths[0] != classes:
        raise arguments.wrong(ValueError, "widths", widths, f"the {classes} classes for logits")
    inward = widths[0] if name in ("sum", "logits") else sum(widths)

    def build() -> nn.Sequential:
        return FUSIONS[name](inward, classes)

    with torch.random.fork_rng(devices=[]):
        return Fusion(name, build(), build, widths, classes)
