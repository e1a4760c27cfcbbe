"""Chapter 0's page on privacy: what two neighbouring outputs look like, and what releases cost.

Each function draws on an Axes and returns the sentence under the figure. The mechanism is one Gaussian
release with the given noise multiplier (noise / sensitivity), repeated; sampling is not counted.
"""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes

from fedbook.lab.style import REFERENCE, series
from fedbook.privacy.gaussian import (
    exact_epsilon,
    gaussian_delta,
    gaussian_mu,
    gaussian_rdp_epsilon,
    privacy_loss_curve,
)

DELTA = 1e-5


def draw_two_outputs(ax: Axes, *, noise_multiplier: float, releases: int) -> str:
    """Densities of the output without and with one client, and from where on their ratio exceeds e^epsilon.

    The axis is the output along that client's update, in standard deviations of the noise; ``releases``
    outputs together tell as much as one whose noise is smaller by sqrt(releases).
    """
    z = noise_multiplier
    mu = gaussian_mu(z, releases)
    epsilon = exact_epsilon(mu, DELTA)
    x, without, with_client, _ = privacy_loss_curve(mu)
    for i, (density, label) in enumerate([(without, "without the client"), (with_client, "with the client")]):
        ax.plot(x, density, label=label, markevery=40, **series(i))
    edge = epsilon / mu + mu / 2  # from here on the log of the ratio exceeds epsilon
    ax.axvline(edge, color=REFERENCE, linestyle=":", linewidth=1.2)
    note = "from here on\nratio above " + r"$e^{\varepsilon}$"
    ax.annotate(note, (edge, 0.455), xytext=(-5, 0), textcoords="offset points", ha="right", fontsize="small")
    ax.set_xlim(-4.0, max(mu + 4.0, edge) + 0.6)
    ax.set_xlabel("output, in standard deviations of the noise")
    ax.set_ylabel("density")
    ax.set_title(rf"noise multiplier $z={z:g}$, {_times(releases)}: shift $\mu={mu:.3g}$")
    ax.set_ylim(0, 0.52)
    ax.legend(loc="upper left")
    best = 50 * (1 + gaussian_delta(0.0, mu))
    return (
        f"After {_times(releases)} with noise multiplier {z:g} the outputs with and without the client are {mu:.3g} "
        f"apart, in standard deviations of the noise: who must say which of the two it was is right in {best:.3g} % "
        f"of the cases at best. The exact epsilon is {epsilon:.3g} at delta = 1e-5."
    )


def draw_epsilon(ax: Axes, *, noise_multiplier: float, rounds: int, delta_exponent: int) -> str:
    """Epsilon against the number of rounds by three accounts of the same noise; delta is 10^``delta_exponent``."""
    z = noise_multiplier
    delta = 10.0**delta_exponent
    counts = np.unique(np.concatenate([np.linspace(0, rounds, 31), np.geomspace(1, rounds, 12)]).round().astype(int))
    accounts = {
        "Renyi, classic conversion": lambda mu: gaussian_rdp_epsilon(mu, delta, "classic")[0],
        "Renyi, improved conversion": lambda mu: gaussian_rdp_epsilon(mu, delta)[0],
        "exact": lambda mu: exact_epsilon(mu, delta),
    }
    last = []
    for i, (label, epsilon) in enumerate(accounts.items()):
        curve = [epsilon(math.sqrt(count) / z) for count in counts]
        ax.plot(counts, curve, label=label, markevery=(2 * i, 6) if len(counts) > 12 else 1, **series(i))
        last.append(curve[-1])
    ax.set_xlabel("rounds $T$")
    ax.set_ylabel(r"$\varepsilon$")
    ax.set_ylim(bottom=0)
    ax.set_title(rf"noise multiplier $z={z:g}$, $\delta=10^{{{delta_exponent}}}$")
    ax.legend(loc="upper left")
    return (
        f"After {_times(rounds, 'round')} with noise multiplier {z:g} and delta = 1e{delta_exponent}, the same noise "
        f"means epsilon = {last[0]:.3g} by the classic conversion, {last[1]:.3g} by the improved one and "
        f"{last[2]:.3g} exactly: all three hold, the smallest wastes nothing."
    )


def _times(count: int, word: str = "release") -> str:
    return f"{count} {word}" + ("" if count == 1 else "s")
