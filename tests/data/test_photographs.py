"""Patches of scikit-learn's photographs: the pixels they were cut from, all positions different, keyed."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_image

from fedbook.data import photographs
from fedbook.data.photographs import NAMES, POSITIONS, photograph_patches

WHOLE = [load_sample_image(name) for name in NAMES]


def test_patches_are_what_lies_at_their_corners():
    patches = photograph_patches(300, seed=1)
    assert patches.x.shape == (300, 3, 28, 28) and patches.x.dtype == torch.uint8 and patches.x.is_contiguous()
    assert patches.photograph.dtype == patches.corner.dtype == torch.int64 and patches.corner.shape == (300, 2)
    for x, k, (row, column) in zip(patches.x, patches.photograph, patches.corner.tolist(), strict=True):
        cut = WHOLE[k][row : row + 28, column : column + 28]
        assert cut.shape == (28, 28, 3) and np.array_equal(x.permute(1, 2, 0), cut)
    patches.x[0] = 0  # a copy: the photograph stays as it is
    assert np.array_equal(photograph_patches(300, seed=1).x[1:], patches.x[1:])


def test_twenty_thousand_differ_and_cover_both():
    patches = photograph_patches(20_000)
    places = torch.cat([patches.photograph[:, None], patches.corner], 1)
    assert len(places.unique(dim=0)) == 20_000
    assert len({x.numpy().tobytes() for x in patches.x}) == 20_000  # no two show the same
    share = patches.photograph.double().mean()
    assert abs(float(share) - 0.5) < 4.5 * 0.5 / math.sqrt(20_000)
    assert patches.corner.amin(0).tolist() == [0, 0] and (patches.corner.amax(0) >= torch.tensor([397, 610])).all()
    assert (patches.corner.amax(0) <= torch.tensor([399, 612])).all()
    # row and column uniform over all places: means of uniform whole numbers, 4.5 standard errors
    for values, places in zip(patches.corner.double().T, (400, 613), strict=True):
        error = math.sqrt((places**2 - 1) / 12 / 20_000)
        assert abs(float(values.mean()) - (places - 1) / 2) < 4.5 * error
    near = (patches.corner[:200, None] - patches.corner).abs().amax(-1) < 28
    near &= patches.photograph[:200, None] == patches.photograph
    assert 90 < float(near.sum(1).double().mean()) - 1 < 140  # what the docstring says of overlaps


def test_seeds_decide_and_fewer_are_the_beginning_of_more():
    few, many = photograph_patches(10, seed=2), photograph_patches(1_000, seed=2)
    assert all(torch.equal(a, b[:10]) for a, b in zip(few, many, strict=True))
    assert not torch.equal(photograph_patches(10, seed=3).corner, few.corner)
    assert not torch.equal(photograph_patches(10, seed=None).corner, photograph_patches(10, seed=None).corner)
    assert few.corner[:3].tolist() == FIRST  # the raw numbers are the same on every machine


FIRST = [[281, 77], [211, 487], [183, 610]]


def test_all_positions_are_possible():
    assert POSITIONS == 2 * (427 - 27) * (640 - 27) == 490_400
    pixels = photograph_patches(
        2 * 427 * 640, height=1, width=1
    )  # every pixel once: put back, they are the photographs
    again = np.zeros((2, 427, 640, 3), np.uint8)
    again[pixels.photograph, pixels.corner[:, 0], pixels.corner[:, 1]] = pixels.x[:, :, 0, 0]
    assert np.array_equal(again, np.stack(WHOLE))


def test_patches_of_other_sizes():
    patches = photograph_patches(50, seed=1, height=64, width=40)
    assert patches.x.shape == (50, 3, 64, 40)
    for x, k, (row, column) in zip(patches.x, patches.photograph, patches.corner.tolist(), strict=True):
        assert np.array_equal(x.permute(1, 2, 0), WHOLE[k][row : row + 64, column : column + 40])
    whole = photograph_patches(2, height=427, width=640)
    assert sorted(whole.photograph.tolist()) == [0, 1] and not whole.corner.any()
    for bad in ({"height": 428}, {"height": 0}, {"width": 641}, {"width": 2.5}, {"width": None}):
        with pytest.raises((TypeError, ValueError), match=f"{next(iter(bad))}: got"):
            photograph_patches(2, **bad)
    with pytest.raises(ValueError, match=r"count: got 3; allowed is a whole number in \[1, 2\]"):
        photograph_patches(3, height=427, width=640)


def test_other_photographs_are_refused(monkeypatch):
    monkeypatch.setattr(photographs, "SHAPE", (100, 640, 3))
    with pytest.raises(RuntimeError, match="photographs are uint8"):
        photograph_patches(5)


@pytest.mark.parametrize(
    "name, bad", [("count", 0), ("count", POSITIONS + 1), ("count", 2.5), ("seed", -1), ("seed", "x")]
)
def test_bad_arguments_are_refused(name, bad):
    with pytest.raises((TypeError, ValueError), match=f"{name}: got"):
        photograph_patches(**({"count": 3} | {name: bad}))
