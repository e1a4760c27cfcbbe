"""Hetero-SSFL against a loop over clients written by hand with PyTorch's modules, its reductions, what crosses."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from fedbook.federation import Rows, run
from fedbook.federation.local import epochs
from fedbook.learning import fedbyol
from fedbook.learning.online import with_predictor
from fedbook.randomness import stream
from tests.papers.by_hand import follow, gap, step
from tests.papers.hetero_ssfl.small import PLAIN, client, problem, rounds_of

LONG = replace(PLAIN, rounds=3, cohort=3, local_epochs=2, lr=0.2, max_norm=2.0)
# sizes at which no row of a head is all zero behind its ReLU: such a z is the bias, noise of 1e-17 without direction
SMALL = problem(train_samples=160, test_samples=60, bank=6, alignment_samples=30)


# --- the oracle: nn.Module, nn.BatchNorm1d, autograd and torch.optim, one client after the other


def by_torch(module):
    """A head of the package as PyTorch's own layers."""
    if not hasattr(module, "norm"):
        return module
    norm = nn.BatchNorm1d(module.first.out_features)
    return nn.Sequential(module.first, norm, nn.ReLU(), module.second)


NAMES = {"0.": "first.", "1.": "norm.", "3.": "second."}


class Net(nn.Module):
    def __init__(self, net, theta):
        super().__init__()
        whole = net.encoder.build()
        self.backbone, self.projector = whole[0].double(), by_torch(whole[1]).double()
        self.predictor = by_torch(net.predictor.build()).double()
        self.load_state_dict({self.foreign(n): p.clone() for n, p in theta.items()}, strict=False)

    def foreign(self, name):
        part, _, rest = name.partition(".")
        if part == "backbone":
            return name
        for ours, theirs in NAMES.items():
            rest = rest.replace(theirs, ours) if rest.startswith(theirs) else rest
        return f"{part}.{rest.replace('running_variance', 'running_var')}"

    def z(self, x):
        return self.projector(self.backbone(x))

    def p(self, x):
        return self.predictor(self.z(x))

    def shown(self, x, config):
        """Representations of the alignment images and what they leave in the running statistics."""
        heads = [m for m in self.modules() if isinstance(m, nn.BatchNorm1d)]
        kept = [(m.running_mean.clone(), m.running_var.clone()) for m in heads]
        self.train(config.statistics != "eval")
        out = {"predictor": self.p, "projector": self.z, "encoder": self.backbone}[config.layer](x)
        self.train(True)
        if config.statistics != "train":  # also in "eval": the graph keeps what it used, the next pass writes elsewhere
            for m, (mean, var) in zip(heads, kept, strict=True):
                m.running_mean, m.running_var = mean, var
        return out

    def weights(self):
        return {n: p.detach().clone() for n, p in self.state_dict().items() if not n.endswith("num_batches_tracked")}


def cka(k, m):
    h = torch.eye(len(k), dtype=k.dtype) - 1 / len(k)
    k, m = h @ k @ h, h @ m @ h
    return (k * m).sum() / (k.norm() * m.norm())


def steps_by_hand(config, data, k, t, seed=0):
    """Views [n, 2, C, H, W] and alignment rows of each step of a client."""
    split = data.partitions[0]
    rows = Rows({}, split.table[[k]], split.sizes[[k]])
    steps = epochs(rows, [stream(seed, "batches", t, k)], config.local_epochs, config.batch_size)
    rng, aligned = stream(seed, "views", t, k), stream(seed, "alignment rows", t, k)
    bank = data.views.make_bank(data.x, data.settings.bank)
    length = len(data.alignment)
    for index, real in zip(steps.index[:, 0], steps.real[:, 0], strict=True):
        which = torch.from_numpy(rng.integers(0, data.settings.bank, (len(index), 2)))
        some = config.alignment_batch or length
        chosen = aligned.choice(length, some, replace=False) if some < length else range(length)
        yield bank[index[:, None], which][real], torch.tensor(list(chosen))


def train_by_hand(net, target, config, steps, reference, lr, images):
    optimiser = torch.optim.SGD([p for p in net.parameters()], lr, config.momentum, weight_decay=config.weight_decay)
    for views, rows in steps:
        n = len(views)
        x = torch.cat([views[:, 0], views[:, 1]])
        if config.mu:  # first: with the running statistics of before the step
            a = net.shown(images[rows], config)
            similarity = cka(a @ a.T, reference[rows][:, rows])
        z = net.z(x)
        p = net.predictor(z)
        with torch.no_grad():
            z = target.z(x) if target else z.detach()
        cosine = (normalize(p) * normalize(z.roll(n, 0))).sum(1)
        loss = (2 - 2 * cosine).mean() if target else -cosine.mean()
        if config.mu:
            loss = loss + config.mu * (similarity if config.proximal == "paper" else 1 - similarity)
        step(optimiser, loss, config.max_norm)
        if target:
            follow(target.backbone, net.backbone, config.target_decay)
            follow(target.projector, net.projector, config.target_decay)


def by_hand(config, data=SMALL, seed=0, w=None):
    """All clients' parameters after all rounds, and the last mean kernel."""
    k_all = data.settings.clients
    w = w or [1 / k_all] * k_all
    nets = {word: fedbyol.online_network(config, e) for word, e in data.encoders.items()}
    own, targets = [], []
    for k in range(k_all):
        net, rng = nets[data.assigned[k]], stream(seed, "init", client=k)
        theta = with_predictor(net.encoder.init(rng, torch.float64), net.predictor.init(rng, torch.float64))
        own.append(Net(net, theta)), targets.append(Net(net, theta))
    images = data.views.plain(data.alignment)
    with torch.no_grad():
        shown = [net.shown(images, config) for net in own]
    for t in range(config.rounds):
        kernels = [a @ a.T for a in shown]
        cohort = config.sampler(k_all).draw(k_all, stream(seed, "cohort", t)).tolist()
        lr = config.lr * (1 + math.cos(math.pi * t / config.rounds)) / 2
        new = {}
        for k in cohort:
            if config.exclude_self:
                reference = sum(v * x for j, (v, x) in enumerate(zip(w, kernels, strict=True)) if j != k)
            else:
                reference = sum(v * x for v, x in zip(w, kernels, strict=True))
            target = targets[k] if config.loss == "byol" else None
            train_by_hand(own[k], target, config, steps_by_hand(config, data, k, t, seed), reference, lr, images)
            with torch.no_grad():
                new[k] = own[k].shown(images, config)
        shown = [new.get(k, a) for k, a in enumerate(shown)]
    return own, targets, shown


@pytest.mark.parametrize("how", ["vmap", "loop"])
@pytest.mark.parametrize(
    "config",
    [
        LONG,
        replace(LONG, proximal="paper", layer="projector", alignment_batch=0, send="kernels"),
        replace(LONG, statistics="eval", exclude_self=True, cohort=0, rounds=2),
        replace(LONG, exclude_self=True, send="kernels", layer="encoder", rounds=2),
    ],
    ids=["plain", "literal", "eval", "kernels"],
)
def test_algorithm_1_is_a_plain_loop_over_clients(config, how):
    ours = run(rounds_of(config, SMALL, how=how, chunk=2))
    own, targets, shown = by_hand(config)
    for k, net in enumerate(own):
        theta = client(ours.clients, SMALL, k)
        found = {net.foreign(n): p for n, p in theta.items()}
        assert gap(found, {n: p for n, p in net.weights().items()}) < 1e-10
        slow = {targets[k].foreign(n): p for n, p in client(ours.clients, SMALL, k, "target").items()}
        trainable = {n: p for n, p in slow.items() if "running" not in n}
        assert gap(trainable, {n: targets[k].weights()[n] for n in trainable}) < 1e-10
    for word, table in ours.server["uploads"].items():
        ids = [k for k, w in enumerate(SMALL.assigned) if w == word]
        for place, k in enumerate(ids):
            a = shown[k] - shown[k].mean(0)  # sent centred: no CKA changes by that, and far offsets cost no digits
            expected = a @ a.T if config.send == "kernels" else a
            assert float((table[0, place] - expected).abs().max()) < 1e-9
