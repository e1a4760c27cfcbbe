"""FedAvg+BYOL, FedU and FedEMA: against loops written by hand, their reductions to each other, what a client keeps."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from fedbook.federation import FixedSize, Rounds, Rows, run, tree_map
from fedbook.federation.local import epochs
from fedbook.learning.fedbyol import METHODS, Config, FedBYOL, divergence
from fedbook.learning.online import PREDICTOR, only_predictor, without_predictor
from fedbook.learning.pretraining import PretrainingSettings, pretraining_problem
from fedbook.randomness import stream
from tests.papers.by_hand import follow, gap, step

PLAIN = Config(
    rounds=4, cohort=3, local_epochs=1, batch_size=16, pairs=2, lr=0.2, momentum=0.5, weight_decay=1e-2, max_norm=1.0,
    target_decay=0.8, predictor_hidden=12, fedu_threshold=0.05, fedema_tau=0.4,
)  # fmt: skip
LOCAL = replace(PLAIN, target="local")


def problem(partition="dirichlet", clients=5, bank=7, seeds=(0,), **changes):
    settings = PretrainingSettings(
        train_samples=120, test_samples=50, clients=clients, partition=partition, alpha=0.5, bank=bank, width=8
    )
    return pretraining_problem("digits", replace(settings, **changes), seeds, dtype=torch.float64)


SMALL = problem()


def rounds_of(method, config, data=SMALL, seeds=(0,), total=None, **options):
    algorithm = METHODS[method](config, data.encoder, data.views, method)
    return Rounds(algorithm, data.federation(), config.rounds if total is None else total, seeds=seeds, **options)


def trained(method, config, data=SMALL, **options):
    return run(rounds_of(method, config, data, **options))


# --- the oracle: nn.Module, autograd and torch.optim, one client after the other


def views_by_hand(config, data, k, t, seed=0):
    """The views [n, 2V, C, H, W] of each step of a client, picked from the bank."""
    group = data.federation().groups["all"]
    rows = Rows(group.samples, group.table[0, [k]], group.sizes[0, [k]])
    plan = epochs(rows, [stream(seed, "batches", t, k)], config.local_epochs, config.batch_size)
    rng, count = stream(seed, "views", t, k), 2 * config.pairs
    for index, real in zip(plan.index[:, 0], plan.real[:, 0], strict=True):
        which = torch.from_numpy(rng.integers(0, data.bank.shape[1], (len(index), count)))  # also for what fills up
        yield data.bank[index[:, None], which][real]


class Net(nn.Module):
    def __init__(self, algorithm):
        super().__init__()
        self.encoder, self.predictor = algorithm.encoder.build().double(), algorithm.net.predictor.build().double()

    def load(self, theta):
        self.encoder.load_state_dict(without_predictor(theta))
        self.predictor.load_state_dict(only_predictor(theta))

    def theta(self):
        return {n.removeprefix("encoder."): p.detach().clone() for n, p in self.named_parameters()}

    def kernels(self):
        return [m.weight.detach().clone() for m in self.encoder.modules() if isinstance(m, nn.Linear | nn.Conv2d)]


def train_by_hand(net, target, config, steps, lr):
    """Local epochs, in place; ``target`` None: SimSiam."""
    optimiser = torch.optim.SGD(net.parameters(), lr, config.momentum, weight_decay=config.weight_decay)
    for views in steps:
        loss = 0.0
        for v in range(config.pairs):
            for a, b in ((v, v + config.pairs), (v + config.pairs, v)):
                p = net.predictor(net.encoder(views[:, a]))
                with torch.no_grad():
                    z = (target or net.encoder)(views[:, b])
                cosine = (normalize(p) * normalize(z)).sum(1).mean()
                loss = loss + (2 - 2 * cosine if target else -cosine) / config.pairs
        step(optimiser, loss, config.max_norm)
        if target:
            follow(target, net.encoder, config.target_decay)


def by_hand(method, config, data=SMALL, seed=0):
    """The global model after all rounds, the clients' targets, and what happened on receipt."""
    clients, rng = data.settings.clients, stream(seed, "init")
    algorithm = METHODS[method](config, data.encoder, data.views, method)
    net, received = Net(algorithm), Net(algorithm)
    first = data.encoder.init(rng, torch.float64), algorithm.net.predictor.init(rng, torch.float64)
    theta = first[0] | {PREDICTOR + n: p for n, p in first[1].items()}
    own, targets, last, strength, events = {}, {}, {}, {}, []
    sizes = data.federation().sizes[0].double()
    for t in range(config.rounds):
        cohort = config.sampler(clients).draw(clients, stream(seed, "cohort", t)).tolist()
        lr = config.lr * (1 + math.cos(math.pi * t / config.rounds)) / 2
        uploads = {}
        for k in cohort:
            start = dict(theta)
            if k in own and method != "fedavg-byol":
                net.load(own[k]), received.load(theta)
                d = sum(float((a - b).norm()) for a, b in zip(net.kernels(), received.kernels(), strict=True))
                d /= len(net.kernels())
                if method == "fedu" and d >= config.fedu_threshold:
                    start |= {n: p for n, p in own[k].items() if n.startswith(PREDICTOR)}
                if method == "fedu":
                    events.append(d >= config.fedu_threshold)
                if method == "fedema" and last[k] == t - 1:
                    strength.setdefault(k, config.fedema_tau / d)
                    kappa = min(strength[k] * d, 1.0)
                    start = {n: kappa * own[k][n] + (1 - kappa) * p for n, p in theta.items()}
                    events.append(kappa)
            net.load(start)
            target = None
            if config.loss == "byol":
                target = algorithm.encoder.build().double()
                keeps = k in targets and (method != "fedavg-byol" or config.target == "local")
                target.load_state_dict(targets[k] if keeps else without_predictor(theta))
            train_by_hand(net, target, config, views_by_hand(config, data, k, t, seed), lr)
            uploads[k] = own[k] = net.theta()
            last[k] = t
            if target:
                targets[k] = {n: p.detach().clone() for n, p in target.named_parameters()}
        total = sum(float(sizes[k]) for k in cohort)
        theta = {n: sum(float(sizes[k]) / total * uploads[k][n] for k in cohort) for n in theta}
    return theta, targets, events


@pytest.mark.parametrize("how", ["vmap", "loop"])
@pytest.mark.parametrize(
    ("method", "config"),
    [("fedavg-byol", PLAIN), ("fedavg-byol", LOCAL), ("fedavg-byol", replace(PLAIN, loss="simsiam", rounds=2)),
     ("fedu", PLAIN), ("fedema", PLAIN)],
    ids=["global", "local", "simsiam", "fedu", "fedema"],
)  # fmt: skip
def test_rounds_are_a_plain_loop_over_clients(method, config, how):
    ours = trained(method, config, how=how, chunk=2)
    theta, targets, events = by_hand(method, config)
    assert gap(tree_map(lambda x: x[0], ours.server["theta"]), theta) < 1e-10
    if method == "fedu":
        assert True in events and False in events  # both branches were taken
    if method == "fedema":
        assert len({round(kappa, 6) for kappa in events}) > 2 and 0 < min(events) < 1
    if ours.clients:
        kept = ours.clients["all"]["target"]
        assert max(gap(tree_map(lambda x, k=k: x[0, k], kept), own) for k, own in targets.items()) < 1e-10


# --- reductions


def test_fedu_without_threshold_is_byol_with_local_targets():
    a, b = trained("fedu", replace(PLAIN, fedu_threshold=math.inf)), trained("fedavg-byol", LOCAL)
    assert gap(a.server["theta"], b.server["theta"]) == 0
    assert gap(a.clients["all"]["target"], b.clients["all"]["target"]) == 0
    assert gap(trained("fedu", replace(PLAIN, fedu_threshold=0.0)).server["theta"], b.server["theta"]) > 1e-3


def test_fedema_without_own_share_is_byol_with_local_targets():
    a, b = trained("fedema", replace(PLAIN, fedema_tau=0.0)), trained("fedavg-byol", LOCAL)
    assert gap(a.server["theta"], b.server["theta"]) == 0
    assert gap(trained("fedema", PLAIN).server["theta"], b.server["theta"]) > 1e-3


def test_local_targets_are_not_global_ones():
    a, b = trained("fedavg-byol", LOCAL), trained("fedavg-byol", PLAIN)
    assert gap(a.server["theta"], b.server["theta"]) > 1e-3
    assert gap(trained("fedu", LOCAL).server, trained("fedu", PLAIN).server) == 0  # FedU's are local anyway


@pytest.mark.parametrize("method", ["fedavg-byol", "fedu", "fedema"])
def test_decay_1_freezes_the_target_and_decay_0_copies(method):
    everyone = replace(LOCAL, cohort=0, rounds=2)
    start = rounds_of(method, everyone).server["theta"]
    frozen = trained(method, replace(everyone, target_decay=1.0)).clients["all"]["target"]
    assert gap(frozen, {n: p[:, None].expand(-1, 5, *p.shape[1:]) for n, p in without_predictor(start).items()}) == 0
    run_0 = trained("fedu", replace(everyone, target_decay=0.0))
    assert gap(run_0.clients["all"]["target"], without_predictor(run_0.clients["all"]["theta"])) == 0


def test_target_is_the_exponential_mean_in_closed_form():
    m, steps = 0.9, 7
    algorithm = FedBYOL(replace(PLAIN, target_decay=m), SMALL.encoder, SMALL.views)
    first, online = torch.randn(3, 4, dtype=torch.float64), torch.randn(steps, 3, 4, dtype=torch.float64)
    carry = {"theta": {"w": None}, "fixed": {"target": {"w": first.clone()}}}
    for x in online:
        carry["theta"]["w"] = x
        algorithm.follow(carry)
    closed = m**steps * first + (1 - m) * sum(m ** (steps - 1 - i) * x for i, x in enumerate(online))
    assert gap(carry["fixed"]["target"]["w"], closed) < 1e-14


def test_one_full_step_of_everybody_is_a_step_on_all_samples():
    """Weights by size, loss a mean over samples: with the whole bank as views nothing is random."""
    data = problem(bank=4)
    config = replace(PLAIN, rounds=1, cohort=0, local_epochs=1, batch_size=0, max_norm=0.0)
    algorithm = FedBYOL(config, data.encoder, data.views)
    pooled = run(Rounds(algorithm, data.federation(pooled=True), 1))
    assert gap(trained("fedavg-byol", config, data).server["theta"], pooled.server["theta"]) < 1e-14
    equal = trained("fedavg-byol", replace(config, average="paper"), data).server["theta"]
    assert gap(equal, pooled.server["theta"]) > 1e-6  # clients have unequal sizes


# --- what a client makes of the model that it receives


def received(method, t, **changes):
    """Clients that trained in round 0 receive in round t, where steps have length 0: own, global, then, trace."""
    config = replace(PLAIN, cohort=0, **changes)
    before = trained(method, config, total=1)
    again = rounds_of(method, replace(config, lr=0.0))
    again.server, again.simulator.clients, again.t = before.server, tree_map(torch.clone, before.clients), t
    record = again.step()
    world = tree_map(lambda x: x[:, None].expand(-1, 5, *x.shape[1:]), before.server["theta"])
    return before.clients["all"]["theta"], world, again.clients["all"], record.trace


def test_fedu_takes_the_global_encoder_and_keeps_its_predictor():
    own, world, after, trace = received("fedu", 1, fedu_threshold=0.0)
    assert gap(without_predictor(after["theta"]), without_predictor(world)) == 0
    assert gap(only_predictor(after["theta"]), only_predictor(own)) == 0
    assert gap(only_predictor(own), only_predictor(world)) > 1e-3 and trace["predictor_kept"] == [1.0]


def test_fedu_decides_by_the_mean_distance_of_weight_matrices():
    own, world, _, trace = received("fedu", 1)
    weights = ["backbone.1.weight", "backbone.3.weight", "projector.0.weight", "projector.2.weight"]
    distance = [sum(float((own[n] - world[n])[0, k].norm()) for n in weights) / 4 for k in range(5)]
    assert trace["divergence"][0] == pytest.approx(sum(distance) / 5, rel=1e-12)
    middle = sorted(distance)[2]
    _, _, after, trace = received("fedu", 1, fedu_threshold=middle * (1 + 1e-9))
    assert trace["predictor_kept"] == [pytest.approx(2 / 5)]
    for k, d in enumerate(distance):
        kept = own if d > middle else world
        taken = {n: after["theta"][PREDICTOR + n][0, k] for n in only_predictor(own)}
        assert gap(taken, {n: kept[PREDICTOR + n][0, k] for n in taken}) == 0


def test_fedema_mixes_tau_of_the_own_model_first():
    own, world, after, trace = received("fedema", 1, fedema_tau=0.3)
    assert trace["own_share"] == [pytest.approx(0.3)]
    assert gap(after["theta"], tree_map(lambda a, b: 0.3 * a + 0.7 * b, own, world)) < 1e-14
    flat = (tree_map(lambda x: x.flatten(0, 1), tree) for tree in (own, world))
    assert gap(after["strength"][0], 0.3 / divergence(*flat)) < 1e-12


def test_fedema_with_a_large_tau_shares_no_online_model():
    own, _, after, trace = received("fedema", 1, fedema_tau=1e6)
    assert trace["own_share"] == [1.0] and gap(after["theta"], own) == 0


def test_fedema_takes_the_global_model_after_an_absence():
    _, world, after, trace = received("fedema", 2)
    assert trace["own_share"] == [0.0] and gap(after["theta"], world) == 0
    assert bool(after["strength"].isnan().all())  # no mix, so nothing to scale by


def test_lambda_is_fixed_at_the_first_mix():
    three = rounds_of("fedema", replace(PLAIN, cohort=0))
    three.step(), three.step()
    first = three.clients["all"]["strength"].clone()
    assert bool(first.isfinite().all()) and three.history[-1].trace["own_share"] == [pytest.approx(0.4)]
    three.step()
    assert torch.equal(three.clients["all"]["strength"], first)
    assert abs(three.history[-1].trace["own_share"][0] - 0.4) > 1e-3


@pytest.mark.parametrize("method", ["fedu", "fedema", "fedavg-byol"])
def test_a_newcomer_takes_everything_from_the_server(method):
    """Also in round 0, whose round before is -1: the state that nobody has written yet is not used."""
    for t in (0, 3):
        rounds = rounds_of(method, replace(LOCAL, cohort=0, lr=0.0, fedu_threshold=0.0))
        rounds.server["theta"] = tree_map(lambda x: x + 1, rounds.server["theta"])
        rounds.t = t
        rounds.step()
        world = tree_map(lambda x: x[:, None].expand(-1, 5, *x.shape[1:]), rounds.server["theta"])
        state = rounds.clients["all"]
        assert gap(state.get("theta", world), world) < 1e-14 and bool((state["last"] == t).all())
        assert gap(state["target"], without_predictor(world)) < 1e-13


@pytest.mark.parametrize("method", ["fedu", "fedema"])
def test_absent_clients_keep_their_state_untouched(method):
    rounds, absent = rounds_of(method, replace(PLAIN, cohort=2)), 0
    for t in range(4):
        before = tree_map(torch.clone, rounds.clients["all"])
        rounds.step()
        there = FixedSize(2).draw(5, stream(0, "cohort", t)).tolist()
        for k in range(5):
            now, past = (tree_map(lambda x, k=k: x[0, k].nan_to_num(-1.0), s) for s in (rounds.clients["all"], before))
            if k in there:
                assert gap(now["theta"], past["theta"]) > 0 and int(now["last"]) == t
            else:
                absent += 1
                assert gap(now, past) == 0
    assert absent == 12


# --- the loss


def a_batch(rows=6, pairs=2):
    algorithm = FedBYOL(replace(PLAIN, pairs=pairs), SMALL.encoder, SMALL.views)
    theta, slow = (algorithm.init(stream(s, "init"), torch.float64) for s in (0, 1))
    return algorithm, theta, without_predictor(slow), SMALL.bank[:rows, : 2 * pairs]


def test_filling_rows_do_not_count():
    algorithm, theta, slow, views = a_batch()
    weight = torch.tensor([1, 1, 1, 1, 0, 0], dtype=torch.float64)
    garbage = views.clone()
    garbage[4:] = 1e3
    few = algorithm.objective(theta | {"target": slow}, views[:4], torch.ones(4, dtype=torch.float64))
    assert float(algorithm.objective(theta | {"target": slow}, garbage, weight)) == pytest.approx(float(few), abs=1e-13)


def test_no_gradient_reaches_the_target():
    algorithm, theta, slow, views = a_batch()
    weight = torch.ones(6, dtype=torch.float64)
    loss = torch.func.grad(lambda slow: algorithm.objective(theta | {"target": slow}, views, weight))
    assert all(float(g.abs().max()) == 0 for g in loss(slow).values())


def test_byol_on_its_own_encoder_is_4_and_twice_simsiam():
    """Two directions are summed: 2 (2 - 2 cos) = 4 + 2 (-2 cos)."""
    algorithm, theta, _, views = a_batch()
    siamese = FedBYOL(replace(PLAIN, loss="simsiam"), SMALL.encoder, SMALL.views)
    weight = torch.ones(6, dtype=torch.float64)
    byol = algorithm.objective(theta | {"target": without_predictor(theta)}, views, weight)
    assert float(byol) == pytest.approx(4 + 2 * float(siamese.objective(theta, views, weight)), abs=1e-12)
    assert 0 <= float(byol) <= 8


# --- seeds, resumption, bytes, privacy, arguments


@pytest.mark.parametrize("bank", [7, 0])
@pytest.mark.parametrize("method", METHODS)
def test_seeds_side_by_side_are_the_single_runs(method, bank):
    seeds, config = (3, 8), replace(PLAIN, rounds=2, local_epochs=2, batch_size=0 if bank else 16)
    both = trained(method, config, problem(bank=bank, seeds=seeds), seeds=seeds)
    for slot, seed in enumerate(seeds):
        one = trained(method, config, problem(bank=bank, seeds=(seed,)), seeds=(seed,))
        assert gap(one.server["theta"], tree_map(lambda x, s=slot: x[[s]], both.server["theta"])) < 1e-11


@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_is_the_whole_run(method, tmp_path):
    path, config = tmp_path / "run.pt", replace(LOCAL, cohort=3)
    trained(method, config, total=2, path=path)
    resumed, whole = trained(method, config, path=path, resume=True), trained(method, config)
    assert gap(resumed.server, whole.server) == 0
    ours, theirs = (tree_map(lambda x: x.nan_to_num(-1.0), r.clients["all"]) for r in (resumed, whole))
    assert gap(ours, theirs) == 0
    assert resumed.bytes.total == whole.bytes.total


@pytest.mark.parametrize("method", METHODS)
def test_what_crosses_is_encoder_and_predictor(method):
    rounds = trained(method, replace(LOCAL, rounds=2))
    numbers = rounds.algorithm.encoder.size + rounds.algorithm.net.predictor.size
    assert rounds.algorithm.net.predictor.size == (8 * 12 + 12) + (12 * 8 + 8)
    for record in rounds.history:
        assert record.bytes_up == record.bytes_down == [3 * 8 * numbers]
    assert rounds.privacy[0].report(1e-5)["epsilon"] is None  # in clear


def test_without_a_hidden_width_the_predictor_has_twice_its_own():
    algorithm = FedBYOL(replace(PLAIN, predictor_hidden=0), SMALL.encoder, SMALL.views)
    assert algorithm.net.predictor.size == (8 * 16 + 16) + (16 * 8 + 8)


def test_divergence_of_kernels_by_hand():
    a = {
        "backbone.0.weight": torch.zeros(1, 2, 1, 1, 2),
        "backbone.0.bias": torch.zeros(1, 2),
        "p": torch.zeros(1, 3, 1),
    }
    b = {"backbone.0.weight": torch.ones(1, 2, 1, 1, 2), "bias": torch.ones(1, 2), "p": torch.ones(1, 3, 1)}
    more = {"predictor.0.weight": torch.ones(1, 9, 9)}
    zero = {"predictor.0.weight": torch.zeros(1, 9, 9)}
    assert divergence(a | zero, b | more).tolist() == pytest.approx([(2 + math.sqrt(3)) / 2])


@pytest.mark.parametrize(
    ("field", "values"),
    [("target_decay", [-0.1, 1.1, math.nan, None, "x", True]), ("target", ["mine", None, 3]),
     ("loss", ["simclr", None, 3]), ("predictor_hidden", [-1, 2.0, None, "x", math.inf]),
     ("fedu_threshold", [-1, math.nan, None, "x"]), ("fedema_tau", [-1, math.nan, math.inf, None, "x"])],
)  # fmt: skip
def test_bad_settings_are_refused_by_name(field, values):
    for value in values:
        with pytest.raises((TypeError, ValueError), match=f"^{field}: got"):
            replace(PLAIN, **{field: value})
