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


@pytest.mark.parametrize(("lr", "steps"), [(0.3, 1), (0.3, 4), (0.9, 7), (1.3, 3)])
def test_the_descent_lemma_is_an_equality_for_one_curvature(lr, steps):
    left, right = descent.descent_lemma(lr, steps, seed=steps)
    assert float((left - right).abs().max()) < 1e-12 * max(1.0, float(left)) and float(left) > 0
    left, right = descent.descent_lemma(lr, steps, (2.0, 1.0, 0.5), seed=steps)
    assert float(left) < float(right) - 1e-6


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


def test_steps_below_and_beyond_two_over_l1():
    lrs = [0.1, 0.5, 0.99, 1.0, 1.01, 1.5]  # L1 = 2
    found = descent.step_sizes(lrs, 3)
    assert torch.allclose(found, torch.tensor([(1 - 2 * x) ** 6 for x in lrs]).double(), atol=1e-12)
    mixed = descent.step_sizes(lrs, 40, (2.0, 0.1))
    assert bool((mixed[:3] < 1).all()) and float(mixed[-1]) > 1


def test_the_variance_split():
    found = descent.variance_split()
    assert found.true == 0.25 and round(found.printed, 2) == 0.48
    assert abs(found.measured - found.true) < 4 * found.error < 0.01
    for d, share in ((1, 2 / math.pi), (2, math.pi / 4), (3, 8 / (3 * math.pi))):
        assert descent.variance_split(d, 1.0, 10).printed == pytest.approx(1 + share)


def test_the_factor_e_is_needed_and_enough():
    for steps in (1, 2, 5, 20):
        found = descent.many_steps(steps, 1e-3, 4)
        assert found.change == pytest.approx(16 * (1 - (1 - steps * 1e-3) ** 2), rel=1e-10)
        assert found.change <= found.repaired == pytest.approx(steps * found.printed)
        assert (found.change > found.printed) == (steps > 1)
    assert descent.many_steps(5, 1e-6).change / descent.many_steps(5, 1e-6).repaired > 1 - 1e-5


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


@pytest.mark.parametrize("printed", [False, True])
def test_the_change_is_zero_at_the_largest_step(printed):
    s, e = 40.0, 5
    most = descent.largest_mu(s, e, KNOWN, printed)
    for share in (0.0, 0.3, 0.9):
        lr = descent.largest_lr(s, share * most, e, KNOWN, printed)
        at, below, above = (
            descent.theorem_4_7(s, f * lr, share * most, e, KNOWN, printed) for f in (1.0, 0.99, 1.01)
        )  # fmt: skip
        assert lr > 0 and abs(at) < 1e-12 and below < -1e-4 and above > 1e-5
    assert descent.largest_lr(s, most, e, KNOWN, printed) == pytest.approx(0, abs=1e-12)
    assert descent.largest_lr(s, 1.01 * most, e, KNOWN, printed) < 0
    for lr in (1e-6, 1e-3, 0.1):  # and then no step is small enough
        assert descent.theorem_4_7(s, lr, 1.01 * most, e, KNOWN, printed) > 0
    assert descent.largest_mu(s, e, Constants(4.0)) == math.inf


def test_neither_rounds_nor_small_steps_remove_the_floor():
    g, mu, e = KNOWN.drift, 0.2, 5
    found = descent.telescoped(3.0, 10, 0.1, mu, e, KNOWN)
    share = 1 - 0.2
    expected = (3 / (50 * 0.1 * share), 4 * 0.1 * 0.3 / 2 / share, 2 * mu * g / share)
    assert tuple(found) == pytest.approx(expected) and found.total == pytest.approx(sum(expected))
    longer = descent.telescoped(3.0, 10**9, 0.1, mu, e, KNOWN)
    assert longer.start < 1e-6 and longer.noise == found.noise and longer.drift == found.drift
    smaller = [descent.telescoped(3.0, 10**12, lr, mu, e, KNOWN) for lr in (1e-2, 1e-4)]
    assert smaller[1].noise < smaller[0].noise / 50
    assert smaller[1].drift == pytest.approx(2 * mu * g, rel=1e-3) and smaller[1].drift > 2 * mu * g
    assert descent.telescoped(3.0, 10, 0.1, 0.0, e, KNOWN).drift == 0


def test_the_sum_of_rounds_is_the_telescoped_bound():
    """T rounds of the theorem with the mean slope at the bound use up just the gap."""
    rounds, lr, mu, e, gap = 7, 0.05, 1e-3, 5, 2.0
    bound = descent.telescoped(gap, rounds, lr, mu, e, KNOWN).total
    total = sum(descent.theorem_4_7(bound * e, lr, mu, e, KNOWN) for _ in range(rounds))
    assert total == pytest.approx(-gap)


def test_power_iteration_finds_the_largest_curvature():
    matrix, at = torch.diag(torch.tensor([1.0, -7.0, 3.0]).double()), torch.ones(2, 3).double()
    scale = torch.tensor([1.0, 0.5]).double()
    found = descent.largest_curvature(lambda w, c: c * (w @ matrix @ w) / 2, at, scale, iterations=60)
    assert found.tolist() == pytest.approx([7, 3.5], rel=1e-8)


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


def test_the_problem_is_heterogeneous_and_reproducible():
    again = drift.digits_problem(seed=1)
    assert torch.equal(again.alignment, PROBLEM.alignment) and torch.equal(again.starts[0], PROBLEM.starts[0])
    assert [PROBLEM.representation(k, s).shape for k, s in enumerate(PROBLEM.starts)] == [(40, 4), (40, 6), (40, 9)]
    assert len({len(s) for s in PROBLEM.starts}) == 3 and PROBLEM.alignment.dtype == torch.float64
    means = [c.views.mean((0, 1)) for c in PROBLEM.clients]
    assert float((means[0] - means[1]).norm()) > 1 < float((means[1] - means[2]).norm())  # other classes
    for client in PROBLEM.clients:
        assert float((client.views[0] - client.views[1]).std()) == pytest.approx(0.3 * math.sqrt(2), rel=0.05)


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


@pytest.mark.parametrize("made", [lambda: RUN, lambda: NOISY], ids=["full", "noisy"])
def test_both_drift_bounds_hold_in_every_round(made):
    run = made()
    assert bool((run.trace.amax(1) <= run.trace_bound).all())
    links = [run.cka.abs().amax(1), *run.cka_bounds.values()]
    assert len(links) == 4 and list(run.cka_bounds) == ["unit kernels", "kernels", "representations"]
    for smaller, larger in zip(links, links[1:], strict=False):
        assert bool((smaller <= larger * (1 + 1e-12)).all())
    one = run.steps * run.lr * run.constants().gradient
    assert bool((run.moved <= run.lengths + 1e-12).all()) and bool((run.lengths <= one + 1e-12).all())
    assert bool((run.trace_bound <= run.paper_bound() * (1 + 1e-12)).all())
    assert run.paper_bound() == pytest.approx(run.steps * run.paper_bound(printed=True))
    assert torch.allclose(run.trace_bound, 2 * run.norm**3 * 1600 * (run.weights * run.delta).sum(1))
    last = run.cka_bounds["representations"]
    assert torch.allclose(last, 4 * run.norm * 40 * (run.weights * run.delta).sum(1) / run.centred)


def test_the_bounds_are_orders_of_magnitude_apart():
    jump = RUN.mu * RUN.cka.abs().amax(1)
    assert bool((RUN.mu * RUN.cka_bounds["unit kernels"] < 200 * jump).all())
    assert bool((RUN.trace_bound > 1e4 * jump).all()) and RUN.paper_bound() > 1e6 * float(jump.max())
    smooth = drift.smoothness(PROBLEM, RUN, 5)
    known = RUN.constants(float(smooth.max()))
    assert bool((RUN.theorem(smooth) > 1e5).all()) and bool((RUN.swapped[0] < RUN.before[0]).all())
    assert descent.largest_mu(float(RUN.slopes.max()), RUN.steps, known) < 1e-5  # the theorem allows no mu of use
    assert descent.largest_lr(float(RUN.slopes.max()), RUN.mu, RUN.steps, known) < 0


def test_the_local_lemma_holds_with_measured_smoothness():
    for lr in (0.01, 0.2):
        run = drift.run(PROBLEM, 4, lr=lr)
        smooth = drift.smoothness(PROBLEM, run)
        bound = run.lemma(smooth)
        assert bool((run.trained - run.before <= bound).all()) and bool(((bound < 0) == (lr < 2 / smooth)).all())
        assert torch.allclose(bound, -(lr - smooth * lr**2 / 2) * run.slopes)  # no noise
    assert 0 < int((bound < 0).sum()) < bound.numel()


def test_noise_enters_the_lemma_and_drift_the_theorem():
    smooth = torch.full_like(NOISY.slopes, 3.0)
    by_hand = -(0.2 - 1.5 * 0.04) * NOISY.slopes + 1.5 * 0.04 * 4 * NOISY.variance
    assert torch.allclose(NOISY.lemma(smooth), by_hand) and bool((NOISY.variance > 0).all())
    drifted = 2 * 0.5 * 0.2 * 4 * NOISY.constants().drift
    assert torch.allclose(NOISY.theorem(smooth) - by_hand, torch.full_like(by_hand, drifted))


def test_the_path_leads_from_round_to_round():
    for t, path in enumerate(NOISY.paths):
        for k, weights in enumerate(path):
            assert len(weights) == 5 and torch.equal(weights[0], NOISY.states[t].thetas[k])
            assert torch.equal(weights[-1], NOISY.states[t + 1].thetas[k])
            length = (weights[1:] - weights[:-1]).norm(dim=1).sum()
            assert float(length) == pytest.approx(float(NOISY.lengths[t, k]))


def test_the_table_of_constants():
    smooth = torch.arange(15.0).double().view(5, 3) + 1
    *rows, last = (line.split("  ") for line in drift.constants_table(NOISY, smooth).split("\n"))
    rows = [[x.strip() for x in row if x] for row in rows]
    assert rows[0] == ["largest", "round 1", "round 2", "round 5", "whole run"]
    words = [f"{float(x):.3g}" for x in (*NOISY.norm[[0, 1, 4]], NOISY.norm.max())]
    assert rows[1] == ["R, longest representation", *words]
    assert [row[0][:2] for row in rows[1:]] == ["R,", "P,", "L2", "si", "L1", "L1", "L1"]
    assert rows[4][-1] == f"{float(NOISY.variance.max()):.3g}" and rows[-1][1:] == ["3", "6", "15", "15"]
    assert f"= {NOISY.constants().drift:.3g}; 2 / L1 = 0.13; step size 0.2" in "  ".join(last)
    short = drift.constants_table(drift.run(PROBLEM, 1, 1), smooth[:1])
    assert short.split("\n")[0].split("  ")[-1] == "whole run" and "round 2" not in short


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
