"""FedAvg+BYOL, FedU and FedEMA: against loops written by hand, their reductions to each other, what a client keeps."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from fedbook.federation import FixedSize, Rounds, Rows, run, tree_map
from fedbook.federation.local import epochs
from fedbook.learning.fedbyol import METHODS, Config
from fedbook.learning.online import PREDICTOR, only_predictor, without_predictor
from fedbook.papers.fedsc.problem import PretrainingSettings, pretraining_problem
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


# --- bytes, privacy


@pytest.mark.parametrize("method", METHODS)
def test_what_crosses_is_encoder_and_predictor(method):
    rounds = trained(method, replace(LOCAL, rounds=2))
    numbers = rounds.algorithm.encoder.size + rounds.algorithm.net.predictor.size
    assert rounds.algorithm.net.predictor.size == (8 * 12 + 12) + (12 * 8 + 8)
    for record in rounds.history:
        assert record.bytes_up == record.bytes_down == [3 * 8 * numbers]
    assert rounds.privacy[0].report(1e-5)["epsilon"] is None  # in clear
