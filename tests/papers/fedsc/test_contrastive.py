"""FedX and FedCA: against loops written by hand, what enters the contrast, what crosses."""

import copy
import math
from dataclasses import fields, replace
from functools import cache

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, log_softmax, normalize

from fedbook.federation import FixedSize, Rounds, Rows, run, tree_map
from fedbook.federation.cohort import Cohort
from fedbook.federation.exchange import Exchange, Local
from fedbook.federation.local import epochs
from fedbook.learning import fedbyol
from fedbook.learning.online import only_predictor, without_predictor
from fedbook.learning.pretraining import PretrainingSettings, pretraining_problem
from fedbook.papers import fedsc
from fedbook.papers.fedsc import contrastive
from fedbook.papers.fedsc.contrastive import METHODS, Config, FedX, FilledRows, filled_wire
from fedbook.randomness import stream
from tests.papers.by_hand import gap, step

PLAIN = Config(
    rounds=3, cohort=3, local_epochs=1, batch_size=10, pairs=2, lr=0.2, momentum=0.5, weight_decay=1e-2, max_norm=1.0,
    contrast_temperature=0.3, predictor_hidden=12, dictionary_samples=13,
)  # fmt: skip


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


def losses_of_fedca(net, dictionary, config, data, t, k):
    rows, pairs = rows_of(data, k), config.pairs
    plan = epochs(rows, [stream(0, "batches", t, k)], config.local_epochs, config.batch_size)
    others = torch.cat([entries for j, entries in dictionary.items() if j != k])
    rng = stream(0, "views", t, k)
    for index, real in zip(plan.index[:, 0], plan.real[:, 0], strict=True):
        x = picked(data, rng, index, real, 2 * pairs)
        each = [(net.encoder(x[:, v]), net.encoder(x[:, v + pairs])) for v in range(pairs)]
        yield sum(nt_xent_by_hand(a, b, config.contrast_temperature, others) for a, b in each) / pairs


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
                losses = losses_of_fedca(net, dictionary, config, data, t, k)
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
    [("fedx", PLAIN), ("fedca", PLAIN), ("fedca", replace(PLAIN, dictionary_samples=0, rounds=2))],
    ids=["fedx", "fedca", "fedca-all"],
)
def test_rounds_are_a_plain_loop_over_clients(method, config, how):
    ours = trained(method, config, how=how, chunk=2)
    theta, dictionary = by_hand(method, config)
    assert gap(tree_map(lambda x: x[0], ours.server["theta"]), theta) < 1e-10
    for k, entries in dictionary.items():
        assert gap(ours.server["dictionary"][0, k, : len(entries)], entries) < 1e-10


# --- FedX


def halves(config, data=SMALL):
    """FedX's plan for all clients, as (anchors, references), each (index, real) [T, R, B]; and what it is made of."""
    group = data.federation().groups["all"]
    rows, ids = Rows(group.samples, group.table[0], group.sizes[0]), torch.arange(5)
    local = Local("all", {}, {}, rows, ids, (0,) * 5, 0)
    plan = FedX(config, data.encoder, data.views).plan_batches(local)
    index, real = (x.unflatten(2, (-1, 2)) for x in (plan.index, plan.real))
    return [(index[..., i], real[..., i]) for i in (0, 1)], local


def test_reference_samples_are_a_second_order_of_the_same_samples():
    config = replace(PLAIN, local_epochs=40)
    (anchors, others), local = halves(config)
    plain = epochs(local.data, local.streams("batches"), 40, config.batch_size)
    assert torch.equal(anchors[0], plain.index) and torch.equal(anchors[1], plain.real)  # as without references
    assert torch.equal(anchors[1], others[1])
    met = 0
    for k, size in enumerate(SIZES):
        for index, real in (anchors, others):
            seen = torch.bincount(index[:, k][real[:, k]], minlength=100)
            assert sorted(seen.tolist()) == [0] * (100 - size) + [40] * size  # each sample once an epoch
        met += int((anchors[0][:, k] == others[0][:, k])[anchors[1][:, k]].sum())
    # independent orders meet once an epoch on average, whatever the size, with variance 1
    assert abs(met - 5 * 40) < 4 * math.sqrt(5 * 40)


def a_batch(rows=4, pairs=2):
    algorithm = FedX(replace(PLAIN, pairs=pairs), SMALL.encoder, SMALL.views)
    theta, world = (algorithm.init(stream(s, "init"), torch.float64) for s in (0, 1))
    views = SMALL.bank[: 2 * rows, : 2 * pairs]
    return algorithm, theta | {"global": without_predictor(world)}, views


def test_fedx_does_not_count_filling_rows():
    algorithm, theta, views = a_batch()
    garbage = views.clone()
    garbage[6:] = 1e3  # the last sample and its reference
    weight = torch.tensor([1, 1, 1, 1, 1, 1, 0, 0], dtype=torch.float64)
    few = algorithm.objective(theta, views[:6], torch.ones(6, dtype=torch.float64))
    assert float(algorithm.objective(theta, garbage, weight)) == pytest.approx(float(few), abs=1e-12)


def test_fedx_with_the_trained_encoder_as_global_and_no_head_has_both_parts_equal():
    """h = identity and f_g = f: the global terms are the local ones, so the loss is twice them."""
    algorithm, theta, views = a_batch(pairs=1)
    algorithm.head = type("Identity", (), {"apply": staticmethod(lambda parameters, z: z)})
    theta["global"] = without_predictor(theta)
    z = algorithm.encoder.apply(theta, views.flatten(0, 1)).unflatten(0, views.shape[:2])
    a, b, r = z[0::2, 0], z[0::2, 1], z[1::2, 0]
    local = nt_xent_by_hand(a, b, 0.3) + relation_by_hand(a, b, r, 0.3)
    loss = algorithm.objective(theta, views, torch.ones(8, dtype=torch.float64))
    assert float(loss) == pytest.approx(2 * float(local), abs=1e-12)


# --- FedCA


def upload_of_client_0(dictionary, **changes):
    """What client 0 sends after training against ``dictionary`` [K, M, H]."""
    config = replace(PLAIN, cohort=0, **changes)
    rounds = rounds_of("fedca", config)
    rounds.simulator.open_round(0)
    down = {"theta": rounds.server["theta"], "dictionary": dictionary[None]}
    return rounds.simulator.deliver(Exchange(Cohort.of([[0]]), down=down, work=rounds.algorithm.train))["theta"]


def a_dictionary():
    entries = torch.from_numpy(stream(0, "entries").standard_normal((5, 9, 6)))
    return normalize(entries, dim=-1)


def test_own_entries_do_not_count_but_anothers_do():
    dictionary = a_dictionary()
    base = upload_of_client_0(dictionary)
    own, another = dictionary.clone(), dictionary.clone()
    own[0], another[3, 8] = -own[1], -another[3, 8]
    assert gap(upload_of_client_0(own), base) == 0
    assert gap(upload_of_client_0(another), base) > 1e-6


def test_absent_entries_do_not_count():
    """Zero rows are no entries: alone in the federation, or before anybody else sent any, it is NT-Xent."""
    dictionary = a_dictionary()
    nobody, long = torch.zeros_like(dictionary), torch.zeros(5, 20, 6, dtype=torch.float64)
    nobody[0], long[:, 3:12] = dictionary[0], dictionary
    assert gap(upload_of_client_0(long), upload_of_client_0(dictionary)) < 1e-12
    alone = upload_of_client_0(nobody)
    assert gap(alone, upload_of_client_0(dictionary)) > 1e-6
    data = problem(partition="iid", clients=1)
    single = rounds_of("fedca", replace(PLAIN, cohort=0), data)
    single.step()
    x, t = data.bank[:10, :4], PLAIN.contrast_temperature
    theta = tree_map(lambda p: p[0], single.server["theta"])
    z = data.encoder.apply(theta, x.flatten(0, 1)).unflatten(0, (10, 4))
    beside = {
        "dictionary": single.server["dictionary"][0].flatten(0, 1),
        "counts": torch.zeros(13, dtype=torch.float64),
    }
    loss = single.algorithm.objective(theta | beside, x, torch.ones(10, dtype=torch.float64))
    plain = (nt_xent_by_hand(z[:, 0], z[:, 2], t) + nt_xent_by_hand(z[:, 1], z[:, 3], t)) / 2
    assert float(loss) == pytest.approx(float(plain), abs=1e-12)


def test_absent_clients_entries_stay():
    rounds = rounds_of("fedca", replace(PLAIN, rounds=5, cohort=2))
    assert float(rounds.server["dictionary"].abs().max()) == 0
    known, stale = set(), 0
    for t in range(5):
        before = rounds.server["dictionary"][0].clone()
        rounds.step()
        now, there = rounds.server["dictionary"][0], FixedSize(2).draw(5, stream(0, "cohort", t)).tolist()
        known |= set(there)
        for k, size in enumerate(SIZES):
            lengths = now[k].norm(dim=1)
            filled = min(13, size) if k in known else 0
            assert lengths.tolist() == pytest.approx([1.0] * filled + [0.0] * (13 - filled), abs=1e-12)
            assert (gap(now[k], before[k]) == 0) == (k not in there)
            stale += k in known and k not in there
    assert stale > 3


def test_dictionary_in_blocks_is_the_same(monkeypatch):
    config = replace(PLAIN, rounds=1, dictionary_samples=0)
    whole = trained("fedca", config).server["dictionary"]
    monkeypatch.setattr(contrastive, "SAMPLES", 7)
    assert gap(trained("fedca", config).server["dictionary"], whole) < 1e-13


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_filled_rows_come_back_bit_for_bit(dtype):
    tables = torch.randn(4, 5, 3).to(dtype)
    tables[0, 3:], tables[1], tables[2, 1] = 0, 0, 0  # zeros at the end, nothing, a zero row between others
    tables[3, 4, 0] = math.nan
    buffers = FilledRows().encode({"": tables}, [])
    assert [b.nbytes for b in buffers] == [4 + 3 * n * tables.element_size() for n in (3, 0, 5, 5)]
    decoded = FilledRows().decode(buffers, {"": tables})[""]
    assert decoded.dtype == dtype and torch.equal(decoded.nan_to_num(7.0), tables.nan_to_num(7.0))
    wire = filled_wire(tables[None])
    assert [b.nbytes for b in wire.buffers[0]] == [b.nbytes for b in buffers] and wire.value.shape == (1, 4, 5, 3)


@pytest.mark.parametrize("bad", [None, "x", math.nan, torch.zeros(3), torch.zeros(2, 3, 4).long()])
def test_tables_that_are_none_are_refused_by_name(bad):
    with pytest.raises((TypeError, ValueError), match="^rows: got"):
        FilledRows().encode({"": bad}, [])
    with pytest.raises((TypeError, ValueError), match="^tables: got"):
        filled_wire(bad)


# --- seeds, resumption, bytes, privacy, arguments


@pytest.mark.parametrize("bank", [7, 0])
@pytest.mark.parametrize("method", METHODS)
def test_seeds_side_by_side_are_the_single_runs(method, bank):
    seeds, config = (3, 8), replace(PLAIN, rounds=2)
    both = trained(method, config, problem(bank, seeds), seeds=seeds)
    for slot, seed in enumerate(seeds):
        one = trained(method, config, problem(bank, (seed,)), seeds=(seed,))
        assert gap(one.server["theta"], tree_map(lambda x, s=slot: x[[s]], both.server["theta"])) < 1e-11


@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_is_the_whole_run(method, tmp_path):
    path = tmp_path / "run.pt"
    trained(method, total=1, path=path)
    resumed, whole = trained(method, path=path, resume=True), reference(method)
    assert gap(resumed.server, whole.server) == 0 and resumed.bytes.total == whole.bytes.total


def test_fedx_sends_encoder_and_head():
    rounds = reference("fedx")
    numbers = rounds.algorithm.encoder.size + (6 * 12 + 12) + (12 * 6 + 6)
    assert all(record.bytes_up == record.bytes_down == [3 * 8 * numbers] for record in rounds.history)


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


def test_what_leaves_is_declared():
    reports = {method: reference(method).privacy[0].report(1e-5) for method in METHODS}
    assert all(report["epsilon"] is None for report in reports.values())
    assert "representations of samples" in str(reports["fedca"]) and "heads" in str(reports["fedx"])


def test_settings_of_chapter_1_agree_where_they_share_a_name():
    """They are merged into one table."""
    found = {}
    for kind in (fedsc.Config, fedbyol.Config, Config, PretrainingSettings):
        for f in fields(kind):
            assert found.setdefault(f.name, f.default) == f.default, f.name
    assert fedsc.PAPER.defaults()["contrast_temperature"] == 0.1


@pytest.mark.parametrize(
    ("field", "values"),
    [("contrast_temperature", [0, -1, math.nan, math.inf, None, "x", True]),
     ("predictor_hidden", [-1, 2.0, None, "x"]), ("dictionary_samples", [-1, 2.0, None, "x", math.inf])],
)  # fmt: skip
def test_bad_settings_are_refused_by_name(field, values):
    for value in values:
        with pytest.raises((TypeError, ValueError), match=f"^{field}: got"):
            replace(PLAIN, **{field: value})
