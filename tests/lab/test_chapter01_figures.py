"""Chapter 1's figures of theory: what is measured agrees with the package, sentences say the numbers that are drawn."""

import numpy as np
import pytest
import torch

from fedbook.lab import chapter01_descent as descent
from fedbook.lab import chapter01_figures as figures
from fedbook.lab import chapter01_floor as floor
from tests.lab.checks import looks, numbers


@pytest.fixture(scope="module", autouse=True)
def trained_once():
    global PROBLEM, RUNS, THETA  # not while tests are collected
    PROBLEM = descent.digits_problem(20)
    RUNS = figures.descents(PROBLEM, 20)
    THETA = RUNS["FedSC"].theta


# --- descents


def test_one_machine_and_fedsc_are_one_course():
    """Two ways of computing: the pooled bank, and ten clients with matrices; the gap is that of the same clients."""
    one, ours = RUNS["centralised"], RUNS["FedSC"]
    assert torch.allclose(one.slope, ours.slope, rtol=1e-9) and torch.allclose(one.loss, ours.loss, rtol=1e-10)
    assert torch.allclose(one.gap, ours.gap, rtol=1e-9) and len(one.loss) == 21
    fedavg = RUNS["FedAvg + SC"]
    assert float(fedavg.loss[-1]) > float(ours.loss[-1]) and float(fedavg.gap[-1]) < float(ours.gap[-1])


def test_descents_are_drawn(three):
    sentence = figures.draw_descents(three, RUNS)
    one = RUNS["FedAvg + SC"]
    assert f"FedAvg + SC {one.slope[-1]:.3g}, {one.loss[-1]:.3f}, {one.gap[-1]:.3f}" in sentence
    assert "after 20 rounds" in sentence and len(looks(three[0].lines)) == 3
    for ax, values in zip(three, (one.slope, one.loss, one.gap), strict=True):
        assert np.allclose(ax.lines[0].get_ydata(), values) and len(ax.lines) == 3
    assert three[0].get_yscale() == "log" and three[0].lines[2].get_linestyle() == "None"


# --- bias and noise


def test_drawn_batches_obey_the_law(axes):
    found = figures.biases(PROBLEM, THETA, [2, 5, 20], (1, 4), draws=30)
    assert (((found.mean - found.law) / found.error).abs() < 4).all()
    assert float(found.law[2, 1]) == pytest.approx(float(found.law[2, 0]) / 4)  # at B = n only the views are left
    sentence = figures.draw_biases(axes, found)
    assert numbers(sentence)[0] == pytest.approx(float(found.law[0, 0]), rel=0.01)
    assert f"{found.law[-1, -1]:.2g} (B = 20, V = 4)" in sentence
    assert np.allclose(axes[0].lines[0].get_ydata(), found.law[:, 0])
    words = [t.get_text() for t in axes[1].get_legend().get_texts()]
    assert words == ["$B$ = 2", "$B$ = 5", "$B$ = 20 (all samples)"]


def test_noise_grows_with_the_square_of_sigma(axes):
    found = figures.noises(PROBLEM, THETA, [0.1, 0.4], [2, 10], draws=30)
    sigmas, by_sigma, clients, by_clients = found
    assert float(by_sigma[1].law / by_sigma[0].law) == pytest.approx(16) and clients == [2, 10]
    for one in (*by_sigma, by_clients):
        assert ((one.mean - one.law).abs() < 4 * one.error).all()
    assert float(by_sigma[0].mean) / 0.01 != pytest.approx(float(by_sigma[1].mean) / 0.16)  # drawn anew
    assert float(by_sigma[0].law) == pytest.approx(0.01 * float(by_clients.law[1]))
    sentence = figures.draw_noises(axes, found)
    assert "power 2 of sigma" in sentence and "256 times" in sentence
    assert f"{float(by_sigma[1].law):.3g} at sigma = 0.4" in sentence
    assert f"J = 10: {float(by_clients.law[1]):.3g}" in sentence
    assert np.allclose(axes[0].lines[0].get_ydata(), 256 * axes[0].lines[1].get_ydata())


def test_plateaus(ax):
    sentence = figures.draw_plateaus(ax, [0, 0.1, 0.5], torch.tensor([0.5, 0.75, 4.0]))
    assert numbers(sentence)[-5:] == [0.5, 0.75, 0.1, 4, 0.5]
    charged, measured, bare = ax.lines
    assert charged.get_ydata() == pytest.approx([2.56, 64]) and measured.get_ydata() == pytest.approx([0.75, 4])
    assert bare.get_ydata()[0] == 0.5 and ax.get_yscale() == "log"


# --- the theorem


def test_terms_stand_beside_the_measurement(ax):
    horizons = [10, 40]
    terms = [floor.theorem_6_10(t, 2, 0.1, 20, 5, gain=1.0, samples=40) for t in horizons]
    sentence = figures.draw_theorem(ax, horizons, terms, torch.tensor([3.0, 1.5]))
    assert numbers(sentence) == pytest.approx(
        [10, 40, 3, 1.5, 1, sum(terms[0]), sum(terms[1]), terms[1].floor], rel=0.01
    )
    words = [t.get_text() for t in ax.get_legend().get_texts()]
    assert "sampled clients" not in words and len(words) == 8  # that term is 0: everybody takes part
    total = next(line for line in ax.lines if line.get_label() == "right side")
    assert total.get_ydata() == pytest.approx([sum(one) for one in terms])
    assert len(looks(ax.lines)) == len(ax.lines)


# --- stability


def test_the_multiplier_is_that_of_real_steps(axes):
    sentence = figures.draw_multiplier(axes, 0.1, 10)
    assert "by -9, -4, 0 at alpha = 0.1, 0.2, 1" in sentence
    line, points = axes[0].lines[:2]
    assert np.allclose(points.get_ydata(), np.interp(points.get_xdata(), line.get_xdata(), line.get_ydata()), atol=0.2)
    slope = np.polyfit(points.get_xdata(), points.get_ydata(), 1)
    assert slope == pytest.approx([-10, 1], abs=1e-3)
    ends = [abs(path.get_ydata()[-1] - 1) for path in axes[1].lines]
    assert ends[0] < 0.01 and ends[1] < 0.01 and ends[2] == pytest.approx(0.01)  # kappa = alpha / 2, 3/2, 2
    assert ends[3] == pytest.approx(0.01 * 1.2**10) and f"is {ends[3]:.3g} off after 10" in sentence
    assert all(low <= v <= high for low, high in [axes[1].get_ylim()] for x in axes[1].lines for v in x.get_ydata())


def test_alternation(three):
    def made(slope, turn, rank):
        t = torch.full((9,), float(slope))
        return descent.Run(t, t, t, torch.full((9,), float(rank)), t[1:], torch.full((7,), float(turn)), THETA)

    sentence = figures.draw_alternation(three, {"alpha = q": made(500, -0.9, 2), "FedAvg + SC": made(3, 1, 8)})
    assert sentence.endswith("alpha = q 500, -0.90, 2.0; FedAvg + SC 3, 1.00, 8.0.")
    assert three[1].lines[0].get_xdata().tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert three[1].get_legend().get_texts()[0].get_text() == r"$\alpha$ = $q$"


def test_a_real_alternation_is_seen(three):
    runs = floor.stability(descent.digits_problem(4), rounds=16)
    sentence = figures.draw_alternation(three, runs)
    wild = float(runs["alpha = q"].turn[7:].mean())
    assert wild < -0.8 and f"{wild:.2f}" in sentence


# --- nonsense
