"""Chapter 0: its mathematics against brute force, its errata, its figures at every setting, its stored numbers."""

from itertools import combinations

import pytest
import torch

from fedbook.lab import chapter00, results
from fedbook.lab import chapter00_theory as theory
from fedbook.papers.fedavg import Config
from fedbook.papers.fedavg.problem import ImageSettings, image_problem
from fedbook.randomness import normal, stream


@pytest.fixture(scope="module")
def problem():
    settings = ImageSettings(
        partition="quantity", alpha=1.0, clients=6, model="linear", train_samples=300, test_samples=100
    )
    return image_problem("digits", settings, [0], dtype=torch.float64)


def start(problem):
    return problem.model.init(stream(1, "init"), torch.float64)


def test_client_losses_and_gradients_equal_a_loop_over_unpadded_data(problem):
    theta = start(problem)
    split = problem.partitions[0]
    assert len(set(split.sizes.tolist())) > 2
    for k in range(6):
        rows = split.client(k)
        leaves = {n: v.clone().requires_grad_() for n, v in theta.items()}
        loss = torch.nn.functional.cross_entropy(problem.model.apply(leaves, problem.x[rows]), problem.y[rows])
        grads = torch.autograd.grad(loss, list(leaves.values()))
        assert torch.allclose(theory.client_losses(problem, theta)[k], loss, rtol=0, atol=1e-12)
        expected = torch.cat([g.flatten() for g in grads])
        assert torch.allclose(theory.client_gradients(problem, theta)[k], expected, rtol=0, atol=1e-12)
        decayed = theory.client_gradients(problem, theta, 0.3)[k]
        assert torch.allclose(decayed, expected + 0.3 * theory.flat(theta), rtol=0, atol=1e-12)


def test_drift_term_is_the_hessian_times_the_gradient(problem):
    """Finite differences of each client's gradient along itself."""
    theta = start(problem)
    p, g = theory.shares(problem), theory.client_gradients(problem, theta)
    total, step = torch.zeros_like(g[0]), 1e-5
    for k in range(6):
        pieces = torch.split(g[k], [x.numel() for x in theta.values()])
        for sign in (1, -1):
            moved = {n: x + sign * step * d.view_as(x) for (n, x), d in zip(theta.items(), pieces, strict=True)}
            total += sign * p[k] * theory.client_gradients(problem, moved)[k] / (2 * step)
    assert torch.allclose(theory.drift_term(problem, theta), total, rtol=1e-6, atol=1e-9)


def test_the_drift_expansion_has_its_order(problem):
    errors = []
    for lr in (0.004, 0.002):
        before, after = theory.before_and_after(problem, Config(rounds=1, local_epochs=3, batch_size=0, lr=lr))
        move = (theory.flat(before) - theory.flat(after)) / (3 * lr)
        gradient = (theory.shares(problem)[:, None] * theory.client_gradients(problem, before)).sum(0)
        errors.append([(move - gradient).norm(), (move - gradient + lr * theory.drift_term(problem, before)).norm()])
    first, second = (float(errors[0][i] / errors[1][i]) for i in range(2))
    assert abs(first - 2) < 0.1 and abs(second - 4) < 0.3


def test_cohort_means_are_all_cohorts():
    v, p = normal((5, 3), stream(0, "v")), torch.tensor([0.1, 0.2, 0.3, 0.15, 0.25], dtype=torch.float64)
    plain, normalised = theory.cohort_means(v, p, 2)
    for row, (i, j) in enumerate(combinations(range(5), 2)):
        assert torch.allclose(plain[row], 5 / 2 * (p[i] * v[i] + p[j] * v[j]))
        assert torch.allclose(normalised[row], (p[i] * v[i] + p[j] * v[j]) / (p[i] + p[j]))
    assert torch.allclose(plain.mean(0), (p[:, None] * v).sum(0))
    equal, _ = theory.cohort_means(v, torch.full((5,), 0.2, dtype=torch.float64), 2)
    found = (equal - v.mean(0)).square().sum(1).mean()
    assert torch.allclose(found, theory.sampling_variance(v, 2))


@pytest.mark.parametrize("steps", [1, 3, 20])
def test_quadratic_fixed_point_is_where_the_iteration_stays(steps):
    a, b = 0.2 + normal((4, 2), stream(1, "a")).abs(), normal((4, 2), stream(1, "b"))
    p = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    rest = theory.quadratic_fixed_point(a, b, p, 0.3, steps)
    server, walks = theory.quadratic_paths(a, b, p, 0.3, steps, 1, rest)
    assert torch.allclose(server[1], rest, atol=1e-12) and walks.shape == (1, steps + 1, 4, 2)


def test_every_erratum_is_refuted_by_its_witness():
    found = [witness() for _, witness in chapter00.ERRATA]
    assert found[0] == (pytest.approx(0.2), 1.0)
    assert abs(found[1][0] - 1.0) > 0.1
    assert abs(found[2][0] - found[2][1]) > 0.1
    assert found[3][0] == 0.0
    assert len(chapter00.errata_table().splitlines()) == 1 + len(chapter00.ERRATA)


def test_what_the_chapter_says_about_the_stored_tables():
    def ends(name, method, split):
        cell = next(
            c for c in results.stored(name)["cells"] if c["method"] == method and c["varied"]["partition"] == split
        )
        return torch.tensor([run["metrics"]["accuracy"] for run in cell["runs"]])

    methods = "00_fedavg_methods"
    assert ends(methods, "fedavg", "iid").min() > ends(methods, "fedavg", "classes").max()
    assert torch.allclose(ends(methods, "fedsgd", "iid"), ends(methods, "fedsgd", "classes"), atol=0.005)
    assert ends(methods, "central", "iid").mean() > ends(methods, "fedavg", "iid").mean()
