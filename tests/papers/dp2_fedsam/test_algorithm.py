"""One round for every method of chapter 4: against loops written by hand, its reductions, its invariants."""

import json
import math
from dataclasses import replace

import pytest
import torch

from fedbook import papers
from fedbook.experiment import plan, result
from fedbook.federation import Rounds, Rows, run, tree_map
from fedbook.federation.cohort import Cohort
from fedbook.federation.exchange import Exchange
from fedbook.federation.local import epochs
from fedbook.federation.loop import Turn
from fedbook.federation.simulator import Simulator
from fedbook.learning.models import Model
from fedbook.papers.dp2_fedsam import METHODS, Config, DP2FedSAM
from fedbook.papers.dp2_fedsam.problem import PersonalSettings, personal_problem
from fedbook.privacy import gaussian_epsilon
from fedbook.randomness import stream

PAPER = papers.paper("dp2_fedsam")
PLAIN = Config(
    rounds=3, client_rate=0.5, head_epochs=2, body_epochs=2, batch_size=5, lr_body=0.2, lr_head=0.3, momentum=0.5,
    lr_decay=0.9, sam_radius=0.1, clip_norm=math.inf,
)  # fmt: skip
NOISY = replace(PLAIN, clip_norm=0.3, noise_multiplier=0.7)
NOISY_FIXED = replace(NOISY, sampling="fixed")
PRIVATE = [name for name, method in METHODS.items() if method.private]


def problem(clients=8, partition="classes", seeds=(0,), dtype=torch.float64, model="mlp", **changes):
    settings = PersonalSettings(partition=partition, clients=clients, train_samples=240, own_share=0.2, model=model)
    return personal_problem("digits", replace(settings, **changes), seeds, dtype=dtype)


SMALL = problem()
UNEVEN = problem(partition="dirichlet", alpha=1.0, clients=6)


def trained(method, config, data=SMALL, seeds=(0,), **options):
    rounds = Rounds(DP2FedSAM(config, data.model, method), data.federation(), config.rounds, seeds=seeds, **options)
    return run(rounds)


def same(a, b, atol=0.0):
    gaps = [0.0]
    tree_map(lambda x, y: gaps.append(float((x - y).abs().max())), a, b)
    return max(gaps) <= atol


# --- the oracle: nn.Module, autograd and torch.optim, client after client, written from the paper's boxes


def by_hand(config, data, seed=0, shared="body", sam=True, purpose="noise"):
    """Algorithm 2 (or 1): the shared parameters and the heads after all rounds."""
    federation, clients = data.federation(), data.settings.clients
    algorithm_sampler = config.sampler(clients)
    start = data.model.init(stream(seed, "init"), data.x.dtype)
    head_names = data.model.head_names if shared == "body" else ()
    phi = {name: p for name, p in start.items() if name not in head_names}
    heads = [{name: start[name].clone() for name in head_names} for _ in range(clients)]
    group = federation.groups["all"]
    for t in range(config.rounds):
        cohort = algorithm_sampler.draw(clients, stream(seed, "cohort", t)).tolist()
        total = tree_map(torch.zeros_like, phi)
        decay = config.lr_decay**t
        for i in cohort:
            rows = Rows(group.samples, group.table[0, [i]], group.sizes[0, [i]])
            net = data.model.build().to(data.x.dtype)
            net.load_state_dict({**phi, **heads[i]})
            named = dict(net.named_parameters())
            if head_names:
                optimiser = torch.optim.SGD([named[n] for n in head_names], config.lr_head * decay, config.momentum)
                for x, y in batches_of(rows, stream(seed, "head batches", t, i), config.head_epochs, config.batch_size):
                    optimiser.zero_grad()
                    torch.nn.functional.cross_entropy(net(x), y).backward()
                    optimiser.step()
                heads[i] = {n: named[n].detach().clone() for n in head_names}
            body = [named[n] for n in phi]
            optimiser = torch.optim.SGD(body, config.lr_body * decay, config.momentum)
            for x, y in batches_of(rows, stream(seed, "body batches", t, i), config.body_epochs, config.batch_size):
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(net(x), y).backward()
                if sam and config.sam_radius:
                    norm = torch.cat([p.grad.flatten() for p in body]).norm()
                    away = [p.grad * config.sam_radius / norm for p in body]
                    with torch.no_grad():
                        [p.add_(e) for p, e in zip(body, away, strict=True)]
                    optimiser.zero_grad()
                    torch.nn.functional.cross_entropy(net(x), y).backward()
                    with torch.no_grad():
                        [p.sub_(e) for p, e in zip(body, away, strict=True)]
                optimiser.step()
            change = {n: named[n].detach() - phi[n] for n in phi}
            norm = torch.cat([v.flatten() for v in change.values()]).norm()
            factor = min(1.0, config.clip_norm / float(norm))
            total = {n: total[n] + factor * change[n] for n in phi}
        if config.noise_multiplier:
            rng = stream(seed, purpose, t)
            noise = {n: torch.from_numpy(rng.standard_normal(phi[n].shape)) for n in sorted(phi)}
            total = {n: total[n] + config.noise_multiplier * config.clip_norm * noise[n] for n in phi}
        phi = {n: phi[n] + total[n] / (config.client_rate * clients) for n in phi}
    return phi, heads


def batches_of(rows, rng, num_epochs, size):
    drawn = epochs(rows, [rng], num_epochs, size)
    for index, real in zip(drawn.index[:, 0], drawn.real[:, 0], strict=True):
        yield rows.samples["x"][index[real]], rows.samples["y"][index[real]]


@pytest.mark.parametrize("data", [SMALL, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("how", ["vmap", "loop"])
@pytest.mark.parametrize("method", ["dp2-fedsam", "centaur", "dp-fedsam", "dp-fedavg"])
def test_the_round_is_the_papers(method, how, data):
    ours = trained(method, NOISY, data, how=how, chunk=3)
    phi, heads = by_hand(
        NOISY, data, shared=METHODS[method].shared, sam=METHODS[method].sam, purpose=f"noise of {ours.noise_keys[0]}"
    )
    assert same(tree_map(lambda x: x[0], ours.server["shared"]), phi, 1e-10)
    if METHODS[method].shared == "body":
        own = ours.clients["all"]["own"]
        assert all(same(tree_map(lambda x, i=i: x[0, i], own), heads[i], 1e-10) for i in range(len(heads)))


# --- one seed, two published runs


def test_two_runs_of_one_seed_do_not_give_the_noise_free_update():
    """Under one noise u + s d1 and u + s' d1 would give u to everybody."""

    def run_of(epsilon, noise_key="run"):
        changes = {"rounds": 1, "batch_size": 0, "epsilon": epsilon}
        rounds = run(plan(PAPER, "dp2-fedsam", "digits", "quick", changes).rounds(noise_key=noise_key))
        return rounds.algorithm.config.noise_multiplier, rounds.server["shared"]

    _, free = run_of(0.0)

    def gap(noise_key):
        (s, a), (z, b) = run_of(1.0, noise_key), run_of(4.0, noise_key)
        return max(float(((s * b[n] - z * a[n]) / (s - z) - free[n]).abs().max()) for n in free)

    assert gap("seed") < 1e-6 and gap("run") > 1e-3


# --- reductions (T10 to T14)


def test_radius_0_is_centaur_bit_for_bit():
    a, b = (
        trained("dp2-fedsam", replace(NOISY, sam_radius=0.0), noise_key="seed"),
        trained("centaur", NOISY, noise_key="seed"),
    )
    assert same(a.server, b.server) and same(a.clients, b.clients)
    assert not same(a.server, trained("dp2-fedsam", NOISY, noise_key="seed").server)


@pytest.mark.parametrize(
    ("private", "plain"),
    [("dp2-fedsam", "p-fedsam"), ("centaur", "fedrep"), ("dp-fedavg", "fedavg"), ("dp-fedsam", "fedsam")],
)
def test_without_clip_and_noise_it_is_the_plain_form(private, plain):
    a, b = trained(private, PLAIN), trained(plain, NOISY)
    assert same(a.server, b.server) and same(a.clients, b.clients)


def test_noise_shares_of_a_fixed_cohort_have_the_variance_of_one_draw():
    config = replace(NOISY, lr_body=0.0, rounds=4, sampling="fixed", noise_by="clients")
    ours = trained("dp2-fedsam", config)
    start = DP2FedSAM(config, SMALL.model).start(SMALL.federation(), Turn(-1, (0,), 8))[0]["shared"]
    moved = torch.cat([(ours.server["shared"][n] - start[n]).flatten() for n in start])
    assert abs(float(moved.square().mean()) / (4 * (0.7 * 0.3 / 4.0) ** 2) - 1) < 4 * math.sqrt(2 / moved.numel())
    with pytest.raises(ValueError, match="^noise_by: got 'clients'"):
        replace(config, sampling="poisson")


# --- seeds, batches, features


# --- invariants (T16 to T19)


def test_only_the_sum_of_body_changes_crosses_and_unasked_heads_stay():
    crossed = []
    rounds = Rounds(
        DP2FedSAM(NOISY, SMALL.model), SMALL.federation(), 1, observe=lambda *pair: crossed.append(pair)
    )  # fmt: skip
    before = tree_map(torch.clone, rounds.clients)
    run(rounds)
    [(exchange, uploads)] = crossed
    assert isinstance(exchange, Exchange) and exchange.reveal == "sum" and set(exchange.down) == {"shared"}
    assert set(uploads._sums) == {"change"} and set(uploads["change"]) == set(SMALL.model.split(rounds_theta())[0])
    asked = set(exchange.cohort.members(0).tolist())
    assert 0 < len(asked) < 8
    for name, old in before["all"]["own"].items():
        for k in range(8):
            assert torch.equal(old[0, k], rounds.clients["all"]["own"][name][0, k]) == (k not in asked)


def rounds_theta():
    return SMALL.model.init(stream(0, "init"), torch.float64)


def one_round_sum(cohort, data=SMALL, config=NOISY, method="dp2-fedsam", algorithm=None):
    """The noiseless sum of clipped changes of the clients ``cohort``, as the server gets it, flattened."""
    algorithm = algorithm or DP2FedSAM(replace(config, noise_multiplier=0.0), data.model, method)
    server, clients = algorithm.start(data.federation(), Turn(-1, (0,), data.settings.clients))
    simulator = Simulator(data.federation(), (0,), clients)
    simulator.open_round(0)
    steps = algorithm.round(server, Turn(0, (0,), data.settings.clients))
    exchange = next(steps)
    exchange = replace(exchange, cohort=Cohort.of([torch.tensor(cohort, dtype=torch.long)]))
    total = simulator.deliver(exchange)["change"]
    return torch.cat([total[name][0].flatten() for name in sorted(total)])


@pytest.mark.parametrize("method", PRIVATE)
def test_one_client_moves_the_sum_by_the_bound_at_most(method):
    bound = 0.05
    config = replace(NOISY, clip_norm=bound)
    everyone = one_round_sum(list(range(8)), config=config, method=method)
    moves = [
        float((everyone - one_round_sum([k for k in range(8) if k != out], config=config, method=method)).norm())
        for out in range(8)
    ]
    assert max(moves) <= bound * (1 + 1e-12)
    if METHODS[method].trained:
        assert max(moves) >= bound * (1 - 1e-9)  # attained: every change here is longer than the bound


def test_an_empty_cohort_releases_noise_and_the_divisor_stays():
    config = replace(NOISY, client_rate=1e-9, rounds=1, expected_cohort=4.0)
    ours = trained("dp2-fedsam", config)
    assert ours.history[0].cohort == [0]
    moved = torch.cat([
        (ours.server["shared"][n] - p).flatten() for n, p in SMALL.model.split(rounds_theta())[0].items()
    ])  # fmt: skip
    assert float(moved.std()) == pytest.approx(0.7 * 0.3 / 4.0, rel=0.05)


def test_own_rows_are_disjoint_from_training_rows_and_keyed():
    data = problem(clients=10, train_samples=0, own_share=0.1, seeds=(0, 1))
    for train, own in zip(data.train, data.own, strict=True):
        taken = torch.cat([*train.lists(), *own.lists()])
        assert len(taken.unique()) == len(taken) == len(data.y)
        for a, b in zip(train.lists(), own.lists(), strict=True):
            assert len(data.y[torch.cat([a, b])].unique()) == 2
            assert abs(len(b) / (len(a) + len(b)) - 0.1) < 0.01
    again = problem(clients=10, train_samples=0, own_share=0.1, seeds=(0, 1))
    assert all(a == b for a, b in zip(data.train + data.own, again.train + again.own, strict=True))
    held = problem(clients=10, train_samples=0, own_share=0.1, seeds=(0, 1), judge="validation")
    for judged, tested in zip(held.own, data.own, strict=True):
        assert not set(torch.cat(judged.lists()).tolist()) & set(torch.cat(tested.lists()).tolist())


def test_judging_changes_nothing_and_is_an_average_over_clients():
    config = replace(PLAIN, rounds=2, head_refresh=2)
    for method in ("fedavg-ft", "p-fedsam", "fedavg", "local-only"):
        algorithm = DP2FedSAM(config, UNEVEN.model, method)
        rounds = run(Rounds(algorithm, UNEVEN.federation(), 2))
        before = tree_map(torch.clone, rounds.server), tree_map(torch.clone, rounds.clients)
        found = algorithm.evaluation(UNEVEN, (0,))(rounds.server, rounds.clients)
        assert same(before[0], rounds.server) and same(before[1], rounds.clients)
        slow = []
        for k, rows in enumerate(UNEVEN.own[0].lists()):
            answer = algorithm.logits(
                UNEVEN, (0,), rounds.server, rounds.clients, 0, torch.tensor([k]), UNEVEN.x[rows][None]
            )  # fmt: skip
            slow.append(float((answer[0].argmax(1) == UNEVEN.y[rows]).double().mean()))
        assert float(found["accuracy"][0]) == pytest.approx(sum(slow) / len(slow), abs=1e-12)
        assert ("accuracy_refreshed" in found) == (method == "p-fedsam")


# --- privacy of a run


@pytest.mark.parametrize("method", PRIVATE)
def test_a_budget_is_kept_and_used(method):
    chosen = plan(PAPER, method, "digits", "quick", {"epsilon": "2", "rounds": "4", "body_epochs": 1, "head_epochs": 1})
    rounds = run(chosen.rounds())
    told = result(rounds, chosen, 1.0)
    assert 1.99 < told["epsilon"] <= 2.0 and told["delta"] == 1e-3 and told["stopped"] is None
    assert told["privacy"]["unit"] == "client" and told["privacy"]["adjacency"] == "add_remove"
    assert 0 <= told["metrics"]["accuracy"] <= 1
    json.dumps(told, allow_nan=False)


def test_a_run_stops_before_its_budget_is_spent():
    changes = {"epsilon": 2.0, "noise_multiplier": 3.0, "rounds": 200, "body_epochs": 1, "head_epochs": 1}
    chosen = plan(PAPER, "dp2-fedsam", "digits", "quick", changes)
    rounds = run(chosen.rounds())
    told = result(rounds, chosen, 1.0)
    assert 0 < told["rounds"] < 200 and told["epsilon"] <= 2.0 and "epsilon = 2" in told["stopped"]
    assert "accuracy" in told["metrics"] and rounds.history[-1].metrics
    longer = Rounds(rounds.algorithm, rounds.federation, told["rounds"] + 1, delta=1e-3)
    run(longer)
    assert longer.privacy[0].report(1e-3)["epsilon"] > 2.0


def test_the_papers_account_ends_no_budget_where_the_noise_is_given():
    changes = {"epsilon": 0.5, "noise_multiplier": 1.0, "rounds": 5, "clients": 20, "accountant": "paper"}
    rounds = run(plan(PAPER, "dp-fedavg", "digits", "quick", changes).rounds())
    assert rounds.stopped is not None and "epsilon = 0.5" in rounds.stopped
    named = {"partition": "natural", "judged_on": "common"}
    with pytest.raises(ValueError, match="partition: got 'natural'; allowed is another one with judged_on common"):
        plan(PAPER, "dp-fedavg", "digits", "quick", named).rounds()


def test_nothing_crosses_in_the_silent_controls():
    for method in ("frozen-body", "local-only"):
        rounds = trained(method, PLAIN)
        assert all(r.bytes_up == [0] and r.bytes_down == [0] for r in rounds.history)
        assert trained("fedrep", PLAIN).history[0].bytes_up[0] > 0


def test_fixed_cohorts_are_accounted_with_twice_the_sensitivity():
    release = []
    for sampling in ("poisson", "fixed"):
        algorithm = DP2FedSAM(replace(NOISY, sampling=sampling), SMALL.model)
        release.append(algorithm.what_is_released(SMALL.settings.clients))
    assert [r.adjacency for r in release] == ["add_remove", "replace_one"]
    assert [r.sensitivity for r in release] == [0.3, 0.6]
    assert [r.noise_multiplier for r in release] == pytest.approx([0.7, 0.35])


def test_fixed_cohorts_with_heads_are_not_counted_as_secret():
    """What a head remembers depends, in a cohort of fixed size, on who else was drawn: no amplification then."""
    found = {}
    for method in ("dp2-fedsam", "dp-fedavg"):
        rounds = trained(method, replace(NOISY_FIXED, rounds=4))
        found[method] = rounds.privacy[0].report(1e-3)["epsilon"]
    times = torch.zeros(8)
    for t in range(4):
        times[NOISY_FIXED.sampler(8).draw(8, stream(0, "cohort", t))] += 1
    assert found["dp2-fedsam"] == pytest.approx(gaussian_epsilon(0.35, int(times.max()), 1e-3), rel=1e-9)
    assert found["dp-fedavg"] <= gaussian_epsilon(0.35, 4, 1e-3)


def test_bad_combinations_are_named():
    with pytest.raises(ValueError, match="^clip_norm: got inf"):
        Config(clip_norm=math.inf, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="^clip_norm: got inf"):
        Config(clip_norm=math.inf, epsilon=1.0).with_noise(10)
    with pytest.raises(ValueError, match="^method: got 'ditto'"):
        DP2FedSAM(PLAIN, SMALL.model, "ditto")


def test_a_client_that_diverges_neither_stops_a_private_run_nor_enters_the_sum():
    x = SMALL.x.clone()
    x[SMALL.train[0].lists()[3]] = 1e200
    bad = replace(SMALL, x=x)
    config = replace(NOISY, client_rate=1.0, noise_multiplier=0.0, clip_norm=0.1)
    assert torch.equal(
        one_round_sum(list(range(8)), bad, config), one_round_sum([k for k in range(8) if k != 3], bad, config)
    )


def test_a_model_without_a_body_is_refused_where_a_body_is_trained():
    bare = problem(model="linear")
    for method in ("dp2-fedsam", "centaur", "noise-only", "fedrep"):
        with pytest.raises(ValueError, match="^model: got 'linear'"):
            DP2FedSAM(PLAIN, bare.model, method)
    build = lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10), torch.nn.LogSoftmax(-1))  # noqa: E731
    with pytest.raises(ValueError, match="^model: got 'mine'; allowed is a model whose last layer"):
        DP2FedSAM(PLAIN, Model.of("mine", build), "dp2-fedsam")
    trained("frozen-body", PLAIN, bare)


def test_a_budget_without_its_noise_is_refused_before_anything_leaves():
    config = Config(rounds=3, epsilon=2.0, clip_norm=0.3)
    with pytest.raises(ValueError, match="noise_multiplier: got 0.0; allowed is .*with_noise"):
        trained("dp-fedavg", config)
    assert trained("dp-fedavg", config.with_noise(8, heads=False)).privacy[0].report(1 / 8)["epsilon"] <= 2.0


def test_clients_that_share_the_noise_are_all_needed():
    shared = replace(NOISY_FIXED, noise_by="clients")
    assert not DP2FedSAM(shared, SMALL.model).goes_on_without
    assert DP2FedSAM(NOISY_FIXED, SMALL.model).goes_on_without
    assert DP2FedSAM(replace(shared, noise_multiplier=0.0), SMALL.model, "fedavg").goes_on_without


def test_a_fixed_cohort_is_accounted_at_the_share_that_is_drawn():
    config = replace(NOISY_FIXED, client_rate=0.12499991)  # one of eight, rounded to a whole number
    assert DP2FedSAM(config, SMALL.model).what_is_released(8).rate == 0.125
