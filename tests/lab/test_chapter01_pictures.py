"""Chapter 1's pictures show what the package computes, in a frame that changes no loss, and say its numbers."""

import math

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fedbook.lab import chapter01_pictures as pictures
from fedbook.lab.chapter01_theory import pairwise_loss
from fedbook.papers.fedsc.spectral import bank_objective, norm_clip
from fedbook.randomness import stream


@pytest.fixture(scope="module", autouse=True)
def trained_once():
    global THREE, SMALL  # not while tests are collected
    THREE = pictures.three_clients(samples=20, rounds=15)
    SMALL = pictures.few_classes((3, 8, 5), samples=10)


# --- views


def test_views_are_the_recipes():
    seen = pictures.views_of("digits", count=3, views=4)
    assert seen.images.shape == (3, 1, 8, 8) and seen.views.shape == (3, 4, 1, 8, 8) and seen.recipe == "digits"
    assert torch.equal(seen.views, pictures.views_of("digits", count=3, views=4).views)
    clothes = pictures.views_of("fashion_mnist", count=2, views=2)
    assert clothes.views.shape == (2, 2, 1, 28, 28)
    axes = Figure().subplots(1, 2)
    sentence = pictures.draw_views(axes, seen, clothes)
    flat = seen.views.flatten(2)
    within = [(flat[i, a] - flat[i, b]).square().mean().sqrt() for i in range(3) for a in range(4) for b in range(a)]
    across = [(flat[i, a] - flat[j, b]).square().mean().sqrt() for i in range(3) for j in range(i) for a in range(4)
              for b in range(4)]  # fmt: skip
    assert f"digits {torch.stack(within).mean():.3f} and {torch.stack(across).mean():.3f}; clothes" in sentence
    shown = axes[0].images[0].get_array()
    assert np.allclose(shown[:8, :8], seen.images[0, 0])
    assert np.allclose(shown[9:17, 11:19], seen.views[1, 0, 0].clamp(0, 1))


# --- three clients


def test_a_problem_of_three_numerals():
    assert len(SMALL.y) == 30 and SMALL.classes == ("3", "8", "5") and SMALL.partitions[0].sizes.tolist() == [10] * 3
    owner = SMALL.owners(0)
    assert all(len(SMALL.y[owner == j].unique()) == 1 for j in range(3))
    assert torch.equal(SMALL.y.bincount(), torch.tensor([10, 10, 10])) and SMALL.encoder.width == 3
    whole = pictures.pretraining_problem("digits")
    rows = [int((whole.x == image).flatten(1).all(1).nonzero()[0]) for image in SMALL.x[[0, 10, 20]]]
    assert whole.y[rows].tolist() == [3, 8, 5] and set(SMALL.test_y.tolist()) == {0, 1, 2}


def test_the_frame_changes_no_loss():
    theta = {name: p.detach() for name, p in SMALL.encoder.module.named_parameters()}
    one = pictures.placed(SMALL, theta, 4.0)
    z = norm_clip(SMALL.encoder.apply(theta, SMALL.bank.flatten(0, 1)), 4.0).detach().unflatten(0, (30, 8))
    owner = SMALL.owners(0)
    assert one.loss == pytest.approx(float(pairwise_loss(z)), abs=1e-5)
    turned = one.z.unflatten(0, (30, 8))
    assert float(pairwise_loss(turned)) == pytest.approx(one.loss, abs=1e-5)
    found = bank_objective(turned, owner, 3)
    assert one.gap == pytest.approx(float(found.gap), abs=1e-6)
    assert torch.allclose(one.matrices, found.matrices, atol=1e-5)
    means = torch.stack([turned[owner == j].mean((0, 1)) for j in range(3)])
    means = means / means.norm(dim=1, keepdim=True)
    assert torch.allclose(one.cosines, (means @ means.T).abs(), atol=1e-5)
    angle = torch.tensor([[0.96, -0.28, 0], [0.28, 0.96, 0], [0, 0, 1]])
    assert float(means.trace()) >= float((means @ angle).trace())  # no turn brings them nearer to the axes


def test_clients_that_see_only_themselves_stay_in_one_place():
    alone, together, central = (THREE[k] for k in ("FedAvg + SC", "FedSC", "centralised"))
    assert alone.cosine > 0.6 > 0.4 > together.cosine and central.cosine < 0.4
    assert min(together.gap, central.gap) > 3 * alone.gap and max(together.loss, central.loss) < alone.loss
    assert all(one.loss >= -1.5 for one in THREE.values())


def test_clients_are_drawn():
    axes = Figure().subplots(2, 4)
    sentence = pictures.draw_clients(axes, THREE)
    for label, one in THREE.items():
        assert f"{label} {one.cosine:.2f}, {one.gap:.3f}, {one.loss:.3f}" in sentence
    points = [line for line in axes[0, 2].lines if line.get_linestyle() == "None"]
    assert len(points) == 3 and len({(to_hex(x.get_color()), x.get_marker()) for x in points}) == 3
    one = THREE["FedSC"]
    own = one.z[one.owner == 1].double()
    some = own[torch.from_numpy(stream(0, "points in a picture").permutation(len(own))[:70])]
    assert np.allclose(points[1].get_xdata(), (some[:, 1] - some[:, 2]) / math.sqrt(2))
    assert np.allclose(points[1].get_ydata(), (2 * some[:, 0] - some[:, 1] - some[:, 2]) / math.sqrt(6))
    canvas = axes[1, 2].images[0].get_array()
    assert np.allclose(canvas[:, 4:7], one.matrices[1]) and np.ma.getmaskarray(canvas)[:, 3].all()
    assert [t.get_text() for t in axes[0, 0].get_legend().get_texts()] == ["0", "1", "7"]


def test_orthogonal_means_lie_120_degrees_apart():
    z = torch.eye(3).repeat_interleave(5, 0)
    made = pictures.Placed(z, torch.arange(3).repeat_interleave(5), torch.eye(3).repeat(3, 1, 1), -1.0, 0.0,
                           torch.eye(3))  # fmt: skip
    axes = Figure().subplots(2, 1)
    sentence = pictures.draw_clients(axes, {"made": made})
    at = np.array([line.get_xydata()[0] for line in axes[0].lines if line.get_linestyle() == "None"])
    cosines = at @ at.T / np.linalg.norm(at, axis=1)[0] ** 2
    assert np.allclose(cosines, 1.5 * np.eye(3) - 0.5) and "made 0.00, 0.000, -1.000" in sentence
