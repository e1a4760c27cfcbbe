"""Views against plain loops over pixels, colorsys and scipy; draws against the distributions they are said to have."""

import colorsys
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.func import vmap

from fedbook.learning import augmentation
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


def test_the_identity_does_not_touch_values_outside_the_unit_interval():
    x = 3 * images(2, 1, 4, 4) - 1
    assert torch.equal(AUGMENTATIONS["none"](x, {"views": torch.zeros(2, 1, 0)})[:, 0], x)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("channels", [1, 3])
def test_one_warp_and_only_where_there_is_geometry(monkeypatch, name, channels):
    calls, sample = [], augmentation.grid_sample
    monkeypatch.setattr(augmentation, "grid_sample", lambda *a, **k: calls.append(1) or sample(*a, **k))
    x = images(2, channels, 8, 8)
    RECIPES[name](x, RECIPES[name].draw(stream(0, "views"), (2, 2), x.shape[1:]))
    assert len(calls) == (name != "none")
    still = replace(RECIPES[name], crop=(1.0, 1.0), flip=0.0, rotation=0.0, scale=0.0, shift=0.0)
    still(x, still.draw(stream(0, "views"), (2, 2), x.shape[1:]))
    assert len(calls) == (name != "none")


# geometry


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_flip_mirrors_and_twice_it_is_the_identity(shape, dtype):
    x = images(*shape, dtype=dtype)
    once = warped(x, flip=True)
    assert torch.equal(once, x.flip(-1))
    assert torch.equal(warped(once, flip=True), x)


@pytest.mark.parametrize("side", [1, 4, 7, 8, 28])
@pytest.mark.parametrize("turns", [-1, 1, 2, 3])
def test_quarter_turns(side, turns):
    x = images(3, side, side)
    assert torch.allclose(warped(x, angle=turns * math.pi / 2), torch.rot90(x, turns, (1, 2)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("down, right", [(1, 0), (0, -2), (-3, 2), (9, 9)])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 6, 5)])
def test_whole_shifts_copy_pixels_and_repeat_the_edge(shape, down, right):
    x = images(*shape)
    rows = (np.arange(shape[1]) - down).clip(0, shape[1] - 1)
    columns = (np.arange(shape[2]) - right).clip(0, shape[2] - 1)
    assert torch.equal(warped(x, shift=(down, right)), x[:, rows][:, :, columns])


def test_doubling_the_scale_equals_cutting_out_the_middle():
    x = images(3, 8, 12)
    assert torch.allclose(warped(x, scale=2.0), warped(x, (2.0, 3.0, 4.0, 6.0)), rtol=0, atol=1e-14)


def test_a_cut_out_away_from_the_edges_is_interpolated_as_pytorch_does():
    x, (top, left, height, width) = images(3, 12, 16), (3, 4, 6, 8)
    cut = x[:, top : top + height, left : left + width]
    wanted = torch.nn.functional.interpolate(cut[None], (12, 16), mode="bilinear", align_corners=False)[0]
    got = warped(x, (top, left, height, width))
    assert torch.allclose(got[:, 1:-1, 1:-1], wanted[:, 1:-1, 1:-1], rtol=0, atol=1e-12)  # its outer ring sees less


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


def test_a_map_of_arrays_is_the_maps_of_their_entries():
    rng = stream(0, "map")
    box = tuple(rng.uniform(1, 3, (4, 2, 3)))
    flip, angle, scale, shift = rng.random((2, 3)) < 0.5, rng.random((2, 3)), 1 + rng.random(3), rng.random((2, 2, 3))
    maps = affine((8, 9), box, flip, angle, scale, tuple(shift))
    assert maps.shape == (2, 3, 2, 3) and maps.dtype == torch.float64
    for i in range(2):
        for j in range(3):
            one = tuple(b[i, j] for b in box), flip[i, j], angle[i, j], scale[j], tuple(shift[:, i, j])
            assert torch.allclose(maps[i, j], affine((8, 9), *one), rtol=1e-14, atol=0)


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


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation", "hue"])
@pytest.mark.parametrize("value", [-0.25, 0.0, 0.3, 1.0, 1.7])
def test_one_colour_alone(name, value):
    if name != "hue":
        value = abs(value)
    x, neutral_values = images(3, 4, 4), {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0}
    recipe = Augmentation(**{name: 0.5})
    got = recipe(x[None], {name: torch.tensor([[value]], dtype=torch.float64)})[0, 0]
    assert torch.allclose(got, coloured(x, **neutral_values | {name: value}, is_gray=False), rtol=0, atol=1e-12)


def test_a_whole_turn_of_the_hue_is_none_and_three_thirds_are_too():
    x, recipe = images(5, 3, 4, 4), Augmentation(hue=0.5)
    third = torch.full((5, 1), 1 / 3, dtype=x.dtype)
    y = x
    for _ in range(3):
        y = recipe(y, {"hue": third})[:, 0]
    assert torch.allclose(y, x, rtol=0, atol=1e-12)
    assert torch.allclose(recipe(x, {"hue": third})[:, 0], x.roll(1, 1), rtol=0, atol=1e-12)  # red becomes green
    assert torch.allclose(recipe(x, {"hue": 3 * third})[:, 0], x, rtol=0, atol=1e-12)


def test_one_channel_has_brightness_and_contrast_and_nothing_else():
    recipe = Augmentation(brightness=0.5, contrast=0.5, saturation=0.5, hue=0.5, gray=0.5)
    assert set(recipe.shapes((1, 4, 4))) == {"brightness", "contrast"}
    x = images(2, 1, 4, 4)
    draws = recipe.draw(stream(0, "views"), (2, 3), (1, 4, 4))
    got = recipe(x, draws)
    for b in range(2):
        for v in range(3):
            y = (x[b] * draws["brightness"][b, v].double()).clamp(0, 1)
            y = y.mean() + draws["contrast"][b, v].double() * (y - y.mean())
            assert torch.allclose(got[b, v], y.clamp(0, 1), rtol=0, atol=1e-12)
    colours = Augmentation(saturation=0.5, hue=0.5, gray=0.5)
    assert torch.equal(colours(x, colours.draw(stream(0, "views"), (2, 1), (1, 4, 4)))[:, 0], x)


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


@pytest.mark.parametrize("name", ["warp", "gray", "blur"])
def test_rounding_does_not_leave_the_unit_interval(name):
    """Weights that sum to one do so up to rounding: white would become whiter than white."""
    x = torch.ones(50, 3, 28, 28)
    draws = EVERYTHING.draw(stream(0, "views"), (50, 2), (3, 28, 28))
    recipe = {"warp": GEOMETRY, "gray": Augmentation(gray=1), "blur": Augmentation(blur=1)}[name]
    assert recipe(x, {name: draws[name]}).max() <= 1


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


@pytest.mark.parametrize("count", [(0, 2), (2, 0), (0, 0)])
@pytest.mark.parametrize("name", RECIPES)
def test_no_images_or_no_views(name, count):
    draws = RECIPES[name].draw(stream(0, "views"), count, (3, 5, 5))
    assert RECIPES[name](images(count[0], 3, 5, 5), draws).shape == (*count, 3, 5, 5)


@pytest.mark.parametrize("dtype, error", [(torch.float32, 2e-5), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
def test_lower_precision_stays_near(dtype, error):
    """The error is the input's rounding; coordinates are never rounded to half precision."""
    x, draws = images(4, 3, 28, 28), EVERYTHING.draw(stream(0, "views"), (4, 2), (3, 28, 28))
    quiet = replace(EVERYTHING, hue=0.0)  # a hue jumps where the largest channel changes, so it amplifies rounding
    draws.pop("hue")
    got = quiet(x.to(dtype), draws)
    assert got.dtype == dtype and torch.allclose(got.double(), quiet(x, draws), rtol=0, atol=error)


def test_nothing_is_changed_in_place():
    x, draws = images(2, 3, 8, 8), EVERYTHING.draw(stream(0, "views"), (2, 2), (3, 8, 8))
    kept, kept_draws = x.clone(), {n: d.clone() for n, d in draws.items()}
    EVERYTHING(x, draws)
    assert torch.equal(x, kept) and all(torch.equal(draws[n], d) for n, d in kept_draws.items())


def test_devices(device):
    x, draws = images(4, 3, 28, 28), EVERYTHING.draw(stream(0, "views"), (4, 2), (3, 28, 28))
    got = EVERYTHING(x.to(device), draws)  # the draws are moved
    assert got.device.type == device
    assert torch.allclose(got.cpu(), EVERYTHING(x, draws), rtol=0, atol=1e-12)


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


@pytest.mark.parametrize("name, shape, size", [
    ("none", (3, 32, 32), 0), ("digits", (1, 8, 8), 284), ("handwriting", (1, 28, 28), 28),
    ("clothes", (1, 28, 28), 32), ("photographs", (3, 32, 32), 44), ("strong", (3, 32, 32), 48),
])  # fmt: skip
def test_bytes_a_view(name, shape, size):
    draws = AUGMENTATIONS[name].draw(stream(0, "views"), (10,), shape)
    assert sum(d.numel() * d.element_size() for d in draws.values()) == 10 * size


def assert_uniform(x, low, high):
    """Within its range, mean and variance within 4 standard errors."""
    x = np.asarray(x, np.float64)
    width, n = high - low, x.size
    assert low - 1e-5 * width <= x.min() < low + 0.01 * width and high - 0.01 * width < x.max() <= high + 1e-5 * width
    assert abs(x.mean() - (low + high) / 2) < 4 * width / math.sqrt(12 * n)
    assert abs(x.var() - width**2 / 12) < 4 * width**2 * math.sqrt((1 / 80 - 1 / 144) / n)


def assert_share(hits, probability):
    share, n = np.asarray(hits).mean(), np.asarray(hits).size
    assert abs(share - probability) <= 4 * math.sqrt(probability * (1 - probability) / n)


def test_cut_outs_are_uniform_in_area_and_place():
    maps = AUGMENTATIONS["photographs"].draw(stream(0, "views"), (20000,), (3, 32, 32))["warp"].double().numpy()
    assert not maps[:, 0, 1].any() and not maps[:, 1, 0].any()  # no rotation
    width, height = abs(maps[:, 0, 0]), maps[:, 1, 1]
    area, ratio = width * height, np.log(width / height)
    assert_uniform(area, 0.2, 1.0)
    assert_share(maps[:, 0, 0] < 0, 0.5)  # flips
    free = area < 0.75  # there every wanted ratio fits
    assert_uniform(ratio[free], math.log(3 / 4), math.log(4 / 3))
    assert_uniform(ratio[~free] / -np.log(area[~free]), -1, 1)  # above, those between area and 1 / area do
    assert max(width.max(), height.max()) <= 1 + 1e-6
    for side, center in ((width, maps[:, 0, 2]), (height, maps[:, 1, 2])):
        room = 32 * (1 - side) / 2
        assert np.all(abs(center) <= room + 1e-5)
        assert_uniform((center / room)[room > 0.5], -1, 1)


@pytest.mark.parametrize("size", [(4, 40), (40, 4), (1, 9)])
def test_cut_outs_of_long_images_stay_inside(size):
    h, w = size
    maps = Augmentation(crop=(0.2, 1.0)).draw(stream(0, "views"), (2000,), (1, h, w))["warp"].double()
    width, height = maps[:, 0, 0] * w, maps[:, 1, 1] * h
    assert_uniform(width * height / (h * w), 0.2, 1.0)
    assert torch.all(maps[:, 0, 2].abs() + width / 2 <= w / 2 + 1e-5)
    assert torch.all(maps[:, 1, 2].abs() + height / 2 <= h / 2 + 1e-5)


def test_moves_are_uniform():
    recipe = AUGMENTATIONS["digits"]
    maps = recipe.draw(stream(0, "views"), (20000,), (1, 8, 8))["warp"].double()
    inverse = torch.linalg.inv(maps[:, :, :2])  # the image's pixels to the view's
    assert_uniform(torch.atan2(inverse[:, 0, 1], inverse[:, 0, 0]), -0.35, 0.35)
    assert_uniform(torch.linalg.det(inverse).sqrt(), 0.8, 1.2)
    shift = -(inverse @ maps[:, :, 2:]).squeeze(-1)
    assert_uniform(shift[:, 0], -1, 1)
    assert_uniform(shift[:, 1], -1, 1)


@pytest.mark.parametrize("name", ["digits", "photographs"])
def test_draws_of_a_view_are_independent(name):
    """No two numbers of a view are correlated, and no number with the same one of the next view."""
    recipe, n = AUGMENTATIONS[name], 20000
    draws = recipe.draw(stream(0, "views"), (n,), (3, 8, 8))
    maps = draws["warp"].double()
    inverse = torch.linalg.inv(maps[:, :, :2])
    if name == "digits":
        shift = -(inverse @ maps[:, :, 2:]).squeeze(-1)
        numbers = [torch.atan2(inverse[:, 0, 1], inverse[:, 0, 0]), torch.linalg.det(inverse), *shift.T]
        numbers += [draws["contrast"], *draws["noise"][:, 0, 0, :2].T]
    else:
        acts = draws["hue"] != 0
        numbers = [acts, maps[:, 0, 0] < 0, torch.linalg.det(maps[:, :, :2]).abs(), *maps[:, :, 2].T, draws["gray"]]
        numbers += [torch.where(acts, draws[c] - neutral, 0.0) for c, neutral in
                    (("brightness", 1), ("contrast", 1), ("saturation", 1), ("hue", 0))]  # fmt: skip
    table = torch.stack([x.double() for x in numbers])
    table = torch.cat([table[:, 1:], table[:, :-1]])
    correlation = torch.corrcoef(table).fill_diagonal_(0)
    assert correlation.abs().max() < 4.5 / math.sqrt(n)


def test_colours_act_together_and_are_uniform():
    draws = AUGMENTATIONS["photographs"].draw(stream(0, "views"), (100, 200), (3, 4, 4))
    acts = draws["hue"] != 0
    assert_share(acts, 0.8)
    for name, low, high in (("brightness", 0.6, 1.4), ("contrast", 0.6, 1.4), ("saturation", 0.6, 1.4),
                            ("hue", -0.1, 0.1)):  # fmt: skip
        assert_uniform(draws[name][acts], low, high)
        assert torch.all(draws[name][~acts] == (0 if name == "hue" else 1))
    assert_share(draws["gray"], 0.2)
    assert set(draws["gray"].unique().tolist()) == {0.0, 1.0}


def test_blur_and_noise_are_drawn_as_said():
    blur = AUGMENTATIONS["strong"].draw(stream(0, "views"), (20000,), (3, 4, 4))["blur"]
    assert_share(blur > 0, 0.5)
    assert_uniform(blur[blur > 0], 0.1, 2.0)
    noise = AUGMENTATIONS["digits"].draw(stream(0, "views"), (1000,), (1, 8, 8))["noise"].double()
    n = noise.numel()
    assert abs(noise.mean()) < 4 * 0.1 / math.sqrt(n) and abs(noise.var() - 0.01) < 4 * 0.01 * math.sqrt(2 / n)
    assert abs((noise[:, :, 1:] * noise[:, :, :-1]).mean()) < 4 * 0.01 / math.sqrt(n * 7 / 8)  # pixels independent


def test_the_recipes_are_what_they_should_be():
    photographs, strong = AUGMENTATIONS["photographs"], AUGMENTATIONS["strong"]
    assert (photographs.crop, photographs.flip, photographs.gray, photographs.blur) == ((0.2, 1.0), 0.5, 0.2, 0)
    colours = photographs.brightness, photographs.contrast, photographs.saturation, photographs.hue
    assert colours == (0.4, 0.4, 0.4, 0.1) and photographs.jitter == 0.8
    assert (strong.blur, strong.sigma) == (0.5, (0.1, 2.0)) and replace(strong, blur=0.0) == photographs
    assert AUGMENTATIONS["none"] == Augmentation()
    assert not AUGMENTATIONS["digits"].flip and not AUGMENTATIONS["handwriting"].flip  # a mirrored 2 is no 2


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


@pytest.mark.parametrize("name, value", [
    ("rng", None), ("rng", 0), ("rng", np.random), ("count", 3), ("count", None), ("count", (2, -1)), ("count", (2.0,)),
    ("count", "ab"), ("shape", None), ("shape", "abc"), ("shape", (8, 8)), ("shape", (2, 8, 8)), ("shape", (1, 0, 8)),
    ("shape", (1, 8, NAN)),
])  # fmt: skip
def test_bad_draws_asked_for(name, value):
    good = {"rng": stream(0, "views"), "count": (2,), "shape": (1, 8, 8)}
    with pytest.raises((TypeError, ValueError), match=f"{name}: got .*; allowed is"):
        EVERYTHING.draw(**good | {name: value})


@pytest.mark.parametrize("name, value", [
    ("size", None), ("size", (8,)), ("size", (8, 0)), ("size", (8, 2.5)), ("box", (0, 0, 8)), ("box", (0, 0, 0, 8)),
    ("box", (0, NAN, 8, 8)), ("flip", "x"), ("flip", None), ("angle", INF), ("angle", None), ("scale", 0),
    ("scale", -1), ("scale", NAN), ("shift", 1.0), ("shift", (0, "x")), ("shift", (0, NAN)),
])  # fmt: skip
def test_bad_maps(name, value):
    good = {"size": (8, 8), "box": (0, 0, 8, 8), "flip": True, "angle": 0.1, "scale": 1.1, "shift": (0, 1)}
    assert affine(**good).shape == (2, 3)
    with pytest.raises((TypeError, ValueError), match=f"{name}: got .*; allowed is"):
        affine(**good | {name: value})


def test_bad_images_and_draws_of_another_recipe():
    x, draws = images(2, 1, 8, 8), AUGMENTATIONS["digits"].draw(stream(0, "views"), (2, 3), (1, 8, 8))
    digits = AUGMENTATIONS["digits"]
    for bad in (None, "x", x.numpy(), x[0], x.long(), x.to(torch.complex64)):
        with pytest.raises((TypeError, ValueError), match="(?s)^x: got .*; allowed is"):
            digits(bad, draws)
    with pytest.raises(ValueError, match="shape: got .*1 or 3 channels"):
        digits(x.expand(2, 2, 8, 8), draws)
    for bad in (None, "x", 3, [], {}, {**draws, "hue": draws["contrast"]}, {"warp": draws["warp"]}):
        with pytest.raises((TypeError, ValueError), match="draws: got .*; allowed is"):
            digits(x, bad)
    for name, bad in (
        ("warp", draws["warp"][:1]), ("warp", draws["warp"][0]), ("warp", None), ("contrast", draws["contrast"][:, :2]),
        ("noise", draws["noise"][..., :7]), ("contrast", draws["contrast"] > 1), ("noise", draws["noise"].long()),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=f"draws '{name}': got .*; allowed is"):
            digits(x, {**draws, name: bad})
