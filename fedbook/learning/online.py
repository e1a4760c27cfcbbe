"""The online network of BYOL and SimSiam, encoder and predictor, and their losses on the views of a batch.

All run under vmap and look at no value. ``weight`` [B] is 1 for a sample and 0 for a row that only fills up the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedbook.learning.encoders import Encoder, in_batch, predictor
from fedbook.learning.models import Network, Parameters

PREDICTOR = "predictor."  # what the names of its parameters start with; encoders pass over them
LAYERS = ("predictor", "projector", "encoder")  # what may be taken as the representation of an image


def with_predictor(encoder: Parameters, predictor: Parameters) -> Parameters:
    """One flat dictionary of both, the predictor's names with the prefix "predictor."."""
    return encoder | {PREDICTOR + name: p for name, p in predictor.items()}


def without_predictor(theta: Mapping[str, Tensor]) -> Parameters:
    """The encoder's parameters of the flat dictionary."""
    return {name: p for name, p in theta.items() if not name.startswith(PREDICTOR)}


def only_predictor(theta: Mapping[str, Tensor]) -> Parameters:
    """The predictor's parameters of the flat dictionary, under its own names."""
    return {name.removeprefix(PREDICTOR): p for name, p in theta.items() if name.startswith(PREDICTOR)}


@dataclass(frozen=True)
class Online:
    """An encoder and a predictor with one flat dictionary of parameters.

    ``loss``: "byol" compares with a target's representations, "simsiam" with the encoder's own. ``directions``: "sum"
    of the two in which a pair of views is compared (Grill et al.), or their "mean". ``precision``: "mixed" computes the
    backbone in bfloat16, heads and losses never. The predictor is normalised where the projector is.
    """

    encoder: Encoder
    predictor: Network
    loss: str = "byol"
    directions: str = "sum"
    precision: str = "full"

    @property
    def moving(self) -> bool:
        """Whether there is a separate target."""
        return self.loss == "byol"

    @property
    def width(self) -> int:
        """H, of the representation and of the prediction."""
        return self.encoder.width

    def init(self, rng, dtype: torch.dtype) -> Parameters:
        """Fresh encoder and predictor."""
        return with_predictor(self.encoder.init(rng, dtype), self.predictor.init(rng, dtype))

    def features(self, theta: Mapping[str, Any], x: Tensor) -> Tensor:
        """h [B, D] of images [B, C, H, W], in the images' dtype whatever the precision."""
        if self.precision == "full":
            return self.encoder.features(theta, x)
        with torch.autocast(x.device.type, torch.bfloat16):
            h = self.encoder.features(theta, x)
        return h.to(x.dtype)

    def predict(self, theta: Mapping[str, Any], z: Tensor, weight: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """p [B, H] of z in training, and the statistics of the batch."""
        p, seen = in_batch(self.predictor.module, only_predictor(theta), z, weight)
        return p, {PREDICTOR + name: value for name, value in seen.items()}

    def objective(self, theta: Mapping[str, Any], views: Tensor, weight: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, the mean over samples and pairs of views, and the running statistics that it gives.

        ``theta`` also holds the "target" where it moves; its batch statistics are its own. View v is paired with view
        v + V / 2, and all views of a batch are normalised together.
        Shapes: ``views`` [B, V, C, H, W], ``weight`` [B] (0: no sample).
        """
        x = views.flatten(0, 1)
        followed = self.features(theta["target"], x) if self.moving else None
        return self.objective_of_features(theta, self.features(theta, x), followed, weight)

    def objective_of_features(
        self, theta: Mapping[str, Any], h: Tensor, followed: Tensor | None, weight: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """As :meth:`objective`, from the features h [B V, D] of all views and the target's, ``followed``."""
        form = len(weight), len(h) // len(weight)
        rows = weight[:, None].expand(form)
        z, seen = self.encoder.project_batch(theta, h, rows.flatten())
        target = self.encoder.project_batch(theta["target"], followed, rows.flatten())[0] if self.moving else z
        prediction, seen_too = self.predict(theta, z, rows.flatten())
        # [B, V / 2, H] each
        (p, p_other), (t, t_other) = (u.unflatten(0, form).chunk(2, 1) for u in (prediction, target))
        rows, compare = rows[:, : p.shape[1]].flatten(), byol_loss if self.moving else simsiam_loss
        both = sum(compare(a.flatten(0, 1), b.flatten(0, 1), rows) for a, b in ((p, t_other), (p_other, t)))
        return (both if self.directions == "sum" else both / 2), seen | seen_too

    def represent(
        self, theta: Mapping[str, Any], x: Tensor, layer: str = "predictor", weight: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """What ``layer`` makes of images as they are, [B, d], and the statistics of the batch.

        ``weight`` [B]: heads normalise by the rows of weight 1; None: by their running statistics.
        """
        return self.represent_features(theta, self.features(theta, x), layer, weight)

    def represent_features(
        self, theta: Mapping[str, Any], h: Tensor, layer: str = "predictor", weight: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """As :meth:`represent`, from the backbone's features h [B, D]."""
        if layer == "encoder":
            return h, {}
        if weight is None:
            z = self.encoder.project(theta, h)
            return (z if layer == "projector" else self.predictor.apply(only_predictor(theta), z)), {}
        z, seen = self.encoder.project_batch(theta, h, weight)
        if layer == "projector":
            return z, seen
        p, seen_too = self.predict(theta, z, weight)
        return p, seen | seen_too


def follow(carry: Mapping[str, Any], decay: float) -> None:
    """target <- decay target + (1 - decay) online, in place, after a step that carries both."""
    for name, p in carry["fixed"]["target"].items():
        p.lerp_(carry["theta"][name], 1 - decay)


def online(
    encoder: Encoder, hidden: int = 0, loss: str = "byol", directions: str = "sum", precision: str = "full"
) -> Online:
    """An encoder with its predictor of ``hidden`` units (0: twice its width). Raises: TypeError, ValueError."""
    return Online(encoder, predictor(encoder.width, hidden or 2 * encoder.width, encoder.normalised), loss, directions,
                  precision)  # fmt: skip


# --- losses of two views


def byol_loss(prediction: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean of 2 - 2 cos(prediction, target), the squared distance of the unit vectors; 0 to 4.

    One direction; the views are swapped by the caller. No gradient reaches the target, and as only directions count,
    the gradient of a prediction is orthogonal to it.
    Shapes: ``prediction``, ``target`` [B, D], ``weight`` [B] (0: a row that only fills up the batch); a scalar, 0 where
    no row is real. Source: Grill et al. 2020, equation 2.
    """
    cosine, real = _cosine(prediction, target, weight)
    return mean_of_real(2 - 2 * cosine, real)


def simsiam_loss(prediction: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean of -cos(prediction, target); -1 to 1, and :func:`byol_loss` is 2 + 2 times this one.

    One direction, no gradient to the target. Shapes: as :func:`byol_loss`. Source: Chen, He 2021, equation 1.
    """
    cosine, real = _cosine(prediction, target, weight)
    return mean_of_real(-cosine, real)


def _cosine(prediction: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    prediction, real = directions(prediction, weight)
    return (prediction * directions(target, weight)[0].detach()).sum(1), real


def directions(x: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """x / |x| by row, zeros for zero vectors and for rows of weight 0, and which rows are real [B]."""
    if weight is None:
        real = torch.ones(len(x), dtype=torch.bool, device=x.device)
    else:
        real = weight > 0
        x = torch.where(real[:, None], x, 0.0)
    largest = x.detach().abs().amax(1, keepdim=True)
    x = x / torch.where(largest > 0, largest, 1.0)  # neither tiny nor huge vectors lose their direction
    # the largest entry is now 1, so the clamp only meets zero vectors
    return x * x.square().sum(1, keepdim=True).clamp(min=1.0).rsqrt(), real


def mean_of_real(values: Tensor, real: Tensor) -> Tensor:
    """The mean over the real rows; 0 where there is none."""
    return torch.where(real, values, 0.0).sum() / real.sum().to(values.dtype).clamp(min=1)
