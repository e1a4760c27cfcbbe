"""The views that self-supervised clients learn from: drawn afresh, or picked from a bank made once.

Everything random is drawn before and travels as tensors: rows of the bank, or the augmentation's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedbook.federation.local import Batches
from fedbook.federation.population import Rows
from fedbook.learning.augmentation import Augmentation
from fedbook.randomness import stream


@dataclass(frozen=True)
class Views:
    """How samples are looked at: ``augmentation``, then (pixel - mean) / deviation.

    ``bank`` K: each sample has K views made once, drawn uniformly with replacement, so that expectations over views
    are finite sums; 0: fresh views every time. Where exactly K views of a sample are asked for, it is the whole
    bank, in order: then nothing is random. ``shape``: (C, H, W) of an image.
    """

    augmentation: Augmentation
    mean: float
    deviation: float
    shape: tuple[int, int, int]
    bank: int = 0

    def plain(self, x: Tensor) -> Tensor:
        """Pixels [..., C, H, W] in [0, 1] as the networks see them."""
        return (x - self.mean) / self.deviation

    def make_bank(self, x: Tensor, count: int, purpose: str = "view bank") -> Tensor:
        """``count`` views of each of the images x [N, C, H, W]: [N, count, C, H, W], the same for every seed.

        Memory: N * count * C * H * W numbers.
        """
        rng, parts = stream(0, purpose), []
        for batch in x.split(4096):
            draws = self.augmentation.draw(rng, (len(batch), count), self.shape)
            parts.append(self.plain(self.augmentation(batch, {n: d.to(x.device) for n, d in draws.items()})))
        return torch.cat(parts)

    def batches(
        self, data: Rows, batches: Batches, rngs: Sequence[np.random.Generator], count: int
    ) -> tuple[Rows, Batches]:
        """``batches`` of samples with ``count`` views of each: what to hand to local_steps, as :meth:`of` reads it.

        Further stores, of labels, go along. Shapes: R clients, one generator each; with a bank the index becomes
        [T, R, B * count] rows of it, else the draws go along as extra [T, R, B, count, ...]. Memory: that many numbers.
        """
        rows = batches.index.shape[1]
        if len(rngs) != rows:
            raise ValueError(f"rngs: got {len(rngs)} generators; allowed is one for each of the {rows} clients")
        if not self.bank:
            drawn = self._each(
                batches.real, rngs, lambda rng, lead: self.augmentation.draw(rng, lead, self.shape), count
            )
            extra = {f"view {name}": x for name, x in drawn.items()}
            return data, Batches(batches.index, batches.real, {**batches.extra, **extra})
        chosen = self._each(batches.real, rngs, self._choice, count)["view"]  # [T, R, B, count]
        index = (batches.index[..., None] * self.bank + chosen).flatten(2)
        real = batches.real[..., None].expand_as(chosen).flatten(2)
        samples = {name: x.repeat_interleave(self.bank, 0) for name, x in data.samples.items() if name != "bank"}
        samples["x"] = data.samples["bank"].flatten(0, 1)  # a view, not a copy
        return Rows(samples, data.table, data.sizes), Batches(index, real, batches.extra)

    def _each(
        self, real: Tensor, rngs: Sequence[np.random.Generator], draw: Callable[..., dict[str, Tensor]], count: int
    ) -> dict[str, Tensor]:
        """Draws [T, R, B, count, ...], each client's for its own steps and its own widest batch: what a client draws
        must not depend on who trains beside it. Zeros where it has no sample."""
        steps, rows, width = real.shape
        whole: dict[str, Tensor] = {}
        for r, rng in enumerate(rngs):
            own = int(real[:, r].any(1).sum()), int(real[:, r].sum(1).max()) if steps else 0
            for name, x in draw(rng, (*own, count)).items():
                if name not in whole:
                    whole[name] = x.new_zeros(steps, rows, width, *x.shape[2:])
                whole[name][: own[0], r, : own[1]] = x
        return whole

    def _choice(self, rng: np.random.Generator, lead: tuple[int, int, int]) -> dict[str, Tensor]:
        if lead[2] == self.bank:
            return {"view": torch.arange(lead[2]).expand(lead)}
        return {"view": torch.from_numpy(rng.integers(0, self.bank, lead))}

    def of(self, batch: Mapping[str, Tensor], count: int) -> tuple[Tensor, Tensor]:
        """The views [B, count, C, H, W] of a batch made by :meth:`batches`, and the samples' weights [B]."""
        if self.bank:
            weight = batch["weight"].unflatten(-1, (-1, count))[..., 0]
            return batch["x"].unflatten(0, (-1, count)), weight
        draws = {name.removeprefix("view "): x for name, x in batch.items() if name.startswith("view ")}
        return self.plain(self.augmentation(batch["x"], draws)), batch["weight"]

    def labels(self, batch: Mapping[str, Tensor], count: int) -> Tensor:
        """What the store "y" says of a batch made by :meth:`batches`, [B]."""
        return batch["y"].unflatten(-1, (-1, count))[..., 0] if self.bank else batch["y"]

    def some(
        self, data: Rows, columns: slice, rngs: Sequence[np.random.Generator], count: int
    ) -> tuple[Tensor, Tensor]:
        """``count`` views of the samples in ``columns`` of each client's table, without gradient or order.

        Shapes: [R, n, count, C, H, W] and the weights [R, n] (0: padding).
        """
        table = data.table[:, columns]
        numbers = torch.arange(data.table.shape[1])[columns]
        first = next(iter(data.samples.values()))
        batches = Batches(table[None], (numbers < data.sizes[:, None])[None])
        data, batches = self.batches(data, batches, rngs, count)
        x = data.samples["x"][batches.index[0].to(first.device)]  # [R, n (* count), C, H, W]
        weight = batches.real[0].to(device=first.device, dtype=first.dtype)
        if self.bank:
            return x.unflatten(1, (-1, count)), weight.unflatten(1, (-1, count))[..., 0]
        draws = {n.removeprefix("view "): d[0].to(first.device) for n, d in batches.extra.items()}
        flat = self.augmentation(x.flatten(0, 1), {n: d.flatten(0, 1) for n, d in draws.items()})
        return self.plain(flat).unflatten(0, x.shape[:2]), weight
