"""Random views of images for self-supervised learning, in batches on the device, each view its own draw.

A recipe (:class:`Augmentation`) works in two halves, as local training wants it (``fedbook/federation/local.py``):
``draw`` makes every random number on the CPU, the call is a pure function of images and draws. The call runs under
``torch.func.vmap``, and no view depends on what else is in the batch.

The order is geometry, colour, gray, blur, clamp to [0, 1], pixel noise. All of the geometry is ONE affine map and one
bilinear sampling, so nothing is interpolated twice; what lies outside the image has the colour of its nearest edge
pixel. Images are given in [0, 1]; a data set's normalisation belongs after the views.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample, pad

from fedbook import arguments

RED, GREEN, BLUE = 0.299, 0.587, 0.114  # luma of ITU-R BT.601, what "gray" means below


def affine(
    size: tuple[int, int],
    box: tuple | None = None,
    flip: np.ndarray | bool = False,
    angle: np.ndarray | float = 0.0,
    scale: np.ndarray | float = 1.0,
    shift: tuple = (0.0, 0.0),
) -> Tensor:
    """The one map from a view's pixels to the image's: ``box`` cut out and resized, flipped, turned, scaled, shifted.

    Both ends count pixels from the centre of their image, x to the right and y down: source = map @ (x, y, 1).
    ``box`` = (top, left, height, width) in pixels from the upper left corner, None for the whole image; ``flip``
    mirrors left and right; ``angle`` in radians, counter-clockwise; ``scale`` > 1 enlarges; ``shift`` = (down, right)
    in pixels. Numbers or arrays that broadcast.
    Shapes: ``size`` = (H, W); [..., 2, 3] in float64.
    """
    h, w = (float(n) for n in size)
    top, left, height, width = (0.0, 0.0, h, w) if box is None else box
    down, right = shift
    x_scale = width / w / scale * np.where(flip, -1.0, 1.0)
    y_scale = height / h / scale
    cos, sin = np.cos(angle), np.sin(angle)
    xx, xy, yx, yy = x_scale * cos, -x_scale * sin, y_scale * sin, y_scale * cos
    x = left + (width - w) / 2 - xx * right - xy * down
    y = top + (height - h) / 2 - yx * right - yy * down
    entries = np.stack(np.broadcast_arrays(xx, xy, x, yx, yy, y), -1)
    return torch.from_numpy(entries.reshape(*entries.shape[:-1], 2, 3))


@dataclass(frozen=True)
class Augmentation:
    """A recipe for random views. Without arguments it is the identity; a part that is off costs nothing.

    On one channel saturation, hue and gray do nothing.
    Shapes: x [B, C, H, W] with C = 1 or 3 to views [B, V, C, H, W]. Raises: TypeError, ValueError.
    """

    crop: tuple[float, float] = (1.0, 1.0)  # share of the area that is cut out and resized, uniform; (1, 1): all
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # width / height of the cut-out, log-uniform within what fits
    flip: float = 0.0  # probability to mirror left and right
    rotation: float = 0.0  # largest angle in radians, either way
    scale: float = 0.0  # factor in [1 - scale, 1 + scale], the same along both axes
    shift: float = 0.0  # largest shift in pixels along each axis, either way
    jitter: float = 1.0  # probability that the next four act on a view
    brightness: float = 0.0  # x times a factor in [1 - brightness, 1 + brightness]
    contrast: float = 0.0  # distance from the image's mean gray times such a factor
    saturation: float = 0.0  # distance from the pixel's own gray times such a factor
    hue: float = 0.0  # largest turn of the hue, as a share of the whole circle, either way
    gray: float = 0.0  # probability to lose the colour
    blur: float = 0.0  # probability to be blurred
    sigma: tuple[float, float] = (0.1, 2.0)  # standard deviation of the blur in pixels
    noise: float = 0.0  # standard deviation of Gaussian noise on each pixel, not clamped

    def __post_init__(self):
        _pair("crop", self.crop, above=0.0, maximum=1.0)
        _pair("ratio", self.ratio, above=0.0)
        _pair("sigma", self.sigma, above=0.0)
        for name in ("flip", "jitter", "brightness", "contrast", "saturation", "gray", "blur"):
            arguments.real(name, getattr(self, name), 0.0, 1.0)
        for name, most in (("rotation", math.pi), ("shift", None), ("hue", 0.5), ("noise", None)):
            arguments.real(name, getattr(self, name), 0.0, most)
        arguments.real("scale", self.scale, 0.0, below=1.0)

    def shapes(self, shape: tuple[int, int, int]) -> dict[str, tuple[int, ...]]:
        """What ``draw`` draws for a view of images of ``shape`` = (C, H, W): names and trailing shapes.

        "warp" is 6 numbers, the noise one a pixel, all others one; 4 bytes each (photographs: 44 bytes a view,
        digits: 284). "views" holds nothing and only tells the number of views where nothing is drawn.
        """
        c, h, w = shape
        colour = c == 3
        moves = self.crop != (1.0, 1.0) or self.flip or self.rotation or self.scale or self.shift
        jitters = self.jitter > 0
        parts = {
            "warp": (moves, (2, 3)),
            "brightness": (jitters and self.brightness, ()),
            "contrast": (jitters and self.contrast, ()),
            "saturation": (jitters and self.saturation and colour, ()),
            "hue": (jitters and self.hue and colour, ()),
            "gray": (self.gray and colour, ()),
            "blur": (self.blur, ()),
            "noise": (self.noise, (c, h, w)),
        }
        return {name: trailing for name, (on, trailing) in parts.items() if on} or {"views": (0,)}

    def draw(self, rng: np.random.Generator, count: tuple[int, ...], shape: tuple[int, int, int]) -> dict[str, Tensor]:
        """Every random number of ``count`` views of images of ``shape``; they depend on nothing else.

        "warp" is the map of :func:`affine`, "brightness", "contrast" and "saturation" are factors, "hue" is a turn,
        "gray" 0 or 1, "blur" the standard deviation in pixels (0: none), "noise" is what is added.
        Shapes: leaves [*count, ...] as in ``shapes``, float32 on the CPU.
        """
        wanted = self.shapes(shape)
        drawn = {}
        if "warp" in wanted:
            drawn["warp"] = self._draw_warp(rng, count, shape[1:])
        jittered = [name for name in ("brightness", "contrast", "saturation", "hue") if name in wanted]
        acts = rng.random(count) < self.jitter if jittered else None
        for name in jittered:
            bound, neutral = getattr(self, name), 0.0 if name == "hue" else 1.0
            drawn[name] = np.where(acts, neutral + rng.uniform(-bound, bound, count), neutral)
        if "gray" in wanted:
            drawn["gray"] = rng.random(count) < self.gray
        if "blur" in wanted:
            drawn["blur"] = np.where(rng.random(count) < self.blur, rng.uniform(*self.sigma, count), 0.0)
        if "noise" in wanted:
            drawn["noise"] = rng.standard_normal((*count, *wanted["noise"]), np.float32) * np.float32(self.noise)
        if "views" in wanted:
            drawn["views"] = np.zeros((*count, 0))
        return {name: torch.from_numpy(np.asarray(x, np.float32)) for name, x in drawn.items()}

    def _draw_warp(self, rng: np.random.Generator, count: tuple[int, ...], size: tuple[int, int]) -> Tensor:
        h, w = size
        box = None
        if self.crop != (1.0, 1.0):
            area = rng.uniform(*self.crop, count)
            # the sides fit if area W / H <= ratio <= W / (area H); where no wanted ratio does, the nearest that fits
            low, high = (np.log(np.clip(r, area * w / h, w / (area * h))) for r in self.ratio)
            ratio = np.exp(low + (high - low) * rng.random(count))
            height = np.minimum(np.sqrt(area * h * w / ratio), h)
            width = np.minimum(np.sqrt(area * h * w * ratio), w)
            box = ((h - height) * rng.random(count), (w - width) * rng.random(count), height, width)
        flip = rng.random(count) < self.flip
        angle = rng.uniform(-self.rotation, self.rotation, count)
        scale = rng.uniform(1 - self.scale, 1 + self.scale, count)
        shift = rng.uniform(-self.shift, self.shift, (2, *count))
        return affine(size, box, flip, angle, scale, (shift[0], shift[1]))

    def __call__(self, x: Tensor, draws: Mapping[str, Tensor]) -> Tensor:
        """The views of ``x`` that ``draws`` describe; where nothing acts they share its memory.

        Half precision is computed in float32. To be called outside autocast, as the blur is a matrix product.
        Shapes: x [B, C, H, W] in [0, 1], leaves of ``draws`` [B, V, ...] (moved and cast as x); views
        [B, V, C, H, W], dtype and device of x.
        """
        views = next(iter(draws.values())).shape[1]
        work = torch.promote_types(x.dtype, torch.float32)
        draws = {name: d.to(device=x.device, dtype=work) for name, d in draws.items()}
        y = x.to(work)
        y = _warped(y, draws["warp"]) if "warp" in draws else y[:, None].expand(-1, views, -1, -1, -1)
        one = {name: d[..., None, None, None] for name, d in draws.items() if d.ndim == 2}  # [B, V, 1, 1, 1]
        if "brightness" in one:
            y = (y * one["brightness"]).clamp(0, 1)
        if "contrast" in one:
            y = _away(y, _gray(y).mean((-3, -2, -1), keepdim=True), one["contrast"])
        if "saturation" in one:
            y = _away(y, _gray(y), one["saturation"])
        if "hue" in one:
            y = _turned(y, one["hue"])
        if "gray" in one:
            y = torch.where(one["gray"] > 0, _gray(y), y)
        if "blur" in draws:
            y = _blurred(y, draws["blur"])
        if draws.keys() - {"noise", "views"}:
            y = y.clamp(0, 1)
        if "noise" in draws:
            y = y + draws["noise"]
        return y.to(x.dtype)


def _warped(x: Tensor, maps: Tensor) -> Tensor:
    """x [B, C, H, W] seen through ``maps`` [B, V, 2, 3]: [B, V, C, H, W], bilinear, edge pixels repeated outside."""
    b, c, h, w = x.shape
    views = maps.shape[1]
    # grid_sample takes coordinates in units of half the size: with powers of two whole pixels stay whole, and a view
    # that does not move (or only flips) is the image bit for bit
    rows, columns = (1 << (n - 1).bit_length() for n in (h, w))
    if (rows, columns) != (h, w):
        x = pad(x, (0, columns - w, 0, rows - h), mode="replicate")
    i = torch.arange(h, dtype=x.dtype, device=x.device) - (h - 1) / 2
    j = torch.arange(w, dtype=x.dtype, device=x.device) - (w - 1) / 2
    axes = []
    for m, n, padded in ((maps[:, :, 0], w, columns), (maps[:, :, 1], h, rows)):  # x, then y: [B, V, 3]
        along_row = m[..., :1] * j * (2 / padded) + ((2 * m[..., 2:] + n) / padded - 1)
        axes.append(along_row[..., None, :] + (m[..., 1:2] * i * (2 / padded))[..., None])  # [B, V, H, W]
    grid = torch.stack(axes, -1).reshape(b, views * h, w, 2)  # views below each other: x is read in place, not copied
    y = grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)
    return y.reshape(b, c, views, h, w).movedim(2, 1)


def _gray(x: Tensor) -> Tensor:
    """[..., C, H, W] to [..., 1, H, W]."""
    if x.shape[-3] == 1:
        return x
    red, green, blue = x.split(1, -3)
    return RED * red + GREEN * green + BLUE * blue


def _away(x: Tensor, ground: Tensor, factor: Tensor) -> Tensor:
    """The distance of x from ``ground`` times ``factor``; a factor of 1 changes no bit."""
    return (factor * x + (1 - factor) * ground).clamp(0, 1)


def _turned(x: Tensor, turn: Tensor) -> Tensor:
    """The hue turned by ``turn`` of the circle, as RGB to HSV and back: value and saturation stay.

    A channel is value - chroma * clamp(min(k, 4 - k), 0, 1) with k = 5, 3, 1 (red, green, blue) + the hue in sixths.
    """
    red, green, blue = x.split(1, -3)
    value = x.amax(-3, keepdim=True)
    chroma = value - x.amin(-3, keepdim=True)
    safe = chroma.clamp(min=torch.finfo(x.dtype).tiny)  # a gray pixel has no hue: any will do
    hue = torch.where(green == value, 2 + (blue - red) / safe, 4 + (red - green) / safe)
    hue = torch.where(red == value, (green - blue) / safe, hue)
    offset = 5 - 2 * torch.arange(3, dtype=x.dtype, device=x.device)[:, None, None]
    k = (offset + hue + 6 * turn).remainder(6)
    return torch.where(turn == 0, x, value - chroma * torch.minimum(k, 4 - k).clamp(0, 1))


def _blurred(x: Tensor, sigma: Tensor) -> Tensor:
    """x [B, V, C, H, W] blurred with ``sigma`` [B, V]; weights that fall outside are given to those inside."""

    def kernel(n: int) -> Tensor:  # [B, V, 1, n, n], rows sum to 1
        i = torch.arange(n, dtype=x.dtype, device=x.device)
        s = sigma.clamp(min=1e-3)[..., None, None, None]  # at 1e-3 pixels the kernel is the identity, bit for bit
        return torch.softmax(-((i[:, None] - i) / s).square() / 2, -1)

    return kernel(x.shape[-2]) @ x @ kernel(x.shape[-1]).mT


def _pair(name: str, value: tuple[float, float], **bounds: float) -> None:
    if not isinstance(value, tuple) or len(value) != 2:
        raise arguments.wrong(TypeError, name, value, "a pair (low, high)")
    low, high = (arguments.real(name, n, **bounds) for n in value)
    if low > high:
        raise arguments.wrong(ValueError, name, value, "a pair (low, high) with low <= high")


_PHOTOGRAPHS = Augmentation(
    crop=(0.2, 1.0), flip=0.5, jitter=0.8, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, gray=0.2
)

AUGMENTATIONS = {
    "none": Augmentation(),
    "digits": Augmentation(rotation=0.35, scale=0.2, shift=1.0, contrast=0.3, noise=0.1),
    "handwriting": Augmentation(crop=(0.6, 1.0), rotation=0.35, shift=2.0, contrast=0.3),
    "clothes": Augmentation(crop=(0.3, 1.0), flip=0.5, jitter=0.8, brightness=0.4, contrast=0.4),
    "photographs": _PHOTOGRAPHS,  # of the FedSC authors' public scripts, whose order of the four colours is random
    "strong": replace(_PHOTOGRAPHS, blur=0.5),
    "fedssl": replace(  # of the public FedSSL code (Zhuang et al. 2022): smaller cut-outs, colours twice as far
        _PHOTOGRAPHS, crop=(0.08, 1.0), brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2
    ),
}
