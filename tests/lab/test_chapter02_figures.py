"""Chapter 2's figures of theory: what is drawn agrees with definitions computed here, sentences say what is drawn."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fedbook.data import digits
from fedbook.lab import chapter02_collapse as collapse
from fedbook.lab import chapter02_drift as drift
from fedbook.lab import chapter02_figures as figures
from fedbook.papers.hetero_ssfl import run_on
from tests.lab.checks import numbers


@pytest.fixture(scope="module", autouse=True)
def trained_once():
    global RUN  # not while tests are collected
    RUN = drift.run(drift.digits_problem(20, 20), rounds=3, steps=2)


RUNS = []  # those that trained_alone made


@cache
def found():
    def recorded(*args):
        RUNS.append(run_on(*args))
        return RUNS[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "run_on", recorded)
        return figures.trained_alone(1)


def axes(count):
    return Figure().subplots(1, count, squeeze=False)[0]


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def line(ax, label):
    """The x and y of the one line with that label."""
    (one,) = [one for one in ax.lines if one.get_label() == label]
    return np.asarray(one.get_xdata(), dtype=float), np.asarray(one.get_ydata(), dtype=float)


def bars(ax, label):
    """x, y and the half length of each error bar."""
    (one,) = [one for one in ax.containers if one.get_label() == label]
    data, _, (segments,) = one.lines
    half = [(top[1] - bottom[1]) / 2 for bottom, top in segments.get_segments()]
    return *(np.asarray(v, dtype=float) for v in data.get_data()), np.asarray(half, dtype=float)


def unbiased_cka(a, b):
    """By Song et al.'s formula, in NumPy."""

    def hsic(x, y):
        k, m = x @ x.T, y @ y.T
        np.fill_diagonal(k, 0)
        np.fill_diagonal(m, 0)
        n = len(k)
        whole = k.sum() * m.sum() / ((n - 1) * (n - 2))
        return (np.trace(k @ m) + whole - 2 / (n - 2) * (k @ m).sum()) / (n * (n - 3))

    return hsic(a, b) / math.sqrt(hsic(a, a) * hsic(b, b))


# --- clients alone and aligned


def test_representations_are_those_of_the_clients():
    """Each network applied by hand to the first ten test images of each class."""
    one, images = found(), digits()
    rows = torch.cat([torch.nonzero(images.test_y == c).flatten()[:10] for c in range(10)])
    assert one.clients == ["cnn_s", "cnn_m", "mlp"] and one.rounds == 1
    assert one.classes.tolist() == [c for c in range(10) for _ in range(10)]
    assert [run.algorithm.name for run in RUNS] == ["local-ssl", "hetero-ssfl"]
    for run, way in zip(RUNS, ("alone", "aligned"), strict=True):
        plain = run.algorithm.views.plain(images.test_x[rows].float())
        for word, a in zip(one.clients, one.found[way], strict=True):
            theta = {name: p[0, 0] for name, p in run.clients[word]["theta"].items()}
            expected = run.algorithm.nets[word].represent(theta, plain)[0]
            assert torch.allclose(a, expected.double(), atol=1e-5) and a.dtype == torch.float64
    assert not torch.allclose(one.found["alone"][0], one.found["aligned"][0], atol=1e-2)


def test_kernels_are_drawn_with_their_cka():
    grid = Figure().subplots(2, 3)
    sentence = figures.draw_disagreement(grid, found())
    told = []
    for row, way in zip(grid, ("alone", "aligned"), strict=True):
        a = [x.numpy() for x in found().found[way]]
        for k, ax in enumerate(row):
            value = unbiased_cka(a[k], a[(k + 1) % 3])
            title, second = ax.get_title().split("\n")
            assert title == f"{way}: {k + 1}, {found().clients[k]}"
            assert second == f"CKA with {(k + 1) % 3 + 1}: {value:.2f}"
            kernel = a[k] - a[k].mean(0)
            kernel = kernel @ kernel.T
            drawn = ax.images[0].get_array()
            assert np.allclose(drawn, kernel / np.linalg.norm(kernel)) and len(ax.get_xticks()) == 10
            told.append(round(value, 2))
    assert numbers(sentence.split(": ", 1)[1].rstrip(".")) == pytest.approx(told)
    assert "after round 1:" in sentence and np.mean(told[3:]) > np.mean(told[:3])


# --- CKA


def test_stretching_changes_cka_only():
    left, right = axes(2)
    sentence = figures.draw_stretch([left, right])
    s, measured = line(left, "CKA, measured")
    assert np.allclose(measured, s**2 / np.sqrt(s**4 + 1), atol=1e-12) and s[[0, -1]].tolist() == [0.1, 10]
    assert np.allclose(line(left, "mean canonical correlation")[1], 1) and left.get_xscale() == "log"
    c, one = line(right, "as printed, $A$ moved")
    both, centred = (line(right, words)[1] for words in ("as printed, both moved", "centred, both moved"))
    assert np.allclose(centred, one[0]) and one[-1] < 0.1 and both[-1] > 0.9 and both[0] == pytest.approx(one[0])
    assert f"from {measured[0]:.3f} to {measured[-1]:.3f}" in sentence and f"At c = {c[-1]:g}" in sentence
    assert (
        f"{one[-1]:.3f} with A moved and {both[-1]:.3f} with both moved, the centred one {centred[0]:.3f}" in sentence
    )


def test_the_sign_decides():
    left, right = axes(2)
    sentence = figures.draw_signs([left, right], 30, (1, 2, 4))
    up, down = (line(left, words)[1] for words in (r"$+\mu\,(1-$CKA$)$", r"$+\mu\,$CKA"))
    ceiling = line(left, "ceiling, $d$ = 3")[1][0]
    assert len(up) == 31 and up[0] == down[0] and (np.diff(up) > 0).all() and (np.diff(down) < 0).all()
    assert up[-1] < ceiling and f"{up[-1]:.3f} with 1 - CKA" in sentence and f"to {down[-1]:.3f} with + CKA" in sentence
    top = line(right, "reached by descent")[1]
    for other in right.lines[:2]:
        assert np.allclose(other.get_ydata(), top, atol=1e-6)
    assert numbers(sentence.split(" are ")[1])[:3] == pytest.approx(top.tolist(), abs=6e-4)
    assert right.get_xticks().tolist() == [1, 2, 4] and len(legend(right)) == 3


# --- the mean


def test_shares_follow_the_square_of_the_norm():
    first, second, third = axes(3)
    sentence = figures.draw_shares([first, second, third])
    r, plain = line(first, "kernels as they are")
    assert np.allclose(plain, r**2 / (r**2 + 2)) and np.allclose(line(first, "kernels of norm 1")[1], 1 / 3)
    fine, formula = line(first, "$r^2/(r^2+2)$")
    assert np.allclose(formula, fine**2 / (fine**2 + 2))
    alpha, included, others = (one.get_ydata() for one in second.lines)
    assert (np.asarray(included) >= np.asarray(alpha)).all() and np.allclose(others, others[0])
    for j in (2, 5, 20):
        x, y = line(third, f"$N$ = {j}")
        assert np.allclose(y, np.sqrt((1 + (j - 1) * x) / j))
        assert f"{math.sqrt(1 / j):.3f} for N = {j}" in sentence
    assert "At r = 10 client 1 of 3 is 0.980 of the reference, with kernels of norm 1 0.333" in sentence
    assert f"from {included[0]:.3f} to {included[-1]:.3f} while that with the others stays {others[0]:.3f}" in sentence
    assert legend(third) == ["formula", "$N$ = 2", "$N$ = 5", "$N$ = 20"]


# --- small samples


def test_bias_follows_its_formula():
    left, right = axes(2)
    sentence = figures.draw_bias([left, right], 10)
    for rows in (32, 128):
        x, y, _ = bars(left, f"biased, $n$ = {rows}")
        assert np.allclose(y, x / (1 + x), atol=0.03)
        _, y, half = bars(left, f"unbiased, $n$ = {rows}")
        assert (np.abs(y) < 2.5 * half).all()  # five standard errors
    assert "for n = 128, d = 512" in sentence
    sizes, mean, half = bars(right, "biased")
    _, unbiased = line(right, "unbiased")
    whole = line(right, "all 512 images")[1][0]
    assert list(sizes) == [8, 16, 32, 64, 128] and (np.diff(mean) < 0).all() and (mean > whole).all()
    assert np.abs(unbiased - whole).max() < 0.02 and mean[0] - whole > 10 * half[0] / 2
    assert (
        f"biased CKA is {mean[0]:.3f} (standard error {half[0] / 2:.2g}) and the unbiased {unbiased[0]:.3f}" in sentence
    )
    assert f"they are {whole:.3f} and" in sentence


# --- collapse


def test_directions_live_only_with_both():
    spots = axes(3)
    sentence = figures.draw_collapse(spots, 0.1, 80.0)
    for ax, variant in zip(spots, collapse.VARIANTS, strict=True):
        modes, matrix = ax.lines[0::2], ax.lines[1::2]
        assert len(modes) == len(matrix) == 4 and ax.get_xlabel() == "time"
        for one, points in zip(modes, matrix, strict=True):
            at = np.interp(points.get_xdata(), one.get_xdata(), one.get_ydata())
            assert np.allclose(at, points.get_ydata(), atol=1e-12)
            assert one.get_color() == points.get_color()
        ends = [float(one.get_ydata()[-1]) for one in modes]
        assert f"{variant} " + ", ".join(f"{v:.2g}" for v in ends) in sentence
        if variant == "both":
            rests, least = ([one[0][1] for one in ax.collections[i].get_segments()] for i in (0, 1))
            assert [tuple(one.get_offsets()[0]) for one in ax.collections[2:]] == [(80.0, p) for p in least]
            colours = [one.get_color() for one in modes[:3]]
            assert [to_hex(c).upper() for c in ax.collections[1].get_colors()] == colours
            assert ends[:3] == pytest.approx(rests, abs=1e-2) and ends[3] < 0.01
        else:
            assert max(ends) < 1e-3
    for s, n, low, p in zip(collapse.SIGNAL, collapse.NOISE, least, rests, strict=False):
        assert [low, p] == pytest.approx(np.sort(np.roots([s + n, -s, 0.1])))
    assert legend(spots[0]) == ["rests here", "dies from below here"] and len(legend(spots[1])) == 4
    assert "rests at 0.87, 0.65, 0.5, none if it starts above 0.072, 0.12, 0.25, none." in sentence


def test_where_everything_dies_nothing_rests():
    spots = axes(3)
    sentence = figures.draw_collapse(spots, 2.0, 5.0)
    assert "rests at none, none, none, none" in sentence and not spots[0].collections


# --- the theorem


@pytest.mark.parametrize("smooth", [3.0, 40.0, (3.0, 12.0, 9.0)])
def test_the_local_bound_is_drawn_beside_what_happened(smooth):
    (ax,) = axes(1)
    smooth = torch.ones(3, 3).double() * torch.tensor(smooth).double()
    sentence = figures.draw_descent(ax, RUN, smooth)
    change, bound = (np.stack([line(ax, f"{word}client {k}")[1] for k in (1, 2, 3)], 1) for word in ("", "bound, "))
    assert np.allclose(change, RUN.trained - RUN.before)
    assert np.allclose(bound, -(0.2 - smooth * 0.02) * RUN.slopes) and ax.get_yscale() == "symlog"
    low, high = ax.get_ylim()
    assert low < change.min() and high > max(bound.max(), 0.5) and len(legend(ax)) == 6
    said = f"by {change.min():.3g} to {change.max():.3g}, down in {(change < 0).sum()} of 9 (round, client) pairs. "
    assert said in sentence and f"holds in {(change <= bound).sum()}." in sentence
    down = bound < 0
    for words, told, values in (
        ("a fall in", down, (bound[down], change[down])), ("none in", ~down, (bound[~down],)),
    ):  # fmt: skip
        assert (f"It promises {words} {told.sum()}:" in sentence) == bool(told.any())
        for v in values:
            assert not told.any() or f"{v.min():.3g} to {v.max():.3g}" in sentence
    whole = float((RUN.theorem(smooth)).min())
    assert sentence.endswith(f"Theorem 4.7's bounds are {whole:.3g} or more.")
    assert f"changes the loss by {float((RUN.swapped - RUN.before).min()):.3g} to" in sentence


def test_every_bound_holds_and_is_said():
    left, right = axes(2)
    sentence = figures.draw_drift([left, right], RUN)
    jumps = np.stack([line(left, f"loss of client {k + 1}")[1] for k in range(3)], 1)
    similarity = 0.5 * RUN.cka.abs().numpy()
    assert np.allclose(jumps, similarity)
    order = ["unit kernels", "kernels", "representations"]
    below = jumps.max(1)
    for words in order:
        assert (line(left, f"CKA bound: {words}")[1] >= below).all()
        below = line(left, f"CKA bound: {words}")[1]
    trace, bound = line(left, "trace, largest")[1], line(left, "trace bound (step 8)")[1]
    printed, repaired = (line(left, words)[1][0] for words in ("paper, as printed", "paper, $E$ times"))
    assert (trace <= bound).all() and (bound <= repaired).all() and repaired == pytest.approx(2 * printed)
    assert np.allclose(trace, 0.5 * RUN.trace.max(1).values.numpy())
    assert (jumps <= line(left, r"$\mu$: trivial")[1][0]).all() and left.get_yscale() == "log"
    t, up = jumps.max(1).argmax(), int((RUN.cka < 0).sum())
    links = ", ".join(f"{line(left, f'CKA bound: {words}')[1][t]:.3g} ({words})" for words in order)
    assert f"at most {jumps.max():.3g} (round {t + 1}; there the CKA bounds are {links}, the trivial one" in sentence
    assert f"goes up in {up} of 9." in sentence
    assert f"at most {trace.max():.3g}; the trace bound is at most {bound.max():.3g}, the paper's" in sentence
    assert f"{printed:.3g} as printed, {repaired:.3g} with E = 2" in sentence
    for k in range(3):
        path, trained, swapped = right.lines[3 * k : 3 * k + 3]
        assert len(path.get_xdata()) == 9 and path.get_ydata()[0] == RUN.before[0, k]
        assert np.allclose(trained.get_ydata(), RUN.trained[:, k]) and np.allclose(
            swapped.get_ydata(), RUN.swapped[:, k]
        )
        for points in (trained, swapped):
            at = dict(zip(path.get_xdata().tolist(), path.get_ydata().tolist(), strict=False))
            assert all(round(x, 3) in {round(v, 3) for v in at} for x in points.get_xdata().tolist())


# --- nonsense
