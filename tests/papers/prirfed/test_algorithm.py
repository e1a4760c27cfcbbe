"""PriRFed: the round against a plain loop, its reductions, what it releases, what Option 2 reports."""

import math

import numpy as np
import pytest
import torch

from fedbook.federation import Federation, Rounds, run
from fedbook.geometry import SPD, Hyperboloid, frechet_mean, stepped, tangent_mean, within_range
from fedbook.papers.prirfed import METHODS, Config, PriRFed
from fedbook.papers.prirfed.losses import Eigenvector, SquaredDistance
from fedbook.partition import Partition
from fedbook.privacy.gaussian import exact_epsilon
from fedbook.randomness import normal, stream

INF = math.inf


def records_of(word, sizes, seed=0):
    """Records of agents of those sizes, one after another, and a loss."""
    n, rng = sum(sizes), stream(seed, word)
    if word == "sphere":
        z = normal((n, 5), rng) * torch.tensor([2.0, 1, 1, 1, 1])
        return Eigenvector(), {"z": z, "s": z.square().sum(1)}
    manifold, size = {"spd": (SPD(), 2), "spd3": (SPD(), 3), "hyperboloid": (Hyperboloid(), 3)}[word]
    return SquaredDistance(manifold), {"y": manifold.random_point(size, rng, (n,))}


def federation_of(samples, sizes):
    starts = np.cumsum([0, *sizes])
    return Federation(
        samples, Partition.from_lists([list(range(a, b)) for a, b in zip(starts, starts[1:], strict=False)])
    )


def start_of(loss, samples, seeds):
    size = next(iter(samples.values())).shape[-1]
    return torch.stack([loss.manifold.random_point(size, stream(s, "start")) for s in seeds])


def rounds_of(word, sizes, method="dp-rsgd", total=3, seeds=(0,), options=None, **settings):
    loss, samples = records_of(word, sizes)
    config = Config(**{"agents_per_round": 0, "lr": 0.1, "inner_steps": 3, "clip_norm": 1.0} | settings)
    algorithm = PriRFed(config, loss, start_of(loss, samples, seeds), method)
    federation = federation_of(samples, [sum(sizes)] if METHODS[method].pooled else sizes)
    return Rounds(algorithm, federation, total, seeds=seeds, delta=1e-5, **(options or {}))


def result_of(*args, **kwargs):
    return run(rounds_of(*args, **kwargs)).server["x"]


def noise_of(*args, **kwargs):
    """The purpose of that run's noise."""
    return f"noise of {rounds_of(*args, **kwargs).noise_keys[0]}"


SIZES = (6, 4, 5)


# --- an oracle that shares nothing but the manifolds' formulas: records one by one, agents one by one


def clip(manifold, x, g, bound):
    return g * min(1.0, bound / max(float(manifold.norm(x, g)), 1e-300))


def one_gradient(loss, x, z):
    if isinstance(loss, Eigenvector):
        a = z @ x
        return -2 * a * (z - a * x)
    return -2 * loss.manifold.log(x, z)


def plain_run(word, sizes, solver, total, c, sigma, noise_word, seed=0):
    """Algorithms 1, 2 and 3 as the paper prints them."""
    loss, samples = records_of(word, sizes)
    manifold, data = loss.manifold, samples["z" if "z" in samples else "y"]
    x = start_of(loss, samples, (seed,))[0]
    starts = np.cumsum([0, *sizes])
    for t in range(total):
        points = []
        alpha = c.lr / (t + 1) ** c.lr_power
        for i, n in enumerate(sizes):
            own = data[starts[i] : starts[i + 1]]
            rng, drawing = stream(seed, noise_word, t, i), stream(seed, "records", t, i)
            count = c.local_steps * (c.inner_steps if solver == "rsvrg" else 1)
            noise = normal((count, manifold.noise_size(x)), rng) * sigma(n)
            y = x
            if solver == "rsgd":
                batches = (
                    [drawing.choice(n, c.batch_size, replace=False) for _ in range(count)] if c.batch_size else None
                )
                for k in range(count):
                    batch = own if batches is None else own[batches[k]]
                    mean = sum(clip(manifold, y, one_gradient(loss, y, z), c.clip_norm) for z in batch) / len(batch)
                    y = manifold.exp(y, -alpha * (mean + manifold.tangent_gaussian(y, noise[k])))
            else:
                picks = drawing.integers(n, size=(c.local_steps, c.inner_steps))
                for k in range(c.local_steps):
                    tilde = y
                    full = sum(clip(manifold, tilde, one_gradient(loss, tilde, z), c.clip_gradient) for z in own) / n
                    for j in range(c.inner_steps):
                        z = own[picks[k, j]]
                        control = clip(manifold, tilde, one_gradient(loss, tilde, z), c.clip_norm) - full
                        eta = clip(manifold, y, one_gradient(loss, y, z), c.clip_norm)
                        eta = eta - manifold.transport(tilde, y, control)
                        eta = eta + manifold.tangent_gaussian(y, noise[k * c.inner_steps + j])
                        y = manifold.exp(y, -alpha * eta)
            points.append(y)
        x = tangent_mean(manifold, x, torch.stack(points), torch.tensor(sizes, dtype=torch.float64))
    return x


@pytest.mark.parametrize("word", ["sphere", "spd", "spd3", "hyperboloid"])
@pytest.mark.parametrize("solver", ["rsgd", "rsvrg"])
def test_the_round_against_a_plain_loop(word, solver):
    settings = {"local_steps": 2, "lr_power": 0.5, "sigma": 0.07, "clip_norm": 0.8, "clip_gradient": 0.6}
    c = Config(agents_per_round=0, lr=0.1, inner_steps=3, **settings)
    case = word, SIZES, f"dp-{solver}"
    expected = plain_run(word, SIZES, solver, 3, c, lambda n: 0.07, noise_of(*case, **settings))
    found = result_of(*case, **settings)[0]
    assert torch.allclose(found, expected, rtol=0, atol=1e-11)


def test_minibatches_against_a_plain_loop():
    settings = {"local_steps": 3, "batch_size": 2, "sigma": 0.1}
    c = Config(agents_per_round=0, lr=0.1, clip_norm=1.0, **settings)
    expected = plain_run("sphere", SIZES, "rsgd", 3, c, lambda n: 0.1, noise_of("sphere", SIZES, **settings))
    assert torch.allclose(result_of("sphere", SIZES, **settings)[0], expected, rtol=0, atol=1e-11)


def test_a_record_that_is_held_twice_has_no_promise():
    loss, samples = records_of("sphere", SIZES)
    for lists in ([[0, 1, 1], [2, 3]], [[0, 1], [1, 2]]):
        federation = Federation(samples, Partition.from_lists(lists))
        algorithm = PriRFed(Config(agents_per_round=0, clip_norm=1.0), loss, start_of(loss, samples, (0,)))
        with pytest.raises(ValueError, match="^partition: got a sample that is held twice"):
            Rounds(algorithm, federation, 1)


# --- reductions


@pytest.mark.parametrize("word", ["sphere", "spd3", "hyperboloid"])
def test_one_step_of_everybody_is_one_noisy_central_step(word):
    """K = 1, s = N, b = N_i: Exp(-alpha (grad f + sum p_i noise_i)), for any sizes."""
    loss, samples = records_of(word, SIZES)
    manifold = loss.manifold
    x = start_of(loss, samples, (0,))[0]
    shares = torch.tensor(SIZES, dtype=torch.float64) / sum(SIZES)
    weights = torch.full((sum(SIZES),), 1 / sum(SIZES), dtype=torch.float64)
    gradient = loss.clipped_mean(x, samples, weights, INF)
    case, settings = (word, SIZES), {"total": 1, "local_steps": 1, "sigma": 0.2, "clip_norm": 1e9}
    for share, agent in zip(shares, range(3), strict=True):
        w = normal((1, manifold.noise_size(x)), stream(0, noise_of(*case, **settings), 0, agent))[0]
        gradient = gradient + share * 0.2 * manifold.tangent_gaussian(x, w)
    expected = manifold.exp(x, -0.1 * gradient)
    found = result_of(*case, **settings)[0]
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)


def test_rfedsvrg_and_rfedprox_against_their_definitions():
    loss, samples = records_of("hyperboloid", SIZES)
    manifold, x = loss.manifold, start_of(loss, samples, (0,))[0]
    starts = np.cumsum([0, *SIZES])
    own = [samples["y"][a:b] for a, b in zip(starts, starts[1:], strict=False)]
    local = lambda y, i: sum(-2 * manifold.log(y, z) for z in own[i]) / len(own[i])  # noqa: E731
    everyone = sum(len(z) * local(x, i) for i, z in enumerate(own)) / sum(SIZES)
    corrected, pulled = [], []
    for i in range(3):
        y = v = x
        for _ in range(4):
            y = manifold.exp(y, -0.1 * (local(y, i) - manifold.transport(x, y, local(x, i) - everyone)))
            v = manifold.exp(v, -0.1 * (local(v, i) - 0.7 * manifold.log(v, x)))
        corrected.append(y)
        pulled.append(v)
    equal = tangent_mean(manifold, x, torch.stack(corrected), torch.ones(3, dtype=torch.float64))
    sized = tangent_mean(manifold, x, torch.stack(pulled), torch.tensor(SIZES, dtype=torch.float64))
    found = result_of("hyperboloid", SIZES, "rfedsvrg", total=1, local_steps=4)[0]
    assert torch.allclose(found, equal, rtol=0, atol=1e-12)
    found = result_of("hyperboloid", SIZES, "rfedprox", total=1, local_steps=4, prox=0.7)[0]
    assert torch.allclose(found, sized, rtol=0, atol=1e-12)


# --- Option 2, aggregation, sum scale


def test_what_option_2_reports_is_uniform_over_the_rounds():
    """800 runs of 4 rounds of one full step: each of the 4 starting points is reported about 200 times."""
    seeds = tuple(range(800))
    settings = {"total": 4, "local_steps": 1, "seeds": seeds}
    states = [start_of(*records_of("sphere", (8,)), seeds)]
    tracked = rounds_of("sphere", (8,), "rfedavg", option="random", **settings)
    for _ in tracked:
        states.append(tracked.server["x"])
    gaps = torch.stack([(tracked.server["report"] - p).norm(dim=1) for p in states])
    counts = torch.bincount(gaps.argmin(0), minlength=5).tolist()
    assert counts[4] == 0 and all(150 < c < 250 for c in counts[:4])


@pytest.mark.parametrize("aggregation", ["frechet", "ambient", "tangent"])
def test_aggregations_against_their_definitions(aggregation):
    loss, samples = records_of("spd", SIZES)
    uploads = {}
    rounds = rounds_of("spd", SIZES, "rfedavg", total=1, aggregation=aggregation,
                       options={"observe": lambda e, up: uploads.update(x=up["x"][0])})  # fmt: skip
    start = rounds.server["x"][0]
    run(rounds)
    weights = torch.tensor(SIZES, dtype=torch.float64) / sum(SIZES)
    expected = {
        "tangent": lambda: SPD().exp(start, torch.einsum("k,kab->ab", weights, SPD().log(start, uploads["x"]))),
        "frechet": lambda: frechet_mean(SPD(), uploads["x"][0], uploads["x"], weights)[0],
        "ambient": lambda: torch.einsum("k,kab->ab", weights, uploads["x"]),
    }[aggregation]()
    assert torch.allclose(rounds.server["x"][0], expected, atol=1e-10)


# --- the house's rules: seeds, chunks, neighbours, resuming


@pytest.mark.parametrize("method", ["dp-rsgd", "dp-rsvrg", "rfedsvrg"])
def test_a_row_does_not_depend_on_its_chunk(method):
    whole = result_of("spd", SIZES, method, sigma=0.1 if method != "rfedsvrg" else 0.0)
    alone = result_of("spd", SIZES, method, sigma=0.1 if method != "rfedsvrg" else 0.0, options={"chunk": 1})
    assert torch.allclose(whole, alone, rtol=0, atol=1e-13)


@pytest.mark.parametrize("word", ["spd", "spd3", "hyperboloid"])
def test_steps_beyond_what_float64_holds_are_not_taken(word):
    """So much noise that the points run away: the run goes on, at points with which one can compute."""
    rounds = rounds_of(word, (4, 4), "dp-rsvrg", total=5, sigma=400.0, lr=1.0, agents_per_round=1, seeds=(0, 1, 2))
    run(rounds)
    manifold = rounds.algorithm.manifold
    ok, reason = manifold.check_point(rounds.server["x"])
    assert ok and bool(within_range(manifold, rounds.server["x"]).all()), reason
    far = manifold.exp(rounds.server["x"], 1e3 * manifold.basis(rounds.server["x"])[:, 0])
    assert not bool(within_range(manifold, far).any())
    assert torch.equal(stepped(manifold, rounds.server["x"], far * math.inf), rounds.server["x"])


@pytest.mark.parametrize("odd", [[1e-17, 1.0, 1.0], [1e-200, 1e200, 1.0], [-1.0, 1.0, 1.0]])
def test_what_may_be_a_record_is_fixed_beforehand(odd):
    """An odd record is refused before the run, whoever is drawn: a run that stopped at it would tell of it."""
    loss, samples = records_of("spd3", SIZES)
    samples["y"][7] = torch.diag(torch.tensor(odd, dtype=torch.float64))
    algorithm = PriRFed(Config(agents_per_round=1, sigma=1.0), loss, start_of(loss, {"y": samples["y"][:3]}, (0,)))
    with pytest.raises(ValueError, match="records"):
        Rounds(algorithm, federation_of(samples, SIZES), 1)


# --- privacy


def test_the_ledger_counts_what_each_agent_took_part_in():
    rounds = rounds_of("sphere", (6, 6, 6, 6), total=12, agents_per_round=1)
    run(rounds)
    algorithm = rounds.algorithm
    times = torch.bincount(
        torch.cat([algorithm.sampler(4).draw(4, stream(0, "cohort", t)) for t in range(12)]), minlength=4
    )
    mu = math.sqrt(3) * (2 / 6) / algorithm.sigma(6)
    report = rounds.privacy[0].report(1e-5)
    assert report["epsilon"] == pytest.approx(exact_epsilon(math.sqrt(int(times.max())) * mu, 1e-5), rel=1e-9)
    assert (report["unit"], report["adjacency"], report["trust"][0][:4]) == ("record", "replace_one", "none")
    assert algorithm.call([6]) == pytest.approx(0.15, rel=2e-3)


@pytest.mark.parametrize("method", ["dp-rsvrg", "central-dp-rsvrg", "dp-rsgd"])
def test_calibrated_noise_costs_what_a_call_may_cost(method):
    rounds = rounds_of("sphere", (30, 30), method, batch_size=0, inner_steps=10, total=1)
    run(rounds)
    sizes = rounds.federation.sizes.flatten().tolist()
    call = rounds.algorithm.call(sizes)
    assert 0.149 < call <= 0.15 * (1 + 1e-9)
    report = rounds.privacy[0].report(1e-4)
    assert report["epsilon"] <= call * (1 + 1e-6)  # at delta_call, one call


def test_a_budget_ends_the_run():
    rounds = rounds_of("sphere", (6, 6), total=50, options={"budget": 0.6})
    run(rounds)
    assert rounds.stopped and 0 < len(rounds.history) < 50
    assert rounds.privacy[0].report(1e-5)["epsilon"] <= 0.6


# --- bad arguments


def test_bad_combinations():
    with pytest.raises(ValueError, match="sigma"):
        rounds_of("sphere", SIZES, "rfedavg", sigma=0.1)
    for method in ("dp-rsgd", "rfedavg"):
        with pytest.raises(ValueError, match="batch_size: got 5"):
            rounds_of("sphere", SIZES, method, batch_size=5)
    with pytest.raises(ValueError, match="budget"):
        rounds_of("sphere", SIZES, "rfedavg", budget=1.0)
    for method in ("rfedsvrg", "rfedprox"):
        with pytest.raises(ValueError, match="scale"):
            rounds_of("sphere", SIZES, method, scale="sum")
    with pytest.raises(ValueError, match="agents_per_round"):
        rounds_of("sphere", SIZES, agents_per_round=4)
    with pytest.raises(ValueError, match="method"):
        rounds_of("sphere", SIZES, "fedavg")


@pytest.mark.parametrize("word", ["sphere", "spd", "hyperboloid"])
def test_a_start_off_the_manifold_is_refused(word):
    """On the sphere the length of a gradient would be too short by it, and the clip would let it pass."""
    loss, samples = records_of(word, SIZES)
    start = -3 * start_of(loss, samples, (0,))
    algorithm = PriRFed(Config(agents_per_round=0), loss, start, "dp-rsgd")
    with pytest.raises(ValueError, match="^start: got"):
        Rounds(algorithm, federation_of(samples, SIZES), 1, delta=1e-5)


@pytest.mark.parametrize("n", [2, 3])
def test_points_within_range_can_be_seen_from_each_other(n):
    near, far = (scale * torch.eye(n, dtype=torch.float64)[None] for scale in (1e-69, 1e69))
    assert bool(within_range(SPD(), near).all()) and bool(within_range(SPD(), far).all())
    assert bool(SPD().log(near, far).isfinite().all()) and bool(SPD().dist(near, far).isfinite().all())
    assert not bool(within_range(SPD(), 1e-2 * near).any()) and not bool(within_range(SPD(), 1e2 * far).any())


@pytest.mark.parametrize(
    ("method", "words"),
    [("rfedsvrg", ["the points that agents reach", "the gradients of agents"]), ("rgd", ["all records"])],
)
def test_the_report_names_all_that_leaves(method, words):
    rounds = rounds_of("spd", SIZES, method, total=1)
    run(rounds)
    told = rounds.privacy[0].report(1e-4)["in_clear"]
    assert len(told) == len(words) and all(any(w in one for one in told) for w in words)
