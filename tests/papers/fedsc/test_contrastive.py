"""FedX and FedCA: against loops written by hand, what enters the contrast, what crosses."""

import copy
import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, log_softmax, normalize

from fedbook.experiment import plan
from fedbook.federation import FixedSize, Rounds, Rows, run, tree_map
from fedbook.federation.local import epochs
from fedbook.learning.online import only_predictor, without_predictor
from fedbook.learning.public_images import alignment_images
from fedbook.papers.fedsc import PAPER
from fedbook.papers.fedsc.contrastive import METHODS, Config, FedX, FilledRows, alignment_loss, filled_wire
from fedbook.papers.fedsc.problem import PretrainingSettings, pretraining_problem
from fedbook.randomness import stream
from fedbook.wire import Encoded
from tests.papers.by_hand import gap, step

PLAIN = Config(
    rounds=3, cohort=3, local_epochs=1, batch_size=10, pairs=2, lr=0.2, momentum=0.5, weight_decay=1e-2, max_norm=1.0,
    contrast_temperature=0.3, predictor_hidden=12, dictionary_samples=13,
)  # fmt: skip
ALIGNED = replace(PLAIN, alignment=0.7, alignment_samples=14, alignment_epochs=2)


def problem(bank=7, seeds=(0,), **changes):
    settings = PretrainingSettings(
        train_samples=100, test_samples=50, clients=5, partition="dirichlet", alpha=0.3, bank=bank, width=6
    )
    return pretraining_problem("digits", replace(settings, **changes), seeds, dtype=torch.float64)


SMALL = problem()
SIZES = SMALL.federation().sizes[0].tolist()


def rounds_of(method, config=PLAIN, data=SMALL, seeds=(0,), total=None, **options):
    algorithm = METHODS[method](config, data.encoder, data.views, method)
    return Rounds(algorithm, data.federation(), config.rounds if total is None else total, seeds=seeds, **options)


def trained(method, config=PLAIN, data=SMALL, **options):
    return run(rounds_of(method, config, data, **options))


@cache
def reference(method):
    return trained(method)


# --- the oracle: nn.Module, autograd and torch.optim, one client after the other


def nt_xent_by_hand(a, b, tau, negatives=None):
    """Anchor by anchor: cross-entropy of the partner among all candidates."""
    views = [*normalize(a), *normalize(b)]
    more, total = [] if negatives is None else list(negatives), 0.0
    for i, anchor in enumerate(views):
        partner = (i + len(a)) % len(views)
        candidates = [views[partner]] + [v for j, v in enumerate(views) if j not in (i, partner)] + more
        scores = torch.stack([anchor @ v / tau for v in candidates])
        total = total + cross_entropy(scores[None], torch.tensor([0]))
    return total / len(views)


def relation_by_hand(a, b, reference, tau):
    p, q = (log_softmax(normalize(x) @ normalize(reference).T / tau, 1).exp() for x in (a, b))
    m = (p + q) / 2
    return sum((m * (m / x).log()).sum(1).mean() / 2 for x in (p, q))


class Net(nn.Module):
    def __init__(self, algorithm):
        super().__init__()
        self.encoder = algorithm.encoder.build().double()
        self.head = algorithm.head.build().double() if isinstance(algorithm, FedX) else nn.Identity()

    def load(self, theta):
        self.encoder.load_state_dict(without_predictor(theta))
        self.head.load_state_dict(only_predictor(theta))

    def theta(self):
        names = {n: n.removeprefix("encoder.").replace("head.", "predictor.") for n, _ in self.named_parameters()}
        return {names[n]: p.detach().clone() for n, p in self.named_parameters()}


def rows_of(data, k):
    group = data.federation().groups["all"]
    return Rows(group.samples, group.table[0, [k]], group.sizes[0, [k]])


def picked(data, rng, index, real, count):
    """Views of a batch from the bank; draws are made for what fills up the batch too."""
    which = torch.from_numpy(rng.integers(0, data.bank.shape[1], (len(index), count)))
    return data.bank[index[:, None], which][real]


def losses_of_fedx(net, world, config, data, t, k):
    """The loss of each step, yielded as they are needed."""
    rows, pairs, tau = rows_of(data, k), config.pairs, config.contrast_temperature
    plans = [
        epochs(rows, [stream(0, purpose, t, k)], config.local_epochs, config.batch_size)
        for purpose in ("batches", "reference batches")
    ]
    rng = stream(0, "views", t, k)
    for i in range(len(plans[0].index)):
        index = torch.stack([plan.index[i, 0] for plan in plans], 1).flatten()  # a sample, a reference, a sample, ...
        real = torch.stack([plan.real[i, 0] for plan in plans], 1).flatten()
        views = picked(data, rng, index, real, 2 * pairs)
        x, other = views[0::2], views[1::2]
        loss = 0.0
        for v in range(pairs):
            f, f_other, f_r = (net.encoder(u) for u in (x[:, v], x[:, v + pairs], other[:, v]))
            with torch.no_grad():
                g_other, g_r = world(x[:, v + pairs]), world(other[:, v])
            loss = loss + nt_xent_by_hand(f, f_other, tau) + relation_by_hand(f, f_other, f_r, tau)
            loss = loss + nt_xent_by_hand(net.head(f), g_other, tau)
            loss = loss + relation_by_hand(net.head(f), net.head(f_other), g_r, tau)
        yield loss / pairs


def base_by_hand(net, config, data):
    """The public images as the networks see them, and what an encoder trained on them by itself makes of them."""
    public = alignment_images(config.alignment_source, config.alignment_samples, data.encoder.shape).double()
    bank, tau = data.views.make_bank(public, data.bank.shape[1]), config.contrast_temperature
    net.load(data.encoder.init(stream(0, "base init"), torch.float64))
    optimiser = torch.optim.SGD(net.parameters(), config.lr, config.momentum, weight_decay=config.weight_decay)
    orders, rng = stream(0, "base batches"), stream(0, "base views")
    orders = orders.permuted([list(range(len(public)))] * config.alignment_epochs, axis=1)
    batches = [batch for order in orders for batch in torch.from_numpy(order).split(config.batch_size)]
    width = len(batches[0])
    which = torch.from_numpy(rng.integers(0, bank.shape[1], (len(batches), width, 2 * config.pairs)))
    for number, batch in enumerate(batches):
        x = bank[batch[:, None], which[number, : len(batch)]]
        each = [(net.encoder(x[:, v]), net.encoder(x[:, v + config.pairs])) for v in range(config.pairs)]
        step(optimiser, sum(nt_xent_by_hand(a, b, tau) for a, b in each) / config.pairs, config.max_norm)
    with torch.no_grad():
        return data.views.plain(public), net.encoder(data.views.plain(public))


def losses_of_fedca(net, dictionary, config, data, t, k, base=None):
    rows, pairs = rows_of(data, k), config.pairs
    plan = epochs(rows, [stream(0, "batches", t, k)], config.local_epochs, config.batch_size)
    others = torch.cat([entries for j, entries in dictionary.items() if j != k])
    rng = stream(0, "views", t, k)
    for index, real in zip(plan.index[:, 0], plan.real[:, 0], strict=True):
        x = picked(data, rng, index, real, 2 * pairs)
        each = [(net.encoder(x[:, v]), net.encoder(x[:, v + pairs])) for v in range(pairs)]
        loss = sum(nt_xent_by_hand(a, b, config.contrast_temperature, others) for a, b in each) / pairs
        if base is not None:
            apart = normalize(net.encoder(base[0])) - normalize(base[1])
            loss = loss + config.alignment * sum(row.norm() for row in apart) / len(apart)
        yield loss


@torch.no_grad()
def entries_by_hand(net, config, data, t, k):
    rows, count = rows_of(data, k), config.dictionary_samples or max(SIZES)
    own = rows.table[0, : int(rows.sizes)]
    chosen = own[torch.from_numpy(stream(0, "dictionary samples", t, k).permutation(len(own)))][:count]
    which = stream(0, "dictionary views", t, k).integers(0, data.bank.shape[1], len(chosen))
    return normalize(net.encoder(data.bank[chosen, torch.from_numpy(which)]))


def by_hand(method, config, data=SMALL):
    """The global model and the dictionary after all rounds."""
    algorithm = METHODS[method](config, data.encoder, data.views, method)
    net, dictionary = Net(algorithm), {}
    base = base_by_hand(net, config, data) if config.alignment else None
    theta = algorithm.init(stream(0, "init"), torch.float64)
    for t in range(config.rounds):
        cohort, uploads = FixedSize(config.cohort).draw(5, stream(0, "cohort", t)).tolist(), {}
        lr = config.lr * (1 + math.cos(math.pi * t / config.rounds)) / 2
        net.load(theta)
        if method == "fedca":
            dictionary |= {k: entries_by_hand(net, config, data, t, k) for k in cohort}
        for k in cohort:
            net.load(theta)
            optimiser = torch.optim.SGD(net.parameters(), lr, config.momentum, weight_decay=config.weight_decay)
            if method == "fedca":
                losses = losses_of_fedca(net, dictionary, config, data, t, k, base)
            else:
                losses = losses_of_fedx(net, copy.deepcopy(net.encoder), config, data, t, k)
            for loss in losses:
                step(optimiser, loss, config.max_norm)
            uploads[k] = net.theta()
        total = sum(SIZES[k] for k in cohort)
        theta = {n: sum(SIZES[k] / total * uploads[k][n] for k in cohort) for n in theta}
    return theta, dictionary


@pytest.mark.parametrize("how", ["vmap", "loop"])
@pytest.mark.parametrize(
    ("method", "config"),
    [("fedx", PLAIN), ("fedca", PLAIN), ("fedca", replace(PLAIN, dictionary_samples=0, rounds=2)), ("fedca", ALIGNED)],
    ids=["fedx", "fedca", "fedca-all", "fedca-aligned"],
)
def test_rounds_are_a_plain_loop_over_clients(method, config, how):
    ours = trained(method, config, how=how, chunk=2)
    theta, dictionary = by_hand(method, config)
    assert gap(tree_map(lambda x: x[0], ours.server["theta"]), theta) < 1e-10
    for k, entries in dictionary.items():
        assert gap(ours.server["dictionary"][0, k, : len(entries)], entries) < 1e-10


# --- FedCA


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_filled_rows_come_back_bit_for_bit(dtype):
    tables = torch.randn(4, 5, 3).to(dtype)
    tables[0, 3:], tables[1], tables[2, 1] = 0, 0, 0  # zeros at the end, nothing, a zero row between others
    tables[3, 4, 0] = math.nan
    buffers = FilledRows().encode({"": tables}, [])
    assert [b.nbytes for b in buffers] == [4 + 3 * n * tables.element_size() for n in (3, 0, 5, 5)]
    decoded = FilledRows().decode(buffers, {"": tables})[""]
    assert decoded.dtype == dtype and torch.equal(decoded.nan_to_num(7.0), tables.nan_to_num(7.0))
    cut, none, more = Encoded(buffers[0].buffer[:-1]), Encoded(torch.zeros(3).byte()), buffers[0].buffer.clone()
    more[:4] = torch.tensor([6], dtype=torch.int32).view(torch.uint8)
    negative = torch.tensor([-1], dtype=torch.int32).view(torch.uint8)
    for hostile in (cut, none, Encoded(more), Encoded(negative)):
        with pytest.raises(ValueError, match="^buffer 1, bytes"):
            FilledRows().decode([buffers[0], hostile, *buffers[2:]], {"": tables})
    with pytest.raises(ValueError, match="^buffers: got"):
        FilledRows().decode(buffers[:3], {"": tables})
    wire = filled_wire(tables[None])
    assert [b.nbytes for b in wire.buffers[0]] == [b.nbytes for b in buffers] and wire.value.shape == (1, 4, 5, 3)


def test_fedcas_alignment_draws_every_encoder_to_the_base():
    """The base goes out once, before the first round; with weight 0 nothing of it is there."""
    far, sent = {}, 5 * 8 * 6 * ALIGNED.alignment_samples
    for weight in (1e-9, 3.0):
        rounds = trained("fedca", replace(ALIGNED, alignment=weight, rounds=6, alignment_epochs=20))
        assert rounds.bytes.total["setup"] == {"up": [0], "down": [sent]}
        shown = SMALL.views.plain(rounds.algorithm.public.double())
        z = SMALL.encoder.apply(tree_map(lambda x: x[0], rounds.server["theta"]), shown)
        far[weight] = float(alignment_loss(z, rounds.clients["all"]["target"][0, 0]))
    assert far[3.0] < 0.5 * far[1e-9]
    plain = reference("fedca")
    assert plain.clients == {} and plain.bytes.total["setup"] == {"up": [0], "down": [0]}


def test_fedca_does_not_call_the_clients_own_images_public():
    chosen = plan(PAPER, "fedca", "digits", changes={"alignment": 1.0, "alignment_source": "digits"}, device="cpu")
    with pytest.raises(ValueError, match="alignment_source: got 'digits'; allowed is a source that is not"):
        chosen.rounds()


# --- seeds, resumption, bytes, privacy, arguments


def test_fedca_sends_the_encoder_once_and_the_dictionary():
    rounds, known = reference("fedca"), set()
    model = 8 * rounds.algorithm.encoder.size

    def entries(k):
        return 4 + 8 * 6 * min(13, SIZES[k])

    for t, record in enumerate(rounds.history):
        there = FixedSize(3).draw(5, stream(0, "cohort", t)).tolist()
        known |= set(there)
        assert record.bytes_up == [sum(model + entries(k) for k in there)]
        assert record.bytes_down == [3 * (model + sum(entries(k) if k in known else 4 for k in range(5)))]
    assert set(rounds.bytes.by_exchange) == {"dictionary", "train"} and min(SIZES) < 13 < max(SIZES)
