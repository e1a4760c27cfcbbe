"""The privacy page's figures say the library's numbers, at every corner of their controls."""

import math
import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedbook import privacy
from fedbook.lab.chapter00_privacy import draw_epsilon, draw_two_outputs


@pytest.mark.parametrize("z", [0.3, 1.0, 20.0])
@pytest.mark.parametrize("releases", [1, 7, 1000])
def test_two_outputs(ax, z, releases):
    sentence = draw_two_outputs(ax, noise_multiplier=z, releases=releases)
    mu, epsilon = math.sqrt(releases) / z, privacy.gaussian_epsilon(z, releases, 1e-5)
    assert f"exact epsilon is {epsilon:.3g} at" in sentence and f" {mu:.3g} apart" in sentence
    (x, without), (_, with_client) = (line.get_data() for line in ax.lines[:2])
    assert x[np.argmax(with_client)] - x[np.argmax(without)] == pytest.approx(mu, abs=0.03 * (1 + mu))
    edge = ax.lines[2].get_xdata()[0]
    assert mu * edge - mu**2 / 2 == pytest.approx(epsilon)
    assert ax.get_xlim()[0] <= -4 and ax.get_xlim()[1] > max(edge, mu + 4)


def test_releases_and_noise_trade_off_in_the_figure():
    one, many = Figure().subplots(), Figure().subplots()
    draw_two_outputs(one, noise_multiplier=1.0, releases=1)
    draw_two_outputs(many, noise_multiplier=4.0, releases=16)
    assert np.allclose(one.lines[1].get_ydata(), many.lines[1].get_ydata())


@pytest.mark.parametrize(("z", "rounds", "exponent"), [(1.0, 1, -5), (0.2, 3, -1), (4.0, 100, -5), (50.0, 5000, -9)])
def test_epsilon_against_rounds(ax, z, rounds, exponent):
    sentence = draw_epsilon(ax, noise_multiplier=z, rounds=rounds, delta_exponent=exponent)
    classic, improved, exact = (line.get_ydata() for line in ax.lines)
    assert ax.lines[0].get_xdata()[0] == 0 and ax.lines[0].get_xdata()[-1] == rounds
    assert (exact <= improved).all() and (improved <= classic).all() and (np.diff(exact) >= 0).all()
    assert exact[-1] == pytest.approx(privacy.gaussian_epsilon(z, rounds, 10.0**exponent))
    mu, delta = privacy.gaussian_mu(z, rounds), 10.0**exponent
    shown = [privacy.gaussian_rdp_epsilon(mu, delta, word)[0] for word in ("classic", "improved")]
    shown.append(privacy.exact_epsilon(mu, delta))
    numbers = re.findall(
        r"epsilon = (\S+) by the classic conversion, (\S+) by the improved one and (\S+) exactly", sentence
    )
    assert numbers == [tuple(f"{value:.3g}" for value in shown)]
    assert f"delta = 1e{exponent}" in sentence
    styles = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in ax.lines}
    assert len(styles) == 3
