"""Views against plain loops over pixels, colorsys and scipy; draws against the distributions they are said to have."""

import colorsys
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.func import vmap

from fedbook.learning.augmentation import AUGMENTATIONS, Augmentation, affine
from fedbook.randomness import stream

EVERYTHING = Augmentation(
    crop=(0.3, 0.9), flip=0.5, rotation=0.5, scale=0.2, shift=1.5, jitter=0.7, brightness=0.4, contrast=0.4,
    saturation=0.4, hue=0.3, gray=0.3, blur=0.6, noise=0.1,
)  # fmt: skip
GEOMETRY = Augmentation(rotation=1.0)  # any recipe with a warp: these tests bring their own maps
SHAPES = [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 7, 5), (1, 1, 1), (3, 1, 6)]
RECIPES = {**AUGMENTATIONS, "everything": EVERYTHING}


def images(*shape, seed=0, dtype=torch.float64):
    return torch.from_numpy(stream(seed, "images").random(shape)).to(dtype)


def warped(x, *args, **options):
    """One image [C, H, W] through the map with these arguments."""
    return GEOMETRY(x[None], {"warp": affine(tuple(x.shape[1:]), *args, **options)[None, None]})[0, 0]


def neutral(shape, count):
    """Draws of all parts at which nothing happens."""
    values = {"warp": affine(shape[1:]), "hue": 0.0, "gray": 0.0, "blur": 0.0, "noise": 0.0}
    trailing = EVERYTHING.shapes(shape)
    return {n: torch.as_tensor(values.get(n, 1.0)).expand(*count, *s).contiguous() for n, s in trailing.items()}


# nothing happens


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_identity_recipe_and_every_part_at_its_identity_change_no_bit(shape, dtype):
    x, none = images(4, *shape, dtype=dtype), AUGMENTATIONS["none"]
    wanted = x[:, None].expand(4, 3, *shape)
    views = none(x, none.draw(stream(0, "views"), (4, 3), shape))
    assert views.dtype == dtype and torch.equal(views, wanted)
    views = EVERYTHING(x, neutral(shape, (4, 3)))
    assert views.dtype == dtype and torch.equal(views, wanted)


# geometry


def looped(x, box, flip, angle, scale, shift):
    """The view pixel by pixel, undoing one move after the other; coordinates are pixel corners, y down."""
    c, h, w = x.shape
    out = np.zeros((c, h, w))
    top, left, height, width = box
    for row in range(h):
        for column in range(w):
            y, x_ = row + 0.5 - shift[0], column + 0.5 - shift[1]
            y, x_ = h / 2 + (y - h / 2) / scale, w / 2 + (x_ - w / 2) / scale
            seen = complex(x_ - w / 2, -(y - h / 2)) * complex(math.cos(-angle), math.sin(-angle))  # clockwise back
            x_, y = w / 2 + seen.real, h / 2 - seen.imag
            if flip:
                x_ = w - x_
            y, x_ = top + y * height / h - 0.5, left + x_ * width / w - 0.5
            y, x_ = min(max(y, 0), h - 1), min(max(x_, 0), w - 1)
            i, j = min(int(y), max(h - 2, 0)), min(int(x_), max(w - 2, 0))
            for k in range(c):
                for di in (0, 1):
                    for dj in (0, 1):
                        weight = (1 - abs(y - i - di)) * (1 - abs(x_ - j - dj))
                        out[k, row, column] += weight * float(x[k, min(i + di, h - 1), min(j + dj, w - 1)])
    return torch.from_numpy(out)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 7, 10)])
def test_geometry_against_a_loop_over_pixels(seed, shape):
    rng, (_, h, w) = stream(seed, "geometry"), shape
    height, width = rng.uniform(0.3, 1) * h, rng.uniform(0.3, 1) * w
    box = (rng.random() * (h - height), rng.random() * (w - width), height, width)
    alone = (box, False, 0.0, 1.0, (0.0, 0.0))  # first a crop and nothing else
    moves = (box, bool(seed % 2), rng.uniform(-3, 3), rng.uniform(0.5, 1.5), tuple(rng.uniform(-2, 2, 2)))
    for move in (alone, moves):
        x = images(*shape, seed=seed)
        assert torch.allclose(warped(x, *move), looped(x, *move), rtol=0, atol=1e-12)


# colour


def gray(r, g, b):
    return 0.299 * r + 0.587 * g + 0.114 * b


def coloured(x, brightness, contrast, saturation, hue, is_gray):
    """Colour jitter pixel by pixel; x [3, H, W]."""

    def cut(v):
        return min(max(v, 0.0), 1.0)

    pixels = [tuple(float(v) for v in p) for p in x.flatten(1).T]
    pixels = [tuple(cut(v * brightness) for v in p) for p in pixels]
    mean = sum(gray(*p) for p in pixels) / len(pixels)
    pixels = [tuple(cut(mean + contrast * (v - mean)) for v in p) for p in pixels]
    pixels = [tuple(cut(gray(*p) + saturation * (v - gray(*p))) for v in p) for p in pixels]
    turned = []
    for p in pixels:
        h, s, v = colorsys.rgb_to_hsv(*p)
        turned.append(colorsys.hsv_to_rgb((h + hue) % 1.0, s, v))
    pixels = [(gray(*p),) * 3 for p in turned] if is_gray else turned
    return torch.tensor(pixels, dtype=x.dtype).T.reshape(x.shape)


@pytest.mark.parametrize("seed", range(12))
def test_colours_against_a_loop_over_pixels_and_colorsys(seed):
    rng, recipe = stream(seed, "colour"), Augmentation(brightness=1, contrast=1, saturation=1, hue=0.5, gray=0.5)
    x = images(3, 5, 6, seed=seed)
    x[:, 0] = torch.tensor([[0, 1, 0.5, 1, 1, 0], [0, 1, 0.5, 1, 0, 1], [0, 1, 0.5, 0, 1, 1]])  # grays, two equal
    values = dict(zip(("brightness", "contrast", "saturation"), rng.uniform(0, 2, 3), strict=True))
    values |= {"hue": rng.uniform(-0.5, 0.5), "gray": float(seed % 3 == 0)}
    draws = {name: torch.tensor([[v]], dtype=x.dtype) for name, v in values.items()}
    wanted = coloured(x, *values.values())
    assert torch.allclose(recipe(x[None], draws)[0, 0], wanted, rtol=0, atol=1e-12)


# blur, noise, clamp


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 14)])
def test_blur_against_scipy(shape):
    """scipy's filter with zeros outside, divided by what it makes of ones: the weights outside go to those inside."""
    from scipy.ndimage import gaussian_filter

    x, sigmas = images(2, *shape), torch.tensor([[0.1, 0.7, 2.0], [1.0, 0.0, 5.0]], dtype=torch.float64)
    got = Augmentation(blur=0.5)(x, {"blur": sigmas})
    for b in range(2):
        for v in range(3):
            s = float(sigmas[b, v])
            if s == 0:
                assert torch.equal(got[b, v], x[b])
                continue
            options = {"sigma": (0, s, s), "mode": "constant", "truncate": 40.0}
            wanted = gaussian_filter(x[b].numpy(), **options) / gaussian_filter(np.ones(shape), **options)
            assert torch.allclose(got[b, v], torch.from_numpy(wanted), rtol=0, atol=1e-12)


def test_noise_is_added_last_and_not_clamped():
    x = images(2, 3, 8, 8)
    draws = EVERYTHING.draw(stream(0, "views"), (2, 40), (3, 8, 8))
    silent = replace(EVERYTHING, noise=0.0)
    before = silent(x, {name: d for name, d in draws.items() if name != "noise"})
    after = EVERYTHING(x, draws)
    assert before.min() >= 0 and before.max() <= 1 and after.min() < 0
    assert torch.allclose(after - before, draws["noise"].double(), rtol=0, atol=1e-12)


def test_the_parts_act_in_their_order():
    """All at once is one after the other: warp, colours, gray, blur, noise."""
    x = images(4, 3, 8, 8)
    draws = EVERYTHING.draw(stream(0, "views"), (4, 1), (3, 8, 8))
    y = x
    for name, recipe in {
        "warp": GEOMETRY, "brightness": Augmentation(brightness=1), "contrast": Augmentation(contrast=1),
        "saturation": Augmentation(saturation=1), "hue": Augmentation(hue=0.5), "gray": Augmentation(gray=1),
        "blur": Augmentation(blur=1), "noise": Augmentation(noise=1),
    }.items():  # fmt: skip
        y = recipe(y, {name: draws[name]})[:, 0]
    assert torch.allclose(EVERYTHING(x, draws)[:, 0], y, rtol=0, atol=1e-12)


# batches, clients, dtypes, devices


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 6, 7)])
def test_a_view_does_not_depend_on_its_neighbours(name, shape):
    recipe, x = RECIPES[name], images(5, *shape)
    draws = recipe.draw(stream(0, "views"), (5, 3), shape)
    together = recipe(x, draws)
    assert together.shape == (5, 3, *shape)
    for b in range(5):
        for v in range(3):
            alone = recipe(x[b : b + 1], {n: d[b : b + 1, v : v + 1] for n, d in draws.items()})
            assert torch.allclose(together[b, v], alone[0, 0], rtol=0, atol=1e-14)
    strangers = x.clone()
    strangers[1:] = math.nan
    assert torch.equal(recipe(strangers, draws)[0], together[0])


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 6, 7)])
def test_vectorised_over_clients_equals_the_loop(name, shape):
    recipe, x = RECIPES[name], images(3, 4, *shape)
    steps = recipe.draw(stream(0, "views"), (2, 3, 4, 2), shape)  # steps, clients, batch, views
    draws = {n: d[1] for n, d in steps.items()}
    loop = torch.stack([recipe(x[k], {n: d[k] for n, d in draws.items()}) for k in range(3)])
    assert torch.allclose(vmap(recipe)(x, draws), loop, rtol=0, atol=1e-12)
    shared = torch.stack([recipe(x[0], {n: d[k] for n, d in draws.items()}) for k in range(3)])
    assert torch.allclose(vmap(recipe, (None, 0))(x[0], draws), shared, rtol=0, atol=1e-12)
    alike = torch.stack([recipe(x[k], {n: d[0] for n, d in draws.items()}) for k in range(3)])
    same = {n: d[0] for n, d in draws.items()}
    assert torch.allclose(vmap(recipe, (0, None))(x, same), alike, rtol=0, atol=1e-12)


# draws


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 6, 7)])
def test_the_same_generator_draws_the_same_and_the_names_say_what(name, shape):
    recipe, count = RECIPES[name], (2, 3)
    a, b = (recipe.draw(stream(7, "views", 2, 1), count, shape) for _ in range(2))
    other = recipe.draw(stream(8, "views", 2, 1), count, shape)
    flat = recipe.draw(stream(7, "views", 2, 1), (6,), shape)
    assert {n: d.shape for n, d in a.items()} == {n: (*count, *s) for n, s in recipe.shapes(shape).items()}
    for n, d in a.items():
        assert d.dtype == torch.float32 and torch.equal(d, b[n]) and torch.equal(d.flatten(0, 1), flat[n])
    assert name == "none" or any(not torch.equal(d, other[n]) for n, d in a.items())


# bad arguments

NAN, INF = math.nan, math.inf
JUNK = [None, "x", True, NAN, INF, -1]
BAD_FIELDS = {
    "crop": [*JUNK, 0.5, (0.5,), (0.0, 1.0), (0.5, 1.5), (0.9, 0.2), (NAN, 1.0), ("a", "b"), [0.2, 1.0]],
    "ratio": [*JUNK, (0.0, 1.0), (2.0, 1.0), (1.0, INF)],
    "sigma": [*JUNK, (0.0, 1.0), (2.0, 1.0), (1.0, NAN)],
    "scale": [*JUNK, 1.0],
    "rotation": [*JUNK, 4.0],
    "hue": [*JUNK, 0.6],
    "shift": JUNK,
    "noise": JUNK,
} | {n: [*JUNK, 1.5] for n in ("flip", "jitter", "brightness", "contrast", "saturation", "gray", "blur")}


@pytest.mark.parametrize("name, value", [(n, v) for n, values in BAD_FIELDS.items() for v in values])
def test_bad_fields(name, value):
    with pytest.raises((TypeError, ValueError), match=f"{name}: got .*; allowed is"):
        Augmentation(**{name: value})
