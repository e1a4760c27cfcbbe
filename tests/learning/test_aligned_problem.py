"""Who holds what in chapter 2, and how its clients are judged: against scikit-learn, by hand, and at the edges."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from fedbook import data
from fedbook.federation import tree_map
from fedbook.learning.adam_probe import adam_probe
from fedbook.learning.aligned_problem import AlignedSettings, aligned_problem, mean_pair
from fedbook.learning.alignment_set import alignment_images
from fedbook.learning.models import stack
from fedbook.learning.online import online, without_predictor
from fedbook.learning.probe import few_labels
from fedbook.learning.problems import pixel_moments
from fedbook.randomness import normal, stream

SETTINGS = AlignedSettings(
    train_samples=260, test_samples=90, clients=5, alignment_samples=30, width=9, model="mlp",
    architectures="mlp,cnn_s:7", neighbours=5,
)  # fmt: skip


def problem(seeds=(0,), **changes):
    return aligned_problem("digits", replace(SETTINGS, **changes), seeds, dtype=torch.float64)


SMALL = problem()


def pixels(x):
    """Images as a multiset: how often each one is there."""
    return Counter(tuple(row) for row in (x.double() * 16).round().to(torch.int64).flatten(1).tolist())


# --- settings


@pytest.mark.parametrize(
    ("field", "bad"),
    [("architectures", [None, 3, "", ",", "cnn_s,", "lenet", "cnn_s:", "cnn_s:0", "cnn_s:-3", "cnn_s:x", "cnn_s:2.5",
                        "cnn_s:²", ":8", "cnn_s:8:9", "cnn_s,mlp,cnn_s", "mlp,resnet99"]),
     ("assignment", [None, "all", 3]), ("alignment_samples", [0, 1, -4, 2.0, None, "x", True, math.inf]),
     ("alignment_source", [None, "imagenet", 3]), ("probe", ["adam", None])],
)  # fmt: skip
def test_bad_settings_are_named(field, bad):
    for value in bad:
        with pytest.raises((TypeError, ValueError), match=f"^{field}: got"):
            AlignedSettings(**{field: value})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"alignment_source": "digits"}, "^alignment_source: got 'digits'; allowed is holdout"),
        ({"alignment_source": "mnist"}, "^alignment_source: got 'mnist', whose images are 1 x 28 x 28; .*1 x 8 x 8"),
        ({"alignment_samples": 260}, "^alignment_samples: got 260; allowed is fewer than the 260"),
        (
            {"alignment_source": "photographs", "alignment_samples": 10**8},
            "^alignment_samples: got 100000000; .*at most",
        ),
        ({"architectures": "cnn_s", "projector": "none"}, "^width: got 9; allowed is 48"),
        ({"train_samples": 5000}, "^train_samples: got 5000"),
        ({"partition": "iid", "clients": 1000}, "clients: got 1000"),
    ],
)
def test_problems_that_cannot_be_are_named(changes, words):
    with pytest.raises(ValueError, match=words):
        problem(**changes)


def test_settings_of_another_kind_are_refused():
    with pytest.raises(TypeError, match="^settings: got"):
        aligned_problem("digits", {"clients": 5})


def test_architectures_and_who_has_them():
    settings = replace(SETTINGS, architectures=" mlp , cnn_s:7,cnn_s:24", clients=8)
    assert settings.words() == {"mlp": ("mlp", 9), "cnn_s:7": ("cnn_s", 7), "cnn_s:24": ("cnn_s", 24)}
    assert settings.assigned() == ["mlp", "cnn_s:7", "cnn_s:24"] * 2 + ["mlp", "cnn_s:7"]
    random = replace(settings, assignment="random", clients=300)
    counts = Counter(random.assigned())
    assert random.assigned() == random.assigned() and set(counts) == set(settings.words())
    assert all(abs(n - 100) < 4 * math.sqrt(300 * 2 / 9) for n in counts.values())
    assert random.assigned()[:8] != settings.assigned()
    made = problem(architectures="mlp,cnn_s:7,cnn_s:24", clients=2, partition="iid")
    assert list(made.encoders) == ["mlp", "cnn_s:7"] and made.assigned == ("mlp", "cnn_s:7")  # nobody has the third
    assert [net.width for net in made.encoders.values()] == [9, 7] and made.model.width == 9
    assert [net.feature_width for net in made.encoders.values()] == [64, 48]
    assert made.model.feature_width == 64 and all(net.normalised for net in made.encoders.values())


# --- who holds what


@pytest.mark.parametrize("judge", ["test", "validation"])
def test_alignment_training_and_test_images_are_disjoint(judge):
    """As multisets they make up what there is: nothing twice, nothing lost."""
    images = data.load("digits", dtype=torch.uint8)
    whole = problem(train_samples=0, test_samples=0, judge=judge, alignment_samples=100)
    train, test = images.train_x / 16, images.test_x / 16
    parts = pixels(whole.x) + pixels(whole.alignment)
    assert len(whole.alignment) == 100 and len(whole.x) == len(whole.y)
    if judge == "test":
        assert parts == pixels(train) and pixels(whole.test_x) == pixels(test)
    else:
        assert parts + pixels(whole.test_x) == pixels(train)
    owned = [
        set(rows[:n].tolist()) for rows, n in zip(whole.partitions[0].table, whole.partitions[0].sizes, strict=True)
    ]
    assert sum(map(len, owned)) == len(set().union(*owned)) == len(whole.x)


def test_the_alignment_set_is_the_same_for_all_seeds_and_splits():
    a, b = problem(seeds=(0,)), problem(seeds=(7,), partition="dirichlet", clients=3)
    assert torch.equal(a.alignment, b.alignment) and torch.equal(a.x, b.x)
    two = problem(seeds=(0, 7), partition="dirichlet")
    assert not torch.equal(two.partitions[0].table, two.partitions[1].table)


@pytest.mark.parametrize("source", ["noise", "photographs"])
def test_alignment_images_from_elsewhere_leave_the_training_images_alone(source):
    made = problem(alignment_source=source)
    assert len(made.x) == 260 and torch.equal(made.alignment, alignment_images(source, 30, (1, 8, 8)).double())


def test_pixels_are_normalised_by_the_training_images_alone():
    mean, deviation = pixel_moments((SMALL.x * 16).round().to(torch.uint8))
    assert pytest.approx(mean / 16) == SMALL.views.mean and pytest.approx(deviation / 16) == SMALL.views.deviation
    assert float(SMALL.views.plain(SMALL.x).mean()) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("bank", [0, 4])
def test_clients_by_architecture_never_see_a_label(bank):
    made = problem(bank=bank, seeds=(0, 1))
    personal = made.federation()
    assert {w: g.ids.tolist() for w, g in personal.groups.items()} == {"mlp": [0, 2, 4], "cnn_s:7": [1, 3]}
    for group in personal.groups.values():
        assert set(group.samples) == ({"bank"} if bank else {"x"})
    for slot, split in enumerate(made.partitions):
        for group in personal.groups.values():
            assert torch.equal(group.sizes[slot], split.sizes[group.ids])
    one = made.federation(personal=False).groups["all"]
    assert set(one.samples) == {"bank" if bank else "x", "y"} and torch.equal(one.samples["y"], made.y)
    pooled = made.federation(personal=False, pooled=True)
    assert pooled.num_clients == 1 and pooled.sizes.tolist() == [[len(made.x)]] * 2


@pytest.mark.parametrize("bank", [0, 4])
def test_extended_clients_also_hold_the_alignment_images(bank):
    made = problem(bank=bank, seeds=(0, 1))
    plain, more = made.federation(), made.federation(extended=True)
    assert torch.equal(more.sizes, plain.sizes + 30)
    for word, group in more.groups.items():
        assert set(group.samples) == ({"bank"} if bank else {"x"})  # nor labels
        held = next(iter(group.samples.values()))
        assert len(held) == len(made.x) + 30
        if not bank:
            assert torch.equal(held, torch.cat([made.x, made.alignment]))
        before = plain.groups[word]
        for slot in range(2):
            for place, n in enumerate(before.sizes[slot].tolist()):
                rows = group.table[slot, place, : n + 30]
                assert torch.equal(rows[:n], before.table[slot, place, :n])
                assert rows[n:].tolist() == list(range(len(made.x), len(made.x) + 30))


def test_own_classes_are_those_of_the_split():
    made = problem(seeds=(0, 3))
    for slot, split in enumerate(made.partitions):
        for k in range(5):
            rows = split.table[k, : int(split.sizes[k])]
            assert made.own_classes(slot, k).tolist() == sorted(set(made.y[rows].tolist()))
            assert len(made.own_classes(slot, k)) == 2
    assert len(problem(partition="iid").own_classes(0, 0)) == 10


# --- scores


def features(seed=0, spread=1.0):
    """Features that tell classes apart, but not well; columns of very different sizes."""
    centres = normal((10, 6), stream(seed, "centres"))
    scale = torch.tensor([1.0, 10.0, 0.1, 1.0, 3.0, 1.0], dtype=torch.float64)
    return tuple(
        (centres[y] + spread * normal((len(y), 6), stream(seed, word))) * scale + 2
        for word, y in (("train", SMALL.y), ("test", SMALL.test_y))
    )


def regression(train, y, test, answers, strength=1.0):
    scaler = StandardScaler().fit(train)
    fitted = LogisticRegression(C=strength, max_iter=10_000, tol=1e-10).fit(scaler.transform(train), y)
    return float(fitted.score(scaler.transform(test), answers))


@pytest.mark.parametrize("own", [[2, 5], [0, 3, 9]])
def test_scores_are_scikit_learn_s(own):
    train, test = features()
    y, answers, n = SMALL.y, SMALL.test_y, len(SMALL.test_y)
    found = SMALL.scores(train, test, torch.tensor(own))
    assert list(found) == ["knn", "probe", "probe_few", "own_classes"] and set(SMALL.scores(train, test)) == set(
        list(found)[:3]
    )
    near = KNeighborsClassifier(5, metric="cosine").fit(train, y)
    assert found["knn"] == pytest.approx(near.score(test, answers), abs=1e-12)
    # both minimise the same function, to a gradient of 1e-5 or less: at most one image near a border differs
    one = 1.01 / n
    assert found["probe"] == pytest.approx(regression(train, y, test, answers), abs=one)
    draws = [few_labels(y, 5, seed=i) for i in range(3)]
    few = [regression(train[rows], y[rows], test, answers) for rows in draws]
    assert found["probe_few"] == pytest.approx(sum(few) / 3, abs=one) and len(set(few)) > 1
    mine, judged = torch.isin(y, torch.tensor(own)), torch.isin(answers, torch.tensor(own))
    strength = 2.0 if len(own) == 2 else 1.0  # for two classes scikit-learn has one weight vector
    expected = regression(train[mine], y[mine], test[judged], answers[judged], strength)
    assert found["own_classes"] == pytest.approx(expected, abs=1.01 / int(judged.sum()))
    assert 0.3 < found["probe_few"] < found["probe"] < 1 and found["own_classes"] > found["probe"]


def test_one_own_class_and_all_of_them():
    train, test = features()
    assert SMALL.scores(train, test, torch.tensor([4]))["own_classes"] == 1.0
    everything = SMALL.scores(train, test, torch.arange(10))
    assert everything["own_classes"] == everything["probe"]


def test_the_paper_s_probe_is_adam_s():
    paper, (train, test) = problem(probe="paper"), features()
    found, exact = paper.scores(train, test), SMALL.scores(train, test)
    assert found["probe"] == adam_probe(train, SMALL.y).accuracy(test, SMALL.test_y)
    assert {k: v for k, v in found.items() if k != "probe"} == {k: v for k, v in exact.items() if k != "probe"}


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e16])
def test_features_that_are_not_finite_score_nan(bad):
    train, test = features()
    test[3, 2] = bad
    for pair in ((train, test), (test, train)):
        found = SMALL.scores(*pair, torch.tensor([1, 2]))
        assert len(found) == 4 and all(math.isnan(v) for v in found.values())


def test_few_images_are_judged_evenly_over_the_classes():
    made = problem(judged_samples=40, partition="iid")
    assert len(made.seen) == 40 and torch.bincount(made.y[made.seen]).tolist() == [4] * 10
    found = made.scores(*(x.flatten(1) for x in (made.x[made.seen], made.test_x)))
    assert 0.3 < found["probe_few"] < 1  # four labels a class, as there are no five


# --- the evaluation of a run


def nets_of(made):
    return {word: online(net, 8, directions="mean") for word, net in made.encoders.items()}


def drawn(made, seeds=(0,), offset=0):
    """Every client's parameters at the start, and the same as the clients' state of a run."""
    nets = nets_of(made)

    def initial(slot, client):
        return nets[made.assigned[client]].init(stream(seeds[slot], "init", client=client + offset), torch.float64)

    clients = {}
    for word in made.encoders:
        ids = [k for k, w in enumerate(made.assigned) if w == word]
        theta = stack([stack([initial(slot, k) for k in ids]) for slot in range(len(seeds))])
        clients[word] = {"theta": theta, "target": without_predictor(theta)}
    return nets, initial, clients


@pytest.fixture
def cheap(monkeypatch):
    """In place of accuracies numbers that depend on the same features and are made at once."""

    def scores(self, train, test, own=None):
        numbers = {"knn": float(train.mean()), "probe": float(test.square().mean()), "probe_few": float(test.std())}
        return numbers if own is None else numbers | {"own_classes": float(own.sum() + train[0, 0])}

    monkeypatch.setattr("fedbook.learning.aligned_problem.AlignedProblem.scores", scores)


def hsic_1(k, m):
    """Song et al.'s estimator with loops' worth of sums."""
    n, k, m = len(k), k - k.diag().diag(), m - m.diag().diag()
    one = torch.ones(n, dtype=k.dtype)
    first, second = (k @ m).trace(), (one @ k @ one) * (one @ m @ one) / ((n - 1) * (n - 2))
    return (first + second - 2 / (n - 2) * (one @ k @ m @ one)) / (n * (n - 3))


def pairwise(kernels):
    found = [hsic_1(k, m) / (hsic_1(k, k) * hsic_1(m, m)).sqrt()
             for i, k in enumerate(kernels) for m in kernels[:i]]  # fmt: skip
    return float(sum(found) / len(found))


def test_random_metrics_are_those_of_a_fresh_start():
    small = problem(architectures="cnn_s:7", clients=2, partition="iid", train_samples=150)
    nets, initial, clients = drawn(small)
    evaluate = small.evaluation(nets, "predictor", initial)
    fresh = {name: float(v[0]) for name, v in evaluate({}, clients).items()}
    for name in ("knn", "probe", "probe_few", "own_classes"):
        assert fresh[name] == fresh[f"random_{name}"]
    _, _, others = drawn(small, offset=50)
    later = {name: float(v[0]) for name, v in evaluate({}, others).items()}
    random = [name for name in fresh if name.startswith("random_")]
    assert len(random) == 4 and all(later[name] == fresh[name] for name in random)
    assert any(later[name] != fresh[name] for name in ("knn", "probe", "probe_few"))


@pytest.mark.parametrize("layer", ["predictor", "projector", "encoder"])
def test_personal_metrics_by_hand(layer, cheap):
    seeds = (0, 5)
    made = problem(seeds=seeds)
    nets, initial, clients = drawn(made, seeds)
    clients = {w: tree_map(lambda p: p + 0.05, state) for w, state in clients.items()}  # also running statistics
    found = made.evaluation(nets, layer, initial)({}, clients)
    assert all(values.shape == (2,) and values.dtype == torch.float64 for values in found.values())
    for slot in range(2):
        each, shown, losses = {}, {"alignment": [], "alignment_test": []}, []
        for word, net in nets.items():
            for place, k in enumerate(k for k, w in enumerate(made.assigned) if w == word):
                theta = tree_map(lambda p, s=slot, i=place: p[s, i], clients[word]["theta"])
                target = tree_map(lambda p, s=slot, i=place: p[s, i], clients[word]["target"])
                train, test = (net.encoder.features(theta, made.views.plain(x)) for x in (made.x, made.test_x))
                each.setdefault(word, []).append(made.scores(train, test, made.own_classes(slot, k)))
                for name, x in (("alignment", made.alignment), ("alignment_test", made.test_x)):
                    a = torch.cat([net.represent(theta, made.views.plain(row[None]), layer)[0] for row in x])
                    shown[name].append(a @ a.T)
                judged = made.views.make_bank(made.test_x, 2, "judged views")
                value = net.objective({**theta, "target": target}, judged, torch.ones(90, dtype=torch.float64))[0]
                losses.append(float(value))
        rows = [row for some in each.values() for row in some]
        for name in ("knn", "probe", "probe_few", "own_classes"):
            assert float(found[name][slot]) == pytest.approx(sum(row[name] for row in rows) / 5, abs=1e-12)
        for word, some in each.items():
            for name in ("probe", "probe_few"):
                mean = sum(row[name] for row in some) / len(some)
                assert float(found[f"{name}_by_architecture/{word}"][slot]) == pytest.approx(mean, abs=1e-12)
        for name, kernels in shown.items():
            assert float(found[name][slot]) == pytest.approx(pairwise(kernels), abs=1e-9)
        assert float(found["self_loss"][slot]) == pytest.approx(sum(losses) / 5, abs=1e-10)
        assert 1 <= float(found["rank"][slot]) <= 9
    assert float((found["probe_few"][0] - found["probe_few"][1]).abs()) > 0


def test_a_global_encoder_is_judged_once(cheap):
    net = online(SMALL.model, 8)
    theta = net.init(stream(0, "init"), torch.float64)
    evaluate = SMALL.evaluation({"all": net}, "predictor", lambda slot, client: theta)
    found = {name: float(v[0]) for name, v in evaluate({"theta": stack([theta])}, {}).items()}
    train, test = (net.encoder.features(theta, SMALL.views.plain(x)) for x in (SMALL.x, SMALL.test_x))
    scores = SMALL.scores(train, test)
    assert all(found[name] == found[f"random_{name}"] == value for name, value in scores.items())
    assert found["alignment"] == found["alignment_test"] == 1.0 and "own_classes" not in found
    assert found["probe_few_by_architecture/mlp"] == scores["probe_few"] and found["self_loss"] > 0 < found["rank"]
    supervised = evaluate({"theta": stack([without_predictor(theta)])}, {})  # without a predictor there is no such loss
    assert "self_loss" not in supervised and float(supervised["probe"][0]) == scores["probe"]


def test_pixels_are_judged_without_an_encoder(cheap):
    nets, initial, clients = drawn(SMALL)
    found = SMALL.evaluation(nets, "predictor", initial, raw=True)({}, clients)
    expected = SMALL.scores(SMALL.views.plain(SMALL.x).flatten(1), SMALL.views.plain(SMALL.test_x).flatten(1))
    assert {name: float(v[0]) for name, v in found.items()} == expected and expected["probe"] > 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e200])
def test_encoders_that_diverged_are_nan_and_no_error(bad):
    small = problem(clients=2, partition="iid", train_samples=150)
    nets, initial, clients = drawn(small)
    for part in clients["mlp"].values():
        part["backbone.1.weight"][0, 0] = bad
    found = small.evaluation(nets, "predictor", initial)({}, clients)
    for name in ("knn", "probe", "probe_few", "own_classes", "probe_few_by_architecture/mlp", "rank"):
        assert bool(found[name].isnan().all()), name
    for name in ("random_knn", "probe_few_by_architecture/cnn_s:7"):
        assert bool(found[name].isfinite().all()), name
    if not math.isfinite(bad):
        assert bool(found["alignment"].isnan().all()) and bool(found["self_loss"].isnan().all())


def test_a_client_alone_has_nobody_to_be_like(cheap):
    alone = problem(clients=1, partition="iid")
    nets, initial, clients = drawn(alone)
    found = alone.evaluation(nets, "predictor", initial)({}, clients)
    assert bool(found["alignment"].isnan().all()) and bool(found["probe"].isfinite().all())
    assert math.isnan(mean_pair([])) and math.isnan(mean_pair([torch.rand(5, 2)]))


def test_mean_pair_by_hand():
    a = [normal((n, d), stream(d, "a")) for n, d in ((12, 3), (12, 5), (12, 8))]
    assert mean_pair(a) == pytest.approx(pairwise([x @ x.T for x in a]), abs=1e-12)
    assert mean_pair([a[0], 3 * a[0] + 1]) == pytest.approx(1.0, abs=1e-12)
    few = [x[:3] for x in a[:2]]  # too few for the unbiased one: biased
    k, m = (x @ x.T for x in (y - y.mean(0) for y in few))
    assert mean_pair(few) == pytest.approx(float((k * m).sum() / (k.norm() * m.norm())), abs=1e-12)
