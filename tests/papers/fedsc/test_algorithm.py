"""FedSC against a plain loop, its reductions, its books, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedbook.experiment import plan
from fedbook.federation.local import epochs
from fedbook.federation.loop import Rounds, run
from fedbook.federation.population import Federation
from fedbook.federation.tree import tree_map
from fedbook.papers.description import own_settings
from fedbook.papers.fedsc import METHODS, PAPER, Config, FedSC, run_on
from fedbook.papers.fedsc.matrix_privacy import matrix_epsilon
from fedbook.papers.fedsc.problem import PretrainingSettings, pretraining_problem
from fedbook.papers.fedsc.spectral import norm_clip
from fedbook.randomness import stream

TINY = PretrainingSettings(
    partition="classes", clients=5, classes_per_client=2, train_samples=120, test_samples=60, bank=6, width=6,
    projector="linear",
)  # fmt: skip


@pytest.fixture(scope="module")
def problem():
    return pretraining_problem("digits", TINY, (0, 1), dtype=torch.float64)


def start(problem, seeds=(0, 1), shares=True, name="fedsc", federation=None, observe=None, how=None, **changes):
    defaults = {"rounds": 4, "batch_size": 10, "local_epochs": 2, "lr": 0.05, "share_from": 0}
    config = Config(**(defaults | changes))
    algorithm = FedSC(config, problem.encoder, problem.views, name, shares=shares)
    federation = federation or problem.federation()
    return run_once(algorithm, federation, config, seeds, observe, how)


def run_once(algorithm, federation, config, seeds, observe=None, how=None, **more):
    return run(Rounds(algorithm, federation, config.rounds, seeds=seeds, observe=observe, how=how, **more))


def far(a, b):
    """The largest difference of two sets of parameters."""
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def one(rounds, slot=0):
    return tree_map(lambda x: x[slot], rounds.server["theta"])


# --- Algorithm 1, literally


def plain_fedsc(problem, config, seed, cohorts, noise):
    """Algorithm 1 with loops over clients, batches and samples; the random numbers are those of the package."""
    part, bank, K = problem.partitions[0 if seed == 0 else 1], problem.bank, problem.views.bank
    rows = [part.table[j, : part.sizes[j]] for j in range(part.num_clients)]
    q = part.sizes.double() / part.sizes.sum()
    theta = problem.encoder.init(stream(seed, "init"), torch.float64)
    tables, aggregate = {}, None
    for t in range(config.rounds):
        trainers = cohorts[t]
        shared = t >= config.share_from
        if config.shares(t):
            senders = range(part.num_clients) if t == config.share_from else trainers
            for j in senders:  # Algorithm 2
                choice = stream(seed, "matrix views", t, j).integers(0, K, (1, len(rows[j]), config.matrix_views))
                S = torch.zeros(problem.encoder.width, problem.encoder.width, dtype=torch.float64)
                for i, row in enumerate(rows[j]):
                    for v in range(config.matrix_views):
                        z = problem.encoder.apply(theta, bank[row, choice[0, i, v]][None])[0]
                        z = z * min(1.0, float(np.sqrt(config.mu) / z.norm()))
                        S = S + torch.outer(z, z) / (len(rows[j]) * config.matrix_views)
                if config.sigma:
                    N = torch.from_numpy(stream(seed, noise, t, j).standard_normal(S.shape))
                    S = S + config.sigma * N
                    S = (S + S.T) / 2 if config.noise == "symmetric" else S
                tables[j] = S.detach()
            aggregate = sum(q[j] * tables[j] for j in range(part.num_clients))
        trained = {}
        for j in trainers:
            alpha = 1.0
            if shared:
                others = sum(q[i] * tables[i] for i in range(part.num_clients) if i != j) / (1 - q[j])
                line20 = (aggregate - q[j] * tables[j]) / (1 - q[j])
                assert float((others - line20).abs().max()) < 1e-12
                falling = 1 - (1 - config.coefficient_end) * t / (config.rounds - 1)
                alpha = float(q[j]) if config.coefficient == "q" else falling
            w = {name: p.clone().requires_grad_() for name, p in theta.items()}
            optimiser = torch.optim.SGD(w.values(), config.rate(t), config.momentum, weight_decay=config.weight_decay)
            data = problem.federation().groups["all"].rows(torch.tensor([seed]), torch.tensor([j]))
            batches = epochs(data, [stream(seed, "batches", t, j)], config.local_epochs, config.batch_size)
            choice = stream(seed, "views", t, j).integers(0, K, (*batches.index[:, 0].shape, 2 * config.pairs))
            for e in range(len(batches.index)):
                real = batches.real[e, 0]
                index, views = batches.index[e, 0][real], torch.from_numpy(choice[e])[real]
                B, V = len(index), config.pairs
                plus, R = 0.0, 0.0
                z = [
                    [problem.encoder.apply(w, bank[i, v][None])[0] for v in row]
                    for i, row in zip(index, views, strict=True)
                ]
                z = [[x * torch.clamp(np.sqrt(config.mu) / x.norm(), max=1.0) for x in row] for row in z]
                for b in range(B):
                    for v in range(V):
                        plus = plus + (torch.outer(z[b][v], z[b][v + V]) + torch.outer(z[b][v + V], z[b][v])) / (
                            2 * B * V
                        )
                    for v in range(2 * V):
                        R = R + torch.outer(z[b][v], z[b][v]) / (2 * B * V)
                loss = -torch.trace(plus) + alpha / 2 * (R * R).sum()
                if alpha < 1:
                    loss = loss + (1 - alpha) * torch.trace(R @ others)
                optimiser.zero_grad()
                loss.backward()
                norm = torch.cat([p.grad.flatten() for p in w.values()]).norm()
                for p in w.values():
                    p.grad.mul_(min(1.0, config.max_norm / float(norm)))
                optimiser.step()
            trained[j] = {name: p.detach() for name, p in w.items()}
        total = sum(float(q[j]) for j in trainers)
        theta = {name: sum(float(q[j]) / total * trained[j][name] for j in trainers) for name in theta}
    return theta


@pytest.mark.parametrize("changes", [
    {}, {"coefficient": "q", "lr": 0.02}, {"cohort": 2, "sigma": 0.05}, {"sigma": 0.05, "noise": "paper", "pairs": 2},
    {"share_from": 1, "share_every": 2, "cohort": 3},
])  # fmt: skip
def test_algorithm_1_is_a_plain_loop(problem, changes):
    seen = []

    def watch(exchange, _):
        if exchange.name == "train":
            seen.append(exchange.cohort)

    rounds = start(problem, rounds=3, local_epochs=1, batch_size=7, observe=watch, **changes)
    for slot, seed in enumerate((0, 1)):
        config = rounds.algorithm.config
        cohorts, noise = (
            [cohort.members(slot).tolist() for cohort in seen],
            f"matrix noise of {rounds.noise_keys[slot]}",
        )
        expected = plain_fedsc(problem, config, seed, cohorts, noise)
        assert far(one(rounds, slot), expected) < 1e-10


# --- reductions


def whole(problem, **changes):
    """Full batch, one step, the whole bank in order: nothing is random but the start.

    The step size is a stable one: at 0.05 descent is not, and rounding grows tenfold every other round.
    """
    still = {
        "batch_size": 0, "local_epochs": 1, "pairs": problem.views.bank // 2, "matrix_views": problem.views.bank,
        "momentum": 0.0, "weight_decay": 0.0, "max_norm": 0.0, "lr_schedule": "constant", "rounds": 50, "lr": 0.02,
    }  # fmt: skip
    return still | changes


def test_full_batches_and_one_step_are_centralised_descent(problem):
    pooled = start(problem, shares=False, federation=problem.federation(pooled=True), **whole(problem))
    aligned = start(problem, **whole(problem, coefficient="q"))
    assert far(aligned.server["theta"], pooled.server["theta"]) < 1e-12
    moved = problem.encoder.init(stream(0, "init"), torch.float64)
    assert far(one(aligned), moved) > 1e-2
    for broken in (
        {"average": "paper"},  # sizes are unequal
        {"coefficient": "one"},
        {"share_every": 2},  # the matrix of the round before
        {"coefficient_end": 0.5, "coefficient": "schedule"},
    ):
        other = start(problem, **whole(problem, **({"coefficient": "q"} | broken)))
        assert far(other.server["theta"], pooled.server["theta"]) > 1e-6, broken


def test_alpha_one_is_fedavg_bit_for_bit(problem):
    for changes in ({}, {"cohort": 2}, {"sigma": 0.3}):
        sharing = start(problem, coefficient="one", **changes)
        plain = start(problem, shares=False, name="fedavg-sc", **changes)
        assert all(torch.equal(sharing.server["theta"][n], plain.server["theta"][n]) for n in plain.server["theta"])


def test_one_client_is_centralised_training(problem):
    """q = 1: nobody else is there, whatever alpha says."""
    pooled = problem.federation(pooled=True)
    alone = start(problem, federation=pooled, coefficient="q")
    plain = start(problem, shares=False, federation=pooled)
    assert far(alone.server["theta"], plain.server["theta"]) == 0
    assert far(start(problem, federation=pooled).server["theta"], plain.server["theta"]) == 0


# --- the books


def test_bytes_are_encoders_and_triangles(problem):
    encoder = 8 * problem.encoder.size
    triangle, full = 8 * 6 * 7 // 2, 8 * 36
    rounds = start(problem, rounds=3, cohort=2, seeds=(0, 1))
    first, later = rounds.history[0], rounds.history[1]
    assert first.bytes_up == [2 * encoder + 5 * triangle] * 2 and later.bytes_up == [2 * (encoder + triangle)] * 2
    assert first.bytes_down == [5 * encoder + 2 * triangle] * 2 and later.bytes_down == [2 * (encoder + triangle)] * 2
    noisy = start(problem, rounds=2, sigma=0.1, noise="paper").history[1]
    assert noisy.bytes_up == [5 * (encoder + full)] * 2
    plain = start(problem, rounds=2, shares=False).history[1]
    assert plain.bytes_up == plain.bytes_down == [5 * encoder] * 2


def test_every_clients_own_count_and_size_is_accounted(problem):
    rounds = start(problem, rounds=6, cohort=2, sigma=0.2, delta=1e-3)
    for slot in range(2):
        sizes, counts = problem.partitions[slot].sizes.tolist(), rounds.server["uploads"][slot].tolist()
        worst = max(matrix_epsilon(0.2, 4.0, n, T, 1e-3) for n, T in zip(sizes, counts, strict=True))
        report = rounds.privacy[slot].report(1e-3)
        assert report["epsilon_of_releases"] == pytest.approx(worst, rel=1e-9)
        assert report["epsilon"] is None and any("encoders" in what for what in report["in_clear"])
    assert run_on(problem, "fedsc", settings(), (0, 1)).privacy[0].report(1e-3)["epsilon"] is None


def test_a_budget_gives_the_noise_that_the_smallest_client_needs():
    """Each federation its own: what a run costs must not depend on the seeds beside it."""
    uneven = replace(TINY, partition="dirichlet", alpha=1.0, train_samples=200)
    images = pretraining_problem("digits", uneven, (0, 1), dtype=torch.float64)
    smallest = [int(p.sizes.min()) for p in images.partitions]
    assert smallest[0] != smallest[1]
    rounds = run_on(images, "fedsc", settings(epsilon=8.0, rounds=5, share_from=1, share_every=2), (0, 1))
    assert rounds.algorithm.config.sharing_rounds == 2
    run(rounds)
    for slot, n in enumerate(smallest):
        assert matrix_epsilon(float(rounds.server["sigma"][slot]), 4.0, n, 2, 1e-2) == pytest.approx(8.0, rel=1e-6)
        assert rounds.privacy[slot].report(1e-2)["epsilon_of_releases"] == pytest.approx(8.0, rel=1e-6)
    part = Federation({"bank": images.bank}, images.partitions[1])
    config = own_settings(Config, settings(epsilon=8.0, rounds=5, share_from=1, share_every=2))
    alone = run_once(FedSC(config, images.encoder, images.views), part, config, (1,))
    assert far(one(alone), one(rounds, 1)) < 1e-12
    paper = replace(config, accountant="paper").noise_for(smallest[0])
    assert matrix_epsilon(paper, 4.0, smallest[0], 2, 1e-2, accountant="paper") == pytest.approx(8.0, rel=1e-6)
    assert paper != float(rounds.server["sigma"][0])


def test_a_run_that_diverges_ends(problem):
    for method, changes in (("fedsc", {}), ("fedavg-sc", {}), ("local-sc", {}), ("fedca", {}), ("fedavg-byol", {})):
        wild = settings(lr=1e30, max_norm=0.0, clip_in_loss=False, mu=4.0, rounds=3, **changes)
        rounds = run(run_on(problem, method, wild, (0, 1)))
        assert rounds.diverged or not np.isfinite(np.array(rounds.history[-1].metrics["knn"], dtype=float)).all(), (
            method
        )


def test_one_odd_representation_ends_no_run_whose_matrices_are_private(problem, monkeypatch):
    plain = FedSC.represent

    def odd(self, theta, x, how):
        z = plain(self, theta, x, how).clone()
        z[0, 0] = torch.tensor([float("inf"), *[0.0] * (z.shape[-1] - 1)])
        return z

    monkeypatch.setattr(FedSC, "represent", odd)
    assert start(problem, rounds=1, share_from=0, lr=0.0).diverged
    rounds = start(problem, rounds=1, share_from=0, lr=0.0, sigma=0.1)
    assert not rounds.diverged and bool(rounds.server["matrix"].isfinite().all())


# --- how it is computed must not matter


def test_the_loop_is_the_batch(problem):
    changes = {"cohort": 3, "sigma": 0.1}
    both, loop = start(problem, **changes), start(problem, how="loop", **changes)
    assert far(loop.server["theta"], both.server["theta"]) < 1e-12


# --- all methods, metrics, refusals


def settings(**changes):
    return PAPER.defaults() | {"rounds": 2, "batch_size": 20, "local_epochs": 1, "evaluate_every": 1} | changes


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_and_is_judged(problem, method):
    rounds = run(run_on(problem, method, settings(), (0, 1)))
    metrics = rounds.history[-1].metrics
    assert {"knn", "probe", "loss", "probe_few"} <= set(metrics)
    assert all(0.1 < v <= 1 for v in metrics["knn"] + metrics["probe"])
    spectral = method in ("fedsc", "fedavg-sc", "centralized-sc", "local-sc", "random-encoder")
    assert all((v is not None) == spectral for v in metrics["loss"])
    report = rounds.privacy[0].report(1e-2)
    quiet = method in ("local-sc", "random-encoder", "raw-pixels")
    assert report["epsilon"] == (0.0 if quiet else None)


def test_a_run_that_never_shares_is_refused():
    with pytest.raises(ValueError, match="^share_from: got 2; allowed is below rounds, 2$"):
        plan(PAPER, "fedsc", "digits", "quick", settings(share_from=2, epsilon=3.0)).rounds()


@pytest.mark.parametrize("method", METHODS)
def test_running_statistics_are_never_trained_as_weights(method):
    heads = settings(projector="batch_norm", rounds=1, train_samples=60, width=4)
    if method in ("fedsc", "fedavg-sc", "centralized-sc", "local-sc", "fedx", "fedca"):
        with pytest.raises(ValueError, match="^projector: got 'batch_norm'"):
            plan(PAPER, method, "digits", "quick", heads).rounds()
        return
    rounds = plan(PAPER, method, "digits", "quick", heads | {"lr": 0.0, "weight_decay": 0.0}).rounds()
    assert rounds.algorithm.encoder.normalised


def test_the_judged_loss_is_that_of_the_bank(problem):
    theta = problem.encoder.init(stream(3, "init"), torch.float64)
    found = problem.objective(theta, 1, 2.0, gradient=True)
    bank, part = problem.bank, problem.partitions[1]
    z = norm_clip(problem.encoder.apply(theta, bank.flatten(0, 1)), 2.0).unflatten(0, bank.shape[:2])
    R = torch.einsum("nka,nkb->ab", z, z) / z.shape[0] / z.shape[1]
    loss = 0.5 * (R * R).sum() - z.mean(1).square().sum(1).mean()
    own = 0.0
    for j in range(part.num_clients):
        mine = z[part.table[j, : part.sizes[j]]]
        Rj = torch.einsum("nka,nkb->ab", mine, mine) / mine.shape[0] / mine.shape[1]
        own += len(mine) / len(z) * float(0.5 * (Rj * Rj).sum() - mine.mean(1).square().sum(1).mean())
    assert found["loss"] == pytest.approx(float(loss), abs=1e-12)
    assert found["gap"] == pytest.approx(own - float(loss), abs=1e-12)
    leaves = {name: p.clone().requires_grad_() for name, p in theta.items()}
    z = problem.encoder.apply(leaves, bank.flatten(0, 1))
    z = (z * (2**0.5 / z.norm(dim=1, keepdim=True)).clamp(max=1)).unflatten(0, bank.shape[:2])
    R = torch.einsum("nka,nkb->ab", z, z) / z.shape[0] / z.shape[1]
    (0.5 * (R * R).sum() - z.mean(1).square().sum(1).mean()).backward()
    assert found["gradient"] == pytest.approx(sum(float(p.grad.square().sum()) for p in leaves.values()), rel=1e-9)


@pytest.mark.parametrize("name, clients, classes", [("svhn", 5, 2), ("cifar10", 10, 1), ("cifar100", 20, 5)])
def test_the_papers_profile_is_the_papers(name, clients, classes):
    s = plan(PAPER, "fedsc", name, "paper").settings()
    big = name != "cifar100"
    assert (s["clients"], s["classes_per_client"], s["rounds"], s["local_epochs"]) == (clients, classes, 200, 5)
    assert (s["width"], s["batch_size"], s["pairs"], s["matrix_views"]) == (512, 512 if big else 256, 2, 5)
    assert s["model"] == ("fixup_resnet20_x8" if big else "fixup_resnet50") and s["bank"] == 0
    assert (s["coefficient"], s["coefficient_end"], s["mu"]) == ("schedule", 0.2, {5: 2.0, 10: 4.0, 20: 5.0}[clients])
