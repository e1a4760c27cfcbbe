"""How chapter 2's clients are judged: against scikit-learn, by hand, and where nothing can be judged."""

import math
from dataclasses import replace

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from fedbook.federation import tree_map
from fedbook.learning.evaluation import few_labels
from fedbook.learning.models import stack
from fedbook.learning.online import online, without_predictor
from fedbook.papers.hetero_ssfl.evaluation import adam_probe, evaluation, scores
from fedbook.papers.hetero_ssfl.problem import aligned_problem
from fedbook.randomness import normal, stream
from tests.papers.hetero_ssfl.small import JUDGED, song


def problem(seeds=(0,), **changes):
    return aligned_problem("digits", replace(JUDGED, **changes), seeds, dtype=torch.float64)


SMALL = problem()


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


def test_the_paper_s_probe_is_torch_s_layer_trained_by_adam():
    h, y = normal((23, 4), stream(0, "h")), torch.arange(23) % 3
    layer, rng = torch.nn.Linear(4, 3).double(), stream(0, "adam probe layers")
    for parameter in layer.parameters():
        parameter.data = torch.from_numpy(rng.uniform(-0.5, 0.5, tuple(parameter.shape)))
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.01)
    for epoch in range(5):
        for rows in torch.from_numpy(stream(0, "adam probe", epoch).permutation(23)).split(10):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(layer(h[rows]), y[rows]).backward()
            optimiser.step()
    probe = adam_probe(h, 1 + 2 * y, epochs=5, batch_size=10, lr=0.01)
    torch.testing.assert_close(probe.scores(h), layer(h).detach(), rtol=0, atol=1e-12)
    assert probe.predict(h).tolist() == (1 + 2 * layer(h).argmax(1)).tolist() and probe.steps == 15


@pytest.mark.parametrize("own", [[2, 5], [0, 3, 9]])
def test_scores_are_scikit_learn_s(own):
    train, test = features()
    y, answers, n = SMALL.y, SMALL.test_y, len(SMALL.test_y)
    found = scores(SMALL, train, test, [torch.tensor(own)])
    assert list(found) == ["knn", "probe", "probe_few", "own_classes"] and set(scores(SMALL, train, test)) == set(
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

    monkeypatch.setattr("fedbook.papers.hetero_ssfl.evaluation.scores", numbers)


def numbers(problem, train, test, own=()):
    found = {"knn": float(train.mean()), "probe": float(test.square().mean()), "probe_few": float(test.std())}
    return found | ({"own_classes": float(own[0].sum() + train[0, 0])} if own else {})


def pairwise(kernels):
    found = [song(k, m) / (song(k, k) * song(m, m)).sqrt()
             for i, k in enumerate(kernels) for m in kernels[:i]]  # fmt: skip
    return float(sum(found) / len(found))


@pytest.mark.parametrize("layer", ["predictor", "projector", "encoder"])
def test_personal_metrics_by_hand(layer, cheap):
    seeds = (0, 5)
    made = problem(seeds=seeds)
    nets, initial, clients = drawn(made, seeds)
    clients = {  # also running statistics; and a target that is not the encoder
        w: {part: tree_map(lambda p, d=d: p + d, state[part]) for part, d in (("theta", 0.05), ("target", 0.1))}
        for w, state in clients.items()
    }
    found = evaluation(made, nets, layer, initial)({}, clients)
    assert all(values.shape == (2,) and values.dtype == torch.float64 for values in found.values())
    for slot in range(2):
        each, clients_own, shown, losses = {}, {}, {"alignment": [], "alignment_test": []}, []
        for word, net in nets.items():
            for place, k in enumerate(k for k, w in enumerate(made.assigned) if w == word):
                theta = tree_map(lambda p, s=slot, i=place: p[s, i], clients[word]["theta"])
                target = tree_map(lambda p, s=slot, i=place: p[s, i], clients[word]["target"])
                train, test = (net.encoder.features(theta, made.views.plain(x)) for x in (made.x, made.test_x))
                each.setdefault(word, []).append(numbers(made, train, test, [made.own_classes(slot, k)]))
                clients_own[k] = each[word][-1]
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
        for k, own in clients_own.items():
            for name in ("probe", "probe_few"):
                assert float(found[f"{name}_by_client/{k}"][slot]) == pytest.approx(own[name], abs=1e-12)
        for name, kernels in shown.items():
            assert float(found[name][slot]) == pytest.approx(pairwise(kernels), abs=1e-9)
        assert float(found["self_loss"][slot]) == pytest.approx(sum(losses) / 5, abs=1e-10)
        assert 1 <= float(found["rank"][slot]) <= 9
    assert float((found["probe_few"][0] - found["probe_few"][1]).abs()) > 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e200])
def test_encoders_that_diverged_are_nan_and_no_error(bad):
    small = problem(clients=2, partition="iid", train_samples=150)
    nets, initial, clients = drawn(small)
    for part in clients["mlp"].values():
        part["backbone.1.weight"][0, 0] = bad
    found = evaluation(small, nets, "predictor", initial)({}, clients)
    for name in ("knn", "probe", "probe_few", "own_classes", "probe_few_by_architecture/mlp", "rank"):
        assert bool(found[name].isnan().all()), name
    for name in ("random_knn", "probe_few_by_architecture/cnn_s:7"):
        assert bool(found[name].isfinite().all()), name
    if not math.isfinite(bad):
        assert bool(found["alignment"].isnan().all()) and bool(found["self_loss"].isnan().all())
