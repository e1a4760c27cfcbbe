"""Chapter 2's lemmas on quadratics, and the constants of a real run against a plain loop and a dense Hessian."""

import math

import pytest
import torch

from fedbook.lab import chapter02_descent as descent
from fedbook.lab import chapter02_drift as drift
from fedbook.lab.chapter02_descent import Constants
from fedbook.learning.online import byol_loss
from fedbook.randomness import stream


@pytest.fixture(scope="module", autouse=True)
def trained_once():
    global PROBLEM, RUN, NOISY  # not while tests are collected
    PROBLEM = drift.digits_problem(seed=1)
    RUN = drift.run(PROBLEM, 8)
    NOISY = drift.run(PROBLEM, 5, 4, batch=10, weights=(1.0, 2.0, 5.0), seed=3)


KNOWN = Constants(4.0, 0.3, 0.5, 0.7, 1.5, 6)


# --- quadratics


def test_noise_adds_half_l1_lr_squared_sigma_squared():
    for kw in ({}, {"lr": 0.8, "steps": 1, "variance": 3.0, "seed": 2}, {"curvatures": (2.0, 1.0, 0.5)}):
        found = descent.noisy_descent(**kw)
        assert abs(found.mean - found.exact) < 4 * found.spread < 0.05
        if "curvatures" in kw:
            assert found.mean < found.lemma - 20 * found.error
        else:
            assert abs(found.mean - found.lemma) < 4 * found.error
    one, still = (descent.noisy_descent(0.4, 1, v, seed=5) for v in (0.7, 0.0))
    assert one.exact - still.exact == pytest.approx(2.0 * 0.4**2 * 0.7 / 2, rel=1e-12)  # larger by just this
    assert one.lemma - still.lemma == pytest.approx(2.0 * 0.4**2 * 0.7 / 2, rel=1e-12)
    assert still.mean == pytest.approx(still.exact, rel=1e-12) and still.spread < 1e-12


# --- the theorem


def test_lemmas_and_theorem_are_their_formulas():
    s, lr, mu, e = 3.0, 0.1, 0.2, 5
    g = 0.5 * 0.7 * 1.5**3 * 36
    assert KNOWN.drift == pytest.approx(g)
    assert descent.lemma_4_5(s, lr, e, KNOWN) == pytest.approx(-(0.1 - 0.02) * 3 + 0.02 * 5 * 0.3)
    assert descent.lemma_4_6(mu, lr, 1, KNOWN) == pytest.approx(2 * mu * lr * g)
    whole = descent.lemma_4_5(s, lr, e, KNOWN) + descent.lemma_4_6(mu, lr, e, KNOWN)
    assert descent.theorem_4_7(s, lr, mu, e, KNOWN) == pytest.approx(whole)
    printed = descent.theorem_4_7(s, lr, mu, e, KNOWN, printed=True)
    assert whole - printed == pytest.approx(4 * 2 * mu * lr * g)
    many = descent.theorem_4_7(torch.tensor([s, 2 * s]).double(), lr, mu, e, KNOWN)
    assert float(many[0]) == pytest.approx(whole) and many.shape == (2,)


def test_smoothness_is_the_largest_curvature_on_the_way():
    """Against dense Hessians at all weights that client 3 passes in the second round."""
    run = drift.run(PROBLEM, 2, 2)
    found = drift.smoothness(PROBLEM, run, iterations=60)
    state, path = run.states[1], run.paths[1][2]
    assert found.shape == (2, 3) and path.shape == (3, len(PROBLEM.starts[2]))
    curvatures = [
        torch.linalg.eigvalsh(torch.func.hessian(lambda w: PROBLEM.loss(2, w, state.targets[2], state.mean, 0.5))(x))
        for x in path
    ]
    assert float(found[1, 2]) == pytest.approx(max(float(c.abs().max()) for c in curvatures), rel=1e-3)
    assert bool((drift.smoothness(PROBLEM, run, iterations=3) <= found * (1 + 1e-9)).all())  # from below


# --- the real run


def cka(a, kernel):
    """By the definition, with the centring matrix."""
    h = torch.eye(len(a), dtype=a.dtype) - 1 / len(a)
    k, m = h @ a @ a.T @ h, h @ kernel @ h
    return (k * m).sum() / (k.norm() * m.norm())


def plain(problem, rounds, steps, lr, mu, batch, weights, seed):
    """The run again, by one autograd call a step."""
    w = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    thetas, targets = list(problem.starts), list(problem.starts)
    for t in range(rounds):
        kernels = [problem.representation(k, theta) for k, theta in enumerate(thetas)]
        mean = sum(x * a @ a.T for x, a in zip(w, kernels, strict=True))
        rng = stream(seed, "drift batches", t)
        for k, client in enumerate(problem.clients):
            theta, n = thetas[k], client.views.shape[1]
            for _ in range(steps):
                rows, leaf = rng.permutation(n)[: batch or n], theta.clone().requires_grad_()
                loss = mu * (1 - cka(client.outputs(leaf, problem.alignment)[1], mean))
                for i in (0, 1):
                    prediction = client.outputs(leaf, client.views[i, rows])[1]
                    aim = client.outputs(targets[k], client.views[1 - i, rows])[0]
                    loss = loss + byol_loss(prediction, aim) / 2
                theta = theta - lr * torch.autograd.grad(loss, leaf)[0]
            thetas[k] = theta
        targets = [drift.MOMENTUM * x + (1 - drift.MOMENTUM) * y for x, y in zip(targets, thetas, strict=True)]
    return thetas, targets


@pytest.mark.parametrize(("batch", "weights"), [(0, (1.0, 1.0, 1.0)), (7, (0.5, 0.2, 0.1))])
def test_the_run_is_the_algorithm(batch, weights):
    found = drift.run(PROBLEM, 3, 2, 0.1, 0.4, batch, weights, seed=2)
    thetas, targets = plain(PROBLEM, 3, 2, 0.1, 0.4, batch, weights, 2)
    for k in range(3):
        assert float((found.states[-1].thetas[k] - thetas[k]).abs().max()) < 1e-12
        assert float((found.states[-1].targets[k] - targets[k]).abs().max()) < 1e-12
        assert float((thetas[k] - PROBLEM.starts[k]).norm()) > 0.1


@pytest.mark.parametrize("made", [lambda: RUN, lambda: NOISY], ids=["full", "noisy"])
def test_what_is_recorded_is_what_happened(made):
    run = made()
    w = run.weights
    assert float(w.sum()) == pytest.approx(1)
    for t in range(len(run.before)):
        old, new = run.states[t : t + 2]
        a, b = ([PROBLEM.representation(k, x) for k, x in enumerate(s.thetas)] for s in (old, new))
        kbar = [sum(x * m @ m.T for x, m in zip(w, s, strict=True)) for s in (a, b)]
        for k in range(3):
            loss = [
                PROBLEM.clients[k].ssl(x, old.targets[k], PROBLEM.clients[k].views) + run.mu * (1 - cka(r[k], kbar[i]))
                for x, r, i in ((old.thetas[k], a, 0), (new.thetas[k], b, 0), (new.thetas[k], b, 1))
            ]
            for value, recorded in zip(loss, (run.before, run.trained, run.swapped), strict=True):
                assert float(recorded[t, k]) == pytest.approx(float(value), abs=1e-12)
            change = torch.trace(b[k] @ b[k].T @ (kbar[1] - kbar[0]))
            assert float(run.trace[t, k]) == pytest.approx(abs(float(change)), rel=1e-9)
            moved = max(float((x - y).norm()) for x, y in zip(a[k], b[k], strict=True))
            assert float(run.delta[t, k]) == pytest.approx(moved)
            assert float(run.moved[t, k]) == pytest.approx(float((new.thetas[k] - old.thetas[k]).norm()))
        assert float(run.norm[t]) == pytest.approx(max(float(x.norm()) for m in a + b for x in m))
    assert float((run.swapped - run.trained + run.mu * run.cka).abs().max()) < 1e-12  # the swap moves CKA only
    assert run.renewed.shape == (len(run.before) - 1, 3) and float(run.renewed.abs().max()) > 1e-4
    assert bool((run.swapped[-1] < run.before[0] / 2).all())  # it learns


def test_slopes_and_variance_are_those_of_all_batches():
    """One step: the exact gradient by autograd, and E |g - grad L|^2 by drawing batches."""
    batch = 10
    run = drift.run(PROBLEM, 1, 1, batch=batch, seed=3)
    state = run.states[0]
    for k, client in enumerate(PROBLEM.clients):
        theta = PROBLEM.starts[k]
        exact = torch.func.grad(lambda w, k=k: PROBLEM.loss(k, w, state.targets[k], state.mean, 0.5))(theta)
        assert float(run.slopes[0, k]) == pytest.approx(float(exact.square().sum()), rel=1e-10)
        each = torch.func.vmap(torch.func.grad(lambda w, v, c=client: c.ssl(w, w.detach(), v[:, None])), (None, 1))
        own, rng = each(theta, client.views), stream(0, "batches")
        picks = torch.stack([torch.from_numpy(rng.permutation(len(own))[:batch]) for _ in range(2000)])
        squares = (own[picks].mean(1) - own.mean(0)).square().sum(1)
        assert abs(float(squares.mean() - run.variance[0, k])) < 4 * float(squares.std()) / math.sqrt(2000)
    assert float(RUN.variance.max()) == 0 and float(RUN.constants().variance) == 0
    assert torch.allclose(run.lengths, run.lr * run.steepest) and torch.allclose(run.moved, run.lengths)
