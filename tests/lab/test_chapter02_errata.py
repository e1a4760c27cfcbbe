"""Chapter 2's errata: every witness refutes its statement, and the ones that change conclusions by a second way."""

import math

import pytest
import torch

from fedbook.lab import chapter02_errata as errata
from fedbook.lab import chapter02_errata_theorem as theorem
from fedbook.lab import chapter02_paper as paper
from fedbook.papers.hetero_ssfl import cka
from fedbook.randomness import normal, stream
from tests.lab.checks import Witnesses, refutes

FOUND = Witnesses(errata.ERRATA)
STATEMENT = {witness.__name__: statement for statement, witness in errata.ERRATA}
ROOT2 = math.sqrt(2)

# name -> (the number found, how exactly, the number promised): derived by hand or elsewhere, not by the witness
EXPECTED = {
    "literal_sign": (0.0, 1e-4, 0.1734),
    "theorem_fails": (0.1994, 1e-4, -(0.1 - 0.01) / 4 + 0.00168),
    "mu_allowed": (0.5, 0.0, 250 / (2 * 25e6)),
    "representations_averaged": (1 / ROOT2, 1e-12, 1.0),
    "common_offset": ((8 * 25) ** 2 / (8 * 25 + 1) ** 2, 1e-12, 0.0),
    "margin_within": (43.3 - 42.0, 1e-9, 2.7),
    "invertible_maps": (100 / math.sqrt(10**4 + 1), 1e-12, 1 / ROOT2),
    "initialisations": (20 / 120, 0.03, 1.0),
    "function_lost": (1 - 100 / math.sqrt(10**4 + 1), 1e-12, 0.5),
    "distance_to_itself": (1.0, 1e-12, 0.0),
    "triangle": (1.0, 1e-12, 2 - ROOT2),
    "other_widths": (1.0, 0.0, 0.0),
    "correlation_by_gradient": (1.0, 0.02, 0.1483),
    "finite_images": (2048 / 7048, 0.005, 0.0),
    "narrow_client": (0.5, 1e-9, 1.0),
    "same_kernel_other_model": (ROOT2, 1e-12, 0.0),
    "own_kernel": (1 / math.sqrt(5), 1e-12, 0.0),
    "weight_by_length": (100.0, 1e-9, 1.0),
    "learnt_weights": (1.0, 0.0, 1 / 3),
    "scaled_outputs": (0.01, 1e-12, 1.0),
    "weights_at_the_server": (21_276_992.0, 0.0, 2_560_000.0),
    "undefined_models": (10.0, 0.0, 100.0),
    "stale_kernel": (1 / 50, 1e-12, 1.0),
    "sent_again": (200 * 15.36, 1e-9, 15.36),
    "batch_dependence": (2.0, 1e-4, 0.0),
    "weights_from_outputs": (0.0, 0.0, math.inf),
    "lemma_fails": (0.2241, 1e-4, 0.00168),
    "trace_for_alignment": (0.0, 0.0, 6.0),
    "steps_between": (0.01 - 0.000025, 1e-12, 0.002),
    "weights_below_zero": (0.022, 1e-5, 0.002),
    "negative_loss": (1.0, 1e-12, -1.0),
    "rises_at_minimum": (0.005, 1e-12, 0.0),
    "steps_not_epochs": (0.032 / (2 * (2 - 0.032)), 1e-8, 0.00256),
    "smoothness_needed": (0.9, 1e-12, -0.4),
    "target_moves": (4e-4, 1e-12, 0.0),
    "variance_of_norm": (1.0, 0.0, 2.0),
    "curvature_unbounded": (1e6, 1e-3, 1.0),
    "floor_stays": (1.0, 1e-5, 0.0),
    "overlap": (61.5 - 58.23, 1e-9, 4.1),
    "slightly_worse": (17.2, 1e-9, 3.27),
    "easier_disjoint": (67.7, 0.0, 34.8),
    "equal_classes": (0.0, 0.0, math.inf),
    "classes_lost": (36.6, 0.01, 0.0),
    "more_images": (0.5, 0.0, 0.0),
    "outputs_of_the_probe": (1000.0, 0.0, 10.0),
    "data_of_leaf": (0.0, 0.0, 3.0),
    "fedu_updates": (1.0, 0.0, 0.0),
}


def test_every_erratum_has_its_expectation():
    assert set(FOUND) == set(EXPECTED) and len(FOUND) == len(errata.ERRATA)


@pytest.mark.parametrize("name", EXPECTED)
def test_every_erratum_is_refuted_by_its_witness(name):
    refutes(FOUND[name], EXPECTED[name], STATEMENT[name])


# --- the told ones and others by a second way


def test_the_sign_through_the_packages_alignment():
    """The same descent with 1 - CKA: up to the ceiling of rank 3; one small step of either sign from the start."""
    others, a = normal((12, 4), stream(0, "others")), normal((12, 3), stream(0, "own"))
    start = float(cka.linear_cka(a, others))
    assert start == pytest.approx(FOUND["literal_sign"][1], abs=1e-12)
    slope = cka.cka_gradient(a, others @ others.mT)
    assert float(cka.linear_cka(a - 0.1 * slope, others)) < start < float(cka.linear_cka(a + 0.1 * slope, others))
    for _ in range(1500):
        a = a + cka.cka_gradient(a, others @ others.mT)
    best = float(cka.ceiling(others @ others.mT, 3))
    assert float(cka.linear_cka(a, others)) == pytest.approx(best, abs=5e-3) and best > 0.9


def _two_clients(sign, start, slope):
    """Theorem 4.7's counterexample through autograd and Gram matrices; (L_0, L_E, L_E') and S, of client 1."""
    radius, images, eta, mu = 0.1, torch.tensor([0.0, 1.0], dtype=torch.float64), 0.1, 1.0

    def kernel(w):
        a = radius * torch.stack([(w * images).cos(), (w * images).sin()], 1)  # [L, 2]
        return a @ a.mT

    def alignment(w, mean):
        return sign * cka.gram_cka(kernel(w), mean, centre=False)

    w = [torch.tensor(x, dtype=torch.float64) for x in start]
    mean = sum(kernel(x) for x in w) / 2
    linear = [s - mu * torch.func.grad(alignment)(x, mean) for s, x in zip(slope, w, strict=True)]

    def loss(k, w, mean):
        return linear[k] * w + mu * alignment(w, mean)

    slopes = [torch.func.grad(lambda x, k=k: loss(k, x, mean))(w[k]) for k in (0, 1)]
    after = [x - eta * s for x, s in zip(w, slopes, strict=True)]
    now = sum(kernel(x) for x in after) / 2
    return [float(v) for v in (loss(0, w[0], mean), loss(0, after[0], mean), loss(0, after[0], now))], linear, slopes


def test_theorem_4_7_fails_while_its_assumptions_and_conditions_hold():
    losses, linear, slopes = _two_clients(1.0, (1.0, 3.0), (-0.5, 20.0))
    assert losses[2] - losses[0] == pytest.approx(FOUND["theorem_fails"][0], abs=1e-8)
    assert losses[2] - losses[1] == pytest.approx(FOUND["lemma_fails"][0], abs=1e-8)
    radius, l2, smooth, bound, eta, mu, images = 0.1, 0.1, 2.0, 21.0, 0.1, 1.0, 2
    w = torch.linspace(-math.pi, math.pi, 4001, dtype=torch.float64)
    for mean in torch.linspace(-1, 1, 41, dtype=torch.float64):  # every mean kernel there can be
        c = (w.cos().atan() - mean.atan()).cos()
        slope, bend = c.diff() / w.diff(), c.diff(n=2) / (w[1] - w[0]) ** 2
        assert float(bend.abs().max()) * mu <= smooth  # 4.1, the linear part of the loss has no curvature
        assert max(abs(float(x)) for x in linear) + mu * float(slope.abs().max()) <= bound  # 4.2
    moved = torch.stack([w.cos(), w.sin()]).diff(dim=1).norm(dim=0) * radius
    assert float((moved / w.diff()).max()) <= l2 * (1 + 1e-12)  # 4.4; 4.3 by construction
    squares, drift = float(slopes[0]) ** 2, 2 * l2 * bound * radius**3 * images**2
    assert mu < squares / drift and eta < 2 * (squares - mu * drift) / (smooth * squares)
    assert losses[1] <= losses[0] - (eta - smooth * eta**2 / 2) * squares  # Lemma 4.5 does hold
    assert theorem.cosine_alignment(0.7, -0.2) == pytest.approx(
        float(cka.gram_cka(_entry(math.cos(0.7)), _entry(-0.2), centre=False)), abs=1e-12
    )


def _entry(value):
    return torch.tensor([[1.0, value], [value, 1.0]], dtype=torch.float64)


def test_noise_and_draws_by_simulation():
    rng = stream(0, "drawn")
    x = torch.zeros(20_000, dtype=torch.float64)
    for _ in range(250):
        x = x - paper.LEARNING_RATE * (x + normal((20_000,), rng))
    losses = x.square() / 2
    assert abs(float(losses.mean()) - FOUND["steps_not_epochs"][0]) < 4 * float(losses.std()) / math.sqrt(20_000)
    empty = torch.tensor([100.0 - len(set(rng.integers(0, 100, 100).tolist())) for _ in range(4000)])
    assert abs(float(empty.mean()) - FOUND["classes_lost"][0]) < 4 * float(empty.std()) / math.sqrt(4000)


def test_the_weights_of_the_encoders_are_counted_right():
    from fedbook.learning.resnets import resnet18, resnet34

    for name, build in (("resnet18", resnet18), ("resnet34", resnet34)):
        with torch.device("meta"):
            network = build(3, 32, 32, 10)
        assert sum(p.numel() for p in network[:-1].parameters()) == paper.WEIGHTS[name]
        assert network[-1].in_features == 512  # the encoders of 5.1 have one width
