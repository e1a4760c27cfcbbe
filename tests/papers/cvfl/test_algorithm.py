"""C-VFL against plain loops, its reductions, what crosses, and repetition."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.func import functional_call

from fedbook.compression import HEADER_BYTES
from fedbook.compression.secure_sum import party_dither
from fedbook.federation import CheckpointError, Rounds
from fedbook.federation.cohort import Everyone
from fedbook.federation.exchange import Total
from fedbook.federation.loop import run
from fedbook.federation.tree import leaves, tree_map
from fedbook.learning.models import Network
from fedbook.papers.cvfl import CVFL, METHODS, Config, batch_ids
from fedbook.papers.cvfl.accounts import bits_per_round
from fedbook.papers.cvfl.problem import VerticalProblem, VerticalSettings, batch_loss
from fedbook.papers.cvfl.towers import fusion, tower
from fedbook.randomness import normal, stream
from fedbook.wire import Wire

N, CLASSES = 30, 3
SHAPES = {"equal": [(4,)] * 4, "unequal": [(5,), (5,), (3,)], "alone": [(6,)]}


def toy(parts="equal", **changes):
    """A problem of random numbers in float64; labels depend on all parties."""
    settings = VerticalSettings(**{"embedding": 6, "parties": len(SHAPES[parts]), "tower": "mlp"} | changes)
    shaped = {}
    for m, shape in enumerate(SHAPES[parts]):
        x = normal((N, *shape), stream(0, "toy", client=m))
        shaped.setdefault(shape, []).append(x)
    total = torch.cat([x for xs in shaped.values() for x in xs], 1)
    y = (total @ normal((total.shape[1], CLASSES), stream(0, "toy labels"))).argmax(1)
    stacked = {f"parties {shape[0]}": torch.stack(xs) for shape, xs in shaped.items()}
    towers = {word: tower(settings.tower, tuple(x.shape[2:]), settings.embedding, settings.activation)
              for word, x in stacked.items()}  # fmt: skip
    net = fusion(settings.fusion, [settings.embedding] * settings.parties, CLASSES)
    return VerticalProblem("toy", settings, stacked, y, stacked, y, ("a", "b", "c"), towers, net)


def start(problem, config, method="c-vfl", rounds=3, seeds=(0,), **options):
    algorithm = CVFL(replace(config, rounds=rounds), problem, method, options.pop("first", None))
    down = METHODS[method].down
    federation = problem.pooled() if down == "nothing" else problem.federation(down in ("views", "sum"))
    return Rounds(algorithm, federation, rounds, seeds=seeds, **options)


def models(rounds, slot=0):
    """theta_0 and the parties' parameters in one flat list of dictionaries, party by party."""
    clients = tree_map(lambda x: x.clone(), rounds.clients)  # a run writes into them
    if "all" in clients:
        own = {word: {k: v[slot, 0] for k, v in tree.items()} for word, tree in clients["all"]["theta"].items()}
        first = {k: v[slot, 0] for k, v in clients["all"]["theta0"].items()}
    else:
        own = {word: {k: v[slot] for k, v in tree["theta"].items()} for word, tree in clients.items()}
        first = {k: v[slot] for k, v in rounds.server["theta0"].items()}
    parties = [
        {k: v[m] for k, v in tree.items()} for tree in own.values() for m in range(len(next(iter(tree.values()))))
    ]
    return first, parties


def gap(a, b):
    """The largest difference between two results of :func:`models`."""
    (server_a, parties_a), (server_b, parties_b) = a, b
    pairs = list(zip([server_a, *parties_a], [server_b, *parties_b], strict=True))
    return max(float((x[k] - y[k]).abs().max()) for x, y in pairs for k in x)


CONFIG = Config(batch_size=8, local_steps=3, lr=0.3, compressor="none")
LOSSY = {
    "scalar": replace(CONFIG, compressor="scalar", bits=2),
    "hex": replace(CONFIG, compressor="hex", bits=3),
    "topk": replace(CONFIG, compressor="topk", bits=8),
    "magnitude": replace(CONFIG, compressor="topk", bits=8, rule="magnitude"),
    "randomk": replace(CONFIG, compressor="randomk", bits=8),
}


class PlainLoop:
    """Algorithm 1, one party after another with autograd, on the views that really came.

    It shares no code with the package but the networks' modules; what was sent is read off the exchanges.
    """

    def __init__(self, problem, first, parties, config):
        self.problem, self.config = problem, config
        self.theta0 = {k: v.clone() for k, v in first.items()}
        self.parties = [{k: v.clone() for k, v in theta.items()} for theta in parties]
        self.x = [part for stacked in problem.parts.values() for part in stacked]
        self.nets = [problem.towers[word].module for word, stacked in problem.parts.items() for _ in stacked]
        self.loss = batch_loss(problem.settings.loss)

    def fuse(self, theta0, embeddings):
        z = torch.cat(embeddings, 1) if self.problem.settings.fusion.startswith("concat") else sum(embeddings)
        return self.problem.fusion.apply(theta0, z)

    def steps(self, own, value):
        """Q gradient steps on a dictionary of parameters."""
        for _ in range(self.config.local_steps):
            leaf = {k: v.detach().requires_grad_() for k, v in own.items()}
            grads = torch.autograd.grad(value(leaf), list(leaf.values()))
            own = {k: v - self.config.lr * g for (k, v), g in zip(own.items(), grads, strict=True)}
        return own

    def round(self, ids, views, server_view):
        y, snapshot = self.problem.y[ids], self.theta0
        moved = []
        for m, theta in enumerate(self.parties):

            def party(leaf, m=m):
                fresh = functional_call(self.nets[m], leaf, (self.x[m][ids],))
                return self.loss(self.fuse(server_view, [fresh if j == m else v for j, v in enumerate(views)]), y)

            moved.append(self.steps(theta, party))  # fmt: skip
        if snapshot:
            self.theta0 = self.steps(snapshot, lambda leaf: self.loss(self.fuse(leaf, views), y))
        self.parties = moved


def recorded(rounds):
    """Run; by round the views and the server's view as they crossed."""
    found = []

    def observe(exchange, uploads):
        if exchange.name == "embeddings":
            found.append({"views": [uploads.relay("h", m) for m in range(rounds.algorithm.parties)]})
        elif exchange.name == "views":
            found[-1]["theta0"] = exchange.down["theta0"]

    def plain(leaf):
        return leaf.value[0] if isinstance(leaf, Wire) else leaf[0]

    rounds.observe = observe
    run(rounds)
    return [([plain(v) for v in r["views"]], {k: plain(v) for k, v in r["theta0"].items()}) for r in found]


@pytest.mark.parametrize("parts", ["equal", "unequal"])
@pytest.mark.parametrize("how", ["vmap", "loop"])
@pytest.mark.parametrize("settings", [{}, {"fusion": "sum"}, {"fusion": "concat_mlp"}, {"activation": "linear"}])
@pytest.mark.parametrize("config", ["none", *LOSSY])
def test_the_batched_round_is_the_plain_loop(parts, how, settings, config):
    problem, config = toy(parts, **settings), LOSSY.get(config, CONFIG)
    rounds = start(problem, config, rounds=4, how=how)
    plain = PlainLoop(problem, *models(rounds), config)
    for t, (views, theta0) in enumerate(recorded(rounds)):
        plain.round(batch_ids(0, t, N, config.batch_size), views, theta0)
    assert gap(models(rounds), (plain.theta0, plain.parties)) < 1e-11


@pytest.mark.parametrize("parts", ["equal", "unequal", "alone"])
def test_one_step_without_compression_is_sgd_on_the_joint_model(parts):
    problem, config = toy(parts), replace(CONFIG, local_steps=1)
    split, central = (run(start(problem, config, method, rounds=50)) for method in ("c-vfl", "central"))
    assert gap(models(split), models(central)) < 1e-12


@pytest.mark.parametrize("parts", ["equal", "unequal"])
def test_algorithm_2_is_algorithm_1_with_one_step_only_without_compression(parts):
    problem, one = toy(parts), replace(CONFIG, local_steps=1)
    pair = [run(start(problem, one, method, rounds=20)) for method in ("c-vfl", "c-vfl-one-step")]
    assert gap(*map(models, pair)) < 1e-12
    lossy = replace(one, compressor="scalar", bits=3, compress_server=False)
    a, b = (models(run(start(problem, lossy, method, rounds=1))) for method in ("c-vfl", "c-vfl-one-step"))
    assert gap((a[0], []), (b[0], [])) < 1e-12  # the server's block is the same,
    assert gap(({}, a[1]), ({}, b[1])) > 1e-4  # a party's own is not: fresh there, as decoded here


@pytest.mark.parametrize("kind", ["mine", "mlp"])
def test_a_checkpoint_of_other_networks_of_ones_own_is_refused(tmp_path, kind):
    problem = toy("alone")

    def mine(between):
        layers = nn.Sequential(nn.Linear(6, 6), between, nn.Linear(6, 6))
        return replace(problem, towers={"parties 6": Network.of(kind, lambda: layers)})

    run(start(mine(nn.Tanh()), CONFIG, rounds=1, path=tmp_path / "run.pt"))
    with pytest.raises(CheckpointError, match="towers"):
        start(mine(nn.ReLU()), CONFIG, rounds=2, path=tmp_path / "run.pt", resume=True)


@pytest.mark.parametrize("method", ["c-vfl", "central"])
def test_first_models_that_are_given_are_copied_and_tell_runs_apart(method, tmp_path):
    problem = toy()
    drawn = {"theta0": start(problem, CONFIG).server["theta0"]}
    drawn |= {word: own["theta"] for word, own in start(problem, CONFIG).clients.items()}
    kept = tree_map(torch.clone, drawn)
    given = [models(run(start(problem, CONFIG, method, first=drawn, path=tmp_path / "run.pt"))) for _ in range(2)]
    assert gap(given[0], given[1]) == gap(given[0], models(run(start(problem, CONFIG, method)))) == 0
    assert all(torch.equal(x, y) for (_, x), (_, y) in zip(leaves(drawn), leaves(kept), strict=True))
    with pytest.raises(CheckpointError, match="first"):
        other = tree_map(lambda x: x + 1, drawn)
        start(problem, CONFIG, method, first=other, path=tmp_path / "run.pt", resume=True)
    for wrong in (tree_map(lambda x: x[0], drawn), tree_map(torch.Tensor.float, drawn), {"theta0": drawn["theta0"]}):
        with pytest.raises(ValueError, match="^first: got"):
            start(problem, CONFIG, method, first=wrong)


def test_algorithm_2_steps_along_the_returned_derivative():
    problem = toy()
    config = replace(CONFIG, compressor="scalar", bits=3)
    rounds = start(problem, config, "c-vfl-one-step", rounds=1)
    first, parties = models(rounds)
    plain = PlainLoop(problem, first, parties, config)
    caught = []
    rounds.observe = lambda exchange, up: caught.append((exchange, up))
    run(rounds)
    (_, up), (exchange, _) = caught
    ids = batch_ids(0, 0, N, 8)
    views = [up.relay("h", m).value[0].requires_grad_() for m in range(4)]
    deltas = torch.autograd.grad(plain.loss(plain.fuse(first, views), problem.y[ids]), views)
    for m in range(4):
        assert (exchange.each["cotangent"][0, m] - deltas[m]).abs().max() < 1e-14
        leaf = {k: v.clone().requires_grad_() for k, v in parties[m].items()}
        functional_call(plain.nets[m], leaf, (plain.x[m][ids],)).backward(deltas[m])
        moved = {k: (v - config.lr * v.grad).detach() for k, v in leaf.items()}
        assert gap(({}, [moved]), ({}, [models(rounds)[1][m]])) < 1e-13


@pytest.mark.parametrize("rule", ["magnitude", "gradient"])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("compressor", ["none", "scalar", "hex", "topk"])
def test_without_labels_the_squared_loss_of_a_sum_is_learned_exactly(compressor, steps, rule):
    problem = toy(fusion="logits", embedding=CLASSES, loss="squared")
    config = replace(CONFIG, compressor=compressor, bits=16 if compressor == "topk" else 3, rule=rule)
    config = replace(config, local_steps=steps)
    pair = [run(start(problem, config, method, rounds=10)) for method in ("c-vfl", "private-labels")]
    assert gap(*map(models, pair)) < 1e-12
    assert all("y" not in group.samples for group in pair[1].federation.groups.values())


@pytest.mark.parametrize("settings", [{"fusion": "sum"}, {"fusion": "logits", "embedding": CLASSES}])
def test_secure_aggregation_is_the_plain_sum(settings):
    problem = toy(**settings)
    for bits in (2, 3, 8):
        config = replace(CONFIG, compressor="scalar", bits=bits, dither=False)  # the two draw dithers of their own
        pair = [run(start(problem, config, method, rounds=5)) for method in ("c-vfl", "secure-sum")]
        assert gap(*map(models, pair)) < 1e-12
        plain, secure = (rounds.bytes.total["rounds"] for rounds in pair)
        assert secure["down"][0] < plain["down"][0]  # one sum in place of four views


def test_under_secure_aggregation_the_server_sees_the_sum_of_dithered_views():
    problem = toy(fusion="sum")
    config = replace(CONFIG, compressor="scalar", bits=3)
    rounds, caught = start(problem, config, "secure-sum", rounds=1), []
    _, parties = models(rounds)
    rounds.observe = lambda exchange, up: caught.append((exchange, up))
    run(rounds)
    codes, ids = caught[1][0].down["codes"].value[0], batch_ids(0, 0, N, 8)
    step, total = 2 / 7, 0
    for m, x in enumerate(next(iter(problem.parts.values()))):
        h = functional_call(problem.towers["parties 4"].module, parties[m], (x[ids],))
        total = total + ((h + 1) / step + party_dither(0, 0, m, tuple(h.shape)).double()).round().clamp(0, 7)
    assert torch.equal(codes, total.long())
    assert isinstance(caught[0][1], Total)  # nobody's own message is there to be read


def test_bytes_are_the_literal_account_and_the_headers():
    problem = toy(embedding=32)
    for name, bits in (("scalar", 2), ("scalar", 3), ("hex", 2), ("none", 32)):
        config = replace(CONFIG, compressor=name, bits=bits)
        rounds = run(start(problem, config, rounds=3))
        up, down = bits_per_round("literal", 8, [32] * 4, 4 * 32 * CLASSES, bits)
        header, width = (0, 64) if name == "none" else (HEADER_BYTES, bits)  # the toy's plain numbers have 64 bits
        up, down = up * width // bits // 8, down * width // bits // 8
        bias = CLASSES * 8  # vectors go as they are
        total = rounds.bytes.total["rounds"]
        assert total["up"] == [3 * (up + 4 * header)]
        assert total["down"] == [3 * (down + 4 * (5 * header + bias))]


def test_top_k_ranks_by_the_last_gradient_of_the_round_before():
    problem = toy(embedding=8)
    config = replace(CONFIG, compressor="topk", bits=8, compress_server=False)  # k = 2
    rounds = start(problem, config, rounds=2)
    views = recorded(rounds)
    first = [(v != 0).sum(1) for v in views[0][0]]
    assert all(bool((kept == 2).all()) for kept in first)  # by magnitude, vector by vector
    plain = PlainLoop(problem, *models(start(problem, config)), config)
    ids = batch_ids(0, 0, N, 8)
    for m in range(4):
        own = plain.parties[m]
        for _ in range(3):
            leaf = {k: v.detach().requires_grad_() for k, v in own.items()}
            h = functional_call(plain.nets[m], leaf, (plain.x[m][ids],))
            value = plain.loss(
                plain.fuse(views[0][1], [h if j == m else v for j, v in enumerate(views[0][0])]), problem.y[ids]
            )
            *grads, back = torch.autograd.grad(value, [*leaf.values(), h])
            own = {k: v - config.lr * g for (k, v), g in zip(own.items(), grads, strict=True)}
        kept = back.sum(0).abs().topk(2).indices.sort().values
        columns = (views[1][0][m] != 0).any(0).nonzero().flatten()
        assert torch.equal(columns, kept)


def fitting(method):
    """A toy problem and a lossy configuration for a method."""
    settings = {"fusion": "sum"} if method in ("secure-sum", "private-labels") else {}
    problem = toy("alone" if method == "split-learning" else "unequal", **settings)
    return problem, LOSSY["scalar" if method == "secure-sum" else "topk"]


@pytest.mark.parametrize("method", [method for method in METHODS if method != "central"])
def test_the_order_of_the_parties_does_not_matter(method, monkeypatch):
    problem, config = fitting(method)
    one = run(start(problem, config, method))
    monkeypatch.setattr(Everyone, "draw", lambda self, k, rng: torch.arange(k).flip(0))
    assert gap(models(one), models(run(start(problem, config, method)))) == 0.0


def test_k_follows_the_width_that_the_towers_have():
    """A problem made by hand may leave the settings' embedding at its default."""
    problem = toy(embedding=8)
    by_hand = replace(problem, settings=replace(problem.settings, embedding=32))
    config = replace(LOSSY["topk"], bits=16)
    assert gap(*(models(run(start(p, config))) for p in (problem, by_hand))) == 0.0


def test_system_noise_is_refused_only_where_a_party_must_repeat_a_dither():
    problem = toy(fusion="logits", embedding=CLASSES, loss="squared")

    def last(config):
        return run(start(problem, config, "private-labels", noise_seeds="system")).t

    config = replace(CONFIG, compressor="topk", bits=16)
    assert last(config) == last(replace(CONFIG, compressor="scalar", bits=3, dither=False)) == 3
    with pytest.raises(ValueError, match="^noise_seeds: got 'system'"):
        last(replace(CONFIG, compressor="scalar", bits=3))


def test_methods_that_do_not_fit_the_problem_say_what_does():
    with pytest.raises(ValueError, match="fusion"):
        CVFL(LOSSY["scalar"], toy(), "secure-sum")
    with pytest.raises(ValueError, match="compressor"):
        CVFL(LOSSY["hex"], toy(fusion="sum"), "secure-sum")
    with pytest.raises(ValueError, match="batch_size"):
        CVFL(replace(CONFIG, batch_size=N + 1), toy())
    with pytest.raises(ValueError, match="method"):
        CVFL(CONFIG, toy(), "zip")
    with pytest.raises(ValueError, match="parties"):
        CVFL(CONFIG, toy(), "split-learning")
    with pytest.raises(TypeError, match="bits"):
        Config(bits=32.0)
    with pytest.raises(ValueError, match="k"):  # 2 bits of 8 components are less than one number
        run(start(toy(embedding=8), replace(LOSSY["topk"], bits=2), rounds=1))


@pytest.mark.parametrize("lr", [1e30, 1e37, 3e37, 1e38])
@pytest.mark.parametrize("config", ["none", "scalar", "hex"])
def test_a_run_that_diverged_stops_with_a_word_and_what_it_has(config, lr):
    problem = toy(activation="linear")
    rounds = run(start(problem, replace(LOSSY.get(config, CONFIG), lr=lr), rounds=20, evaluate=problem.evaluation()))
    assert rounds.diverged and "finite" in rounds.stopped and 0 < len(rounds.history) < 20


def test_a_secure_sum_that_diverged_stops_as_well():
    problem = toy(activation="tanh", fusion="sum")
    config = replace(LOSSY["scalar"], lr=1e38)
    rounds = run(start(problem, config, "secure-sum", rounds=20, evaluate=problem.evaluation()))
    assert rounds.diverged and "finite" in rounds.stopped
