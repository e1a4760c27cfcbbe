"""Chapter 1's widgets: what they draw and say is computed here again; every control goes to both ends."""

import math

import numpy as np
import pytest
import torch
from torch.func import grad

from fedbook.experiment import plan
from fedbook.lab import chapter01_two_clients as two
from fedbook.lab import chapter01_widgets as widgets
from fedbook.lab.chapter01_floor import jacobi_of_steps
from fedbook.lab.chapter01_spectrum import minimise
from fedbook.lab.chapter01_theory import all_view_pairs
from fedbook.lab.controls import choice, log_slider, slider
from fedbook.lab.explore import Explorer
from fedbook.papers.fedsc import PAPER
from fedbook.papers.fedsc.matrix_privacy import matrix_epsilon, matrix_sigma
from fedbook.papers.fedsc.spectral import bank_objective, correlation, spectral_loss
from fedbook.randomness import normal, stream
from tests.lab.checks import drawn, numbers

PAIR = {"alpha": "q", "share": 0.5, "local_steps": 5, "similarity": 0.8}
NOISE = {"epsilon": 3.0, "size": 5000.0, "uploads": 50.0, "width": 8}
ALPHAS = {"q (aligned)": "q", "1 (FedAvg+SC)": 1.0, "0.5": 0.5, "0.2": 0.2, "0.1": 0.1}


def psd(width, seed=0):
    rows = normal((3 * width, width), stream(seed, "rows"))
    return 4 * rows.T @ rows / rows.square().sum()


MATRICES = {width: psd(width) for width in (8, 64)}
DRAW = widgets.noise_drawer(MATRICES)


# --- two clients


def views(similarity):
    return torch.from_numpy(two.two_clients(similarity).x)


def global_loss(w, x, copies=(1, 1)):
    """L over the union, each client's samples as often as ``copies`` says."""
    z = torch.cat([(x[j] @ w.T).repeat(n, 1, 1) for j, n in enumerate(copies)])
    owner = torch.repeat_interleave(torch.arange(2), torch.tensor([n * len(x[0]) for n in copies]))
    return bank_objective(z, owner, 2)


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


def test_one_aligned_step_descends_the_global_loss():
    x, path = views(0.7), two.two_client_rounds("q", 0.5, 1, 0.7)
    for t in (0, 20, 59):
        w = torch.from_numpy(path.maps[t])
        step = -two.LR * grad(lambda m: global_loss(m, x).loss)(w)
        assert np.allclose(path.maps[t + 1] - path.maps[t], step.numpy(), atol=1e-13)
    assert (np.diff(path.loss) < 0).all()


@pytest.mark.parametrize(("share", "copies"), [(0.5, (1, 1)), (0.75, (3, 1))])
def test_loss_gap_and_least(share, copies):
    x, path = views(0.6), two.two_client_rounds("q", share, 4, 0.6)
    for t in (0, 7, 60):
        found = global_loss(torch.from_numpy(path.maps[t]), x, copies)
        assert path.loss[t] == pytest.approx(float(found.loss), abs=1e-12)
        assert path.gap[t] == pytest.approx(float(found.gap), abs=1e-12)
        assert np.allclose(path.matrices[t], found.matrices.numpy(), atol=1e-12)
    best = minimise(lambda w: global_loss(w, x, copies).loss, torch.from_numpy(path.maps[0]))
    assert path.least == pytest.approx(float(global_loss(best, x, copies).loss), abs=1e-9)
    assert path.loss.min() > path.least - 1e-12


def test_collapse_orthogonality_oscillation():
    """What the picture is for: together without contrast between clients, apart with it, and to and fro."""
    alone, aligned = (two.two_client_rounds(a, 0.5, 5, 0.8) for a in (1.0, "q"))
    assert two.overlap(alone.matrices[-1]) > 0.95 and two.overlap(aligned.matrices[-1]) < 0.25
    assert aligned.loss[-1] - aligned.least < 0.02 < 0.3 < alone.loss[-1] - alone.least
    swinging, calm = (two.two_client_rounds(0.2, 0.5, steps, 0.95) for steps in (20, 5))
    moves = np.diff(swinging.loss[-10:])
    assert (
        swinging.multiplier < -1 < calm.multiplier and (moves[1:] * moves[:-1] < 0).all() and np.abs(moves).min() > 0.3
    )
    assert np.ptp(calm.loss[-3:]) < 0.02


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("steps", [1, 4, 12, 25])
def test_the_multiplier_is_that_of_a_shared_direction(alpha, steps):
    path, one = two.two_client_rounds(alpha, 0.5, steps, 0.5), jacobi_of_steps(alpha, steps, two.LR)
    assert path.kappa == pytest.approx([one.kappa] * 2) and path.multiplier == pytest.approx(one.measured, abs=1e-4)
    assert (path.multiplier < -1) == (one.kappa > 2 * alpha)


def test_the_multiplier_with_unequal_shares():
    """alpha = q: 1 - kappa_1 - kappa_2, never below -1; q enters at both ends of the mean."""
    for share in (0.1, 0.35, 0.9):
        path = two.two_client_rounds("q", share, 25, 0.5)
        kappas = [jacobi_of_steps(q, 25, two.LR).kappa for q in (share, 1 - share)]
        assert path.kappa == pytest.approx(kappas) and path.multiplier == pytest.approx(1 - sum(kappas))


@pytest.mark.parametrize("values", [PAIR, PAIR | {"alpha": 0.2, "local_steps": 20, "similarity": 0.95, "share": 0.6}])
def test_two_clients_picture(axes, values):
    sentence, path = two.draw_two_clients(axes, **values), two.two_client_rounds(**values)
    found, x = drawn(axes[0]), two.two_clients(values["similarity"]).x
    for j in (0, 1):
        edge = found[f"client {j + 1}"]
        inside = np.einsum("ni,ij,nj->n", edge, np.linalg.inv(path.matrices[-1, j]), edge)
        assert np.allclose(inside, 1)
        (cloud,) = (line.get_xydata() for line in axes[0].lines if len(line.get_xdata()) == 160
                    and line.get_color() == axes[0].lines[5 * j].get_color())  # fmt: skip
        z = x[j].reshape(-1, 3) @ path.maps[-1].T
        assert np.allclose(cloud, z) and np.allclose(z.T @ z / 160, path.matrices[-1, j])
        assert np.abs(cloud).max() < axes[0].get_xlim()[1]
    lines = drawn(axes[1])
    assert np.allclose(lines["L, all data"][:, 1], path.loss)
    assert np.allclose(lines["L + gap, clients alone"][:, 1], path.loss + path.gap)
    assert lines["least L"][0, 1] == path.least
    told = numbers(sentence, r"cosine is (\S+) .* mean \|z\|² (\S+) and (\S+) .* the error by (\S+):")
    sizes = np.trace(path.matrices[-1], axis1=1, axis2=2)
    assert told == [float(f"{v:.2f}") for v in (two.overlap(path.matrices[-1]), *sizes, path.multiplier)]
    assert ("swings" in sentence) == (path.multiplier < -1) and sentence.endswith(
        "unstable there." if path.multiplier < -1 else ": stable there."
    )


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


def test_table_6_stands_beside(three):
    assert "σ = 0.01 for CIFAR-10 at ε = 3 (n = 5000, 50 uploads)" in DRAW(three, **NOISE)
    assert "σ = 0.0052 for CIFAR-10 at ε = 6 (n = 5000, 50 uploads)" in DRAW(three, **(NOISE | {"epsilon": 20.0}))


def test_the_edge_is_where_the_noises_eigenvalues_end():
    """sigma sqrt(2 H): the largest eigenvalue of the symmetric part, mean of 40 draws, H = 64."""
    width, rng = 64, stream(0, "edge")
    noise = rng.standard_normal((40, width, width))
    largest = np.linalg.eigvalsh((noise + noise.transpose(0, 2, 1)) / 2)[:, -1] / math.sqrt(2 * width)
    assert 0.9 < largest.mean() < 1.02 and largest.max() < 1.1


def test_real_matrices():
    found = widgets.client_matrices(1)
    assert list(found) == [8, 16, 32, 64]
    for width, matrix in found.items():
        assert matrix.shape == (width, width) and torch.equal(matrix, matrix.T)
        assert torch.linalg.eigvalsh(matrix).min() > -1e-12 and 1 < matrix.trace() <= 4


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


def test_spectrum_picture(axes, recorded):
    draw = widgets.spectrum_drawer(recorded)
    sentence, one = draw(axes, method="fedavg-sc", round=3), recorded["fedavg-sc"]
    assert [bar.get_height() for bar in axes[0].patches] == pytest.approx(list(one.values[1]))
    found = drawn(axes[1])
    for name, other in recorded.items():
        assert np.allclose(found[name], np.stack([other.rounds, other.rank], 1))
    assert np.allclose(found["one client's own R"][:, 1], one.own_rank)
    assert any(
        np.allclose(line.get_xydata(), [[2, one.rank[1]]]) for line in axes[1].lines if len(line.get_xdata()) == 1
    )
    assert sentence.startswith(f"fedavg-sc after round 2: effective rank {one.rank[1]:.1f} of 16 (fedsc ")
    assert f"largest eigenvalue is {one.values[1, 0]:.2f}, {one.values[1, 0] / one.values[1].sum():.0%} of" in sentence
    assert draw(axes, method="fedsc", round=4).startswith("fedsc after round 4:")


# --- every corner of every control


def test_sweeps(recorded):
    pair = Explorer(
        two.draw_two_clients, (1, 2, (9.5, 4.2)), None,
        {"alpha": choice("α  own contrast", ALPHAS, "q"), "share": slider("q₁  share of client 1", 0.1, 0.9, 0.05, 0.5),
         "local_steps": slider("E  local steps", 1, 25, 1, 5),
         "similarity": slider("cos  similarity", 0.0, 1.0, 0.05, 0.8)}, None,
    )  # fmt: skip
    noise = Explorer(
        DRAW, (1, 3, (10.0, 3.4)), None,
        {"epsilon": log_slider("ε  budget", 0.1, 100.0, 3.0),
         "size": log_slider("n  client's samples", 100, 100_000, 5000),
         "uploads": log_slider("T  uploads", 1, 1000, 50), "width": choice("H  width", list(MATRICES), 8)},
        {"CIFAR-10, ε 3": {"epsilon": 3.0, "size": 5000, "uploads": 50}},
    )  # fmt: skip
    spectrum = Explorer(
        widgets.spectrum_drawer(recorded), (1, 2, (9.5, 3.6)), None,
        {"method": choice("method", widgets.METHODS, "fedsc"), "round": slider("t  round", 0, 4, 2, 4)}, None,
    )  # fmt: skip
    for explorer, settings in ((pair, 13), (noise, 11), (spectrum, 6)):
        assert len(explorer.sweep()) == settings


@pytest.mark.parametrize("alpha", ALPHAS.values())
@pytest.mark.parametrize("similarity", [0.0, 0.5, 1.0])
def test_nothing_leaves_the_numbers(alpha, similarity):
    for share in (0.1, 0.9):
        for steps in (1, 25):
            path = two.two_client_rounds(alpha, share, steps, similarity)
            assert np.isfinite(path.loss).all() and np.abs(path.maps).max() < 20


# --- nonsense


def pair(changes):
    return lambda a, _: two.draw_two_clients(a, **(PAIR | changes))
