"""Chapter 1's widgets: what they draw and say is computed here again; every control goes to both ends."""

import math

import numpy as np
import pytest

from fedbook.lab import chapter01_widgets as widgets
from fedbook.papers.fedsc.matrix_privacy import matrix_epsilon, matrix_sigma
from fedbook.randomness import normal, stream
from tests.lab.checks import drawn, numbers

NOISE = {"epsilon": 3.0, "size": 5000.0, "uploads": 50.0, "width": 8}


def psd(width, seed=0):
    rows = normal((3 * width, width), stream(seed, "rows"))
    return 4 * rows.T @ rows / rows.square().sum()


MATRICES = {width: psd(width) for width in (8, 64)}
DRAW = widgets.noise_drawer(MATRICES)


# --- two clients


# --- noise on a correlation matrix


@pytest.mark.parametrize("values", [NOISE, NOISE | {"size": 144.0}, NOISE | {"width": 64, "epsilon": 0.5}])
def test_noise_is_that_of_the_account(three, values):
    sentence = DRAW(three, **values)
    size, uploads, width = int(values["size"]), int(values["uploads"]), values["width"]
    sigma = matrix_sigma(values["epsilon"], 4.0, size, uploads, 1e-2)
    assert matrix_epsilon(sigma, 4.0, size, uploads, 1e-2) == pytest.approx(values["epsilon"])
    matrix, sent = (np.asarray(ax.images[0].get_array()) for ax in three[:2])
    assert np.allclose(matrix, MATRICES[width].numpy()) and np.allclose(sent, sent.T)
    noise, apart = (sent - matrix) / sigma, ~np.eye(width, dtype=bool)
    count = width * (width - 1) / 2
    assert (noise[apart] ** 2).mean() == pytest.approx(0.5, abs=4 * 0.5 * math.sqrt(2 / count))
    assert (np.diag(noise) ** 2).mean() == pytest.approx(1, abs=4 * math.sqrt(2 / width))
    found, edge = drawn(three[2]), sigma * math.sqrt(2 * width)
    assert found["R"][:, 1] == pytest.approx(np.sort(np.linalg.eigvalsh(matrix))[::-1])
    assert found["sent"][:, 1] == pytest.approx(np.sort(np.linalg.eigvalsh(sent))[::-1])
    (band,) = (p for p in three[2].patches if p.get_label() == "noise alone")
    assert band.get_y() == pytest.approx(-edge) and band.get_height() == pytest.approx(2 * edge)
    told = numbers(sentence, r"needs σ = (\S+) the noise is (\S+) times .* = (\S+) and (\d+) of")
    error = np.linalg.norm(sent - matrix) / np.linalg.norm(matrix)
    above = (np.linalg.eigvalsh(sent) > edge).sum()
    assert told == [float(f"{sigma:.3g}"), float(f"{error:.2g}"), float(f"{edge:.2g}"), above]
    assert numbers(sentence, r"this σ reaches (\S+)$") == [float(f"{32 * sigma:.2g}")]
    assert three[2].get_ylim()[0] < min(-edge, found["sent"][:, 1].min()) and three[2].get_ylim()[1] > edge


def test_the_edge_is_where_the_noises_eigenvalues_end():
    """sigma sqrt(2 H): the largest eigenvalue of the symmetric part, mean of 40 draws, H = 64."""
    width, rng = 64, stream(0, "edge")
    noise = rng.standard_normal((40, width, width))
    largest = np.linalg.eigvalsh((noise + noise.transpose(0, 2, 1)) / 2)[:, -1] / math.sqrt(2 * width)
    assert 0.9 < largest.mean() < 1.02 and largest.max() < 1.1


# --- the spectrum
