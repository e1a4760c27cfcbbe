"""Chapter 1's widgets: what they draw and say is computed here again; every control goes to both ends."""

import math

import numpy as np
import pytest
import torch
from torch.func import grad

from fedbook.experiment import plan
from fedbook.lab import chapter01_two_clients as two
from fedbook.lab import chapter01_widgets as widgets
from fedbook.lab.chapter01_theory import all_view_pairs
from fedbook.papers.fedsc import PAPER
from fedbook.papers.fedsc.matrix_privacy import matrix_epsilon, matrix_sigma
from fedbook.papers.fedsc.spectral import correlation, spectral_loss
from fedbook.randomness import normal, stream
from tests.lab.checks import drawn, numbers

NOISE = {"epsilon": 3.0, "size": 5000.0, "uploads": 50.0, "width": 8}


def psd(width, seed=0):
    rows = normal((3 * width, width), stream(seed, "rows"))
    return 4 * rows.T @ rows / rows.square().sum()


MATRICES = {width: psd(width) for width in (8, 64)}
DRAW = widgets.noise_drawer(MATRICES)


# --- two clients


def views(similarity):
    return torch.from_numpy(two.two_clients(similarity).x)


@pytest.mark.parametrize(
    ("alpha", "share", "steps", "similarity"), [("q", 0.3, 3, 0.8), (0.2, 0.5, 2, 0.4), (1.0, 0.8, 1, 1.0)]
)
def test_two_clients_follow_the_papers_loss(alpha, share, steps, similarity):
    """The closed form against autograd of the package's loss on every pair of views, three rounds long."""
    x, q = views(similarity), (share, 1 - share)
    path = two.two_client_rounds(alpha, share, steps, similarity)
    w = torch.from_numpy(path.maps[0])
    for t in range(3):
        frozen, own = [correlation(x[j] @ w.T) for j in (1, 0)], []
        for j in (0, 1):
            theta = w
            for _ in range(steps):
                a = q[j] if alpha == "q" else alpha
                theta = theta - two.LR * grad(
                    lambda m, j=j, a=a: spectral_loss(all_view_pairs(x[j] @ m.T), a, frozen[j]).total  # noqa: B023
                )(theta)
            own.append(theta)
        w = q[0] * own[0] + q[1] * own[1]
        assert np.allclose(path.maps[t + 1], w.numpy(), rtol=0, atol=1e-12)


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


@pytest.fixture(scope="module")
def recorded():
    return widgets.record_spectra(4, 0, 2)


def test_recorded_spectra_are_the_runs(recorded):
    """Ranks and traces of the same plan's encoder, by a loop over every client's views."""
    for method, one in recorded.items():
        assert list(one.rounds) == [0, 2, 4] and one.values.shape == (3, 16)
        assert (np.diff(one.values) <= 0).all() and one.values.min() > -1e-6
        assert one.rank == pytest.approx(one.values.sum(1) ** 2 / (one.values**2).sum(1), rel=1e-6)
        changes = {"rounds": 4, "evaluate_every": 2}
        run = plan(PAPER, method, "digits", changes=changes, device="cpu").rounds()
        for _ in run:
            pass
    problem = widgets.digits(0)
    own = {name: p[0] for name, p in run.server["theta"].items()}
    ranks, trace, whole = [], 0.0, 0.0
    for j in range(10):
        z = problem.encoder.apply(own, problem.bank[problem.owners(0) == j].flatten(0, 1)).double()
        z = z * (2 / z.norm(dim=1, keepdim=True)).clamp(max=1)
        matrix = z.T @ z / len(z)
        ranks.append(float(matrix.trace() ** 2 / matrix.square().sum()))
        whole = whole + matrix * len(z) / problem.bank.flatten(0, 1).shape[0]
        trace += float(matrix.trace()) * len(z) / problem.bank.flatten(0, 1).shape[0]
    last = recorded["centralized-sc"]
    assert last.own_rank[-1] == pytest.approx(np.mean(ranks), rel=1e-4)
    assert last.rank[-1] == pytest.approx(float(whole.trace() ** 2 / whole.square().sum()), rel=1e-4)
    assert last.values[-1].sum() == pytest.approx(trace, rel=1e-5)


# --- nonsense
