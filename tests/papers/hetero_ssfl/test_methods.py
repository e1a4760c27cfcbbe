"""The settings of Hetero-SSFL at their edges, and the methods of chapter 2 by name."""

import json
import math
from dataclasses import replace

import pytest
import torch

from fedbook import command
from fedbook.experiment import plan
from fedbook.federation import Rounds, run, tree_map
from fedbook.learning import fedbyol
from fedbook.learning.models import stack
from fedbook.papers import hetero_ssfl
from fedbook.papers.hetero_ssfl import METHODS, PAPER, Supervised
from fedbook.randomness import normal, stream
from tests.papers.by_hand import gap
from tests.papers.hetero_ssfl.small import PLAIN, SMALL, problem, rounds_of

# --- settings


def test_settings_that_do_not_go_together_are_refused_by_name():
    for changes, word in (
        ({"estimator": "unbiased", "alignment_batch": 3}, "alignment_batch"),
        ({"estimator": "unbiased", "centre": False}, "centre"),
        ({"kernel": "rbf", "send": "representations"}, "send"),
    ):
        with pytest.raises(ValueError, match=f"^{word}: got"):
            replace(PLAIN, **changes)
    for changes, data, word in (
        ({}, problem(alignment_samples=2), "alignment_samples"),  # of two images CKA is always 1
        ({"exclude_self": True}, problem(clients=1, partition="iid"), "exclude_self"),
        ({"estimator": "unbiased", "alignment_batch": 0}, problem(alignment_samples=3), "alignment_samples"),
    ):
        with pytest.raises(ValueError, match=f"^{word}: got"):
            rounds_of(replace(PLAIN, **changes), data)
    for changes, word in (({"weights": "0.5,0.5"}, "weights"), ({"weights": "0.2," * 5 + "0"}, "weights"),
                          ({"weights": "1,0,0,0,0", "exclude_self": True}, "weights"),
                          ({"cohort": 6}, "cohort")):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{word}: got"):
            rounds_of(replace(PLAIN, **changes))


def test_a_compressor_beside_exclude_self_is_refused():
    """A client takes off the kernel of what it has, not of what the server decoded."""
    changes = {"exclude_self": True, "compressor": "scalar"}
    with pytest.raises(ValueError, match="^compressor: got 'scalar'; allowed is none, as clients take off"):
        plan(PAPER, "hetero-ssfl", "digits", "quick", changes, (0,), "cpu").rounds()


def test_one_test_image_has_no_similarities():
    changes = dict(word.split("=") for word in TINY) | {"test_samples": 1}
    metrics = run(plan(PAPER, "hetero-ssfl", "digits", "quick", changes).rounds()).history[-1].metrics
    assert metrics["alignment_test"] == [None] and metrics["alignment"][0] > 0


# --- the methods by name


TINY = ["train_samples=130", "test_samples=40", "alignment_samples=20", "alignment_batch=12", "local_epochs=1",
        "rounds=1", "width=8", "model=mlp", "architectures=mlp,cnn_s:6"]  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_every_method_reports(method, capsys, monkeypatch):
    def scores(problem, train, test, own=()):
        names = ("knn", "probe", "probe_few", *(("own_classes",) if own else ()))
        return dict.fromkeys(names, float(test.square().mean()))

    monkeypatch.setattr("fedbook.papers.hetero_ssfl.evaluation.scores", scores)
    changes = [x for word in TINY for x in ("--set", word)]
    status = command.main(["run", "hetero_ssfl", "--device", "cpu", "--method", method, *changes])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert status == 0 and found["method"] == method and found["stopped"] is None
    metrics, personal = found["metrics"], method in hetero_ssfl.PERSONAL
    assert metrics["probe"] > 0 and metrics["probe_few"] > 0
    told, silent = found["privacy"], ("local-ssl", "local-ssl-plus-rad", "alignment-pass-only", "random-encoder")
    if method in (*silent, "raw-pixels"):
        assert found["epsilon"] == 0 and told["nothing_leaves"] and not told["in_clear"]
    else:
        words = " ".join(told["in_clear"])
        assert found["epsilon"] is None and "not private" in told["statement"]
        assert ("alignment set" in words) == (method == "hetero-ssfl") != ("encoders" in words)
        assert ("classifiers" in words) == (method == "fedavg-supervised")
        assert ("the samples: they all lie in one place" in words) == (method == "centralized-byol")
    if method == "raw-pixels":
        return
    words = {"mlp", "cnn_s:6"} if personal else {"mlp"}
    assert set(metrics["probe_by_architecture"]) == set(metrics["probe_few_by_architecture"]) == words
    assert metrics["own_classes"] > 0 and metrics["random_probe"] > 0
    assert -1 <= metrics["alignment"] <= 1 and (metrics["alignment"] == 1) == (not personal)
    assert (found["bytes_up"] == 0) == (method in silent)
    if method == "random-encoder":
        assert metrics["probe"] == metrics["random_probe"]


def named(method, data, **changes):
    """A method run by its word on a problem, without evaluation."""
    chosen = {**PAPER.defaults(), **{n: getattr(PLAIN, n) for n in vars(PLAIN)}, **changes}
    federation = data.federation(method in hetero_ssfl.PERSONAL, method == "centralized-byol")
    return run(Rounds(hetero_ssfl.algorithm(method, data, chosen), federation, chosen["rounds"]))


def test_baselines_are_those_of_chapter_1():
    def direct(config, pooled=False):
        method = fedbyol.FedBYOL(config, SMALL.model, SMALL.views)
        return run(Rounds(method, SMALL.federation(personal=False, pooled=pooled), 2)).server["theta"]

    base = hetero_ssfl.own_settings(fedbyol.Config, vars(PLAIN))
    assert gap(named("fedbyol", SMALL).server["theta"], direct(base)) == 0
    assert gap(named("fedsimsiam", SMALL).server["theta"], direct(replace(base, loss="simsiam"))) == 0
    pooled = named("centralized-byol", SMALL, cohort=3)  # there is one place only
    assert gap(pooled.server["theta"], direct(base, pooled=True)) == 0
    for method, changes in (("fedu", {"fedu_threshold": math.inf}), ("fedema", {"fedema_tau": 0.0})):
        assert gap(named(method, SMALL, **changes).server["theta"], direct(replace(base, target="local"))) == 0


def test_simsiam_is_judged_by_its_own_loss():
    """By its name or by the setting: the same encoders, so the same judgement; minus a cosine is at most 1."""
    changes = dict(word.split("=") for word in TINY)
    both = [("fedsimsiam", {}), ("fedbyol", {"loss": "simsiam"})]
    runs = [plan(PAPER, method, "digits", changes=changes | more, device="cpu").rounds() for method, more in both]
    named_so, set_so = (run(rounds).history[-1].metrics["self_loss"] for rounds in runs)
    assert named_so == set_so and named_so[0] <= 1


def test_labels_reach_nobody_but_the_supervised():
    wrong = replace(SMALL, y=SMALL.y.flip(0))
    for method in ("fedbyol", "fedema"):
        assert gap(named(method, SMALL).server["theta"], named(method, wrong).server["theta"]) == 0
    a, b = (named("fedavg-supervised", data).server["theta"] for data in (SMALL, wrong))
    assert gap(a, b) > 1e-3


@pytest.mark.parametrize("bank", [0, 3])
def test_one_full_step_with_labels_is_a_central_gradient_step(bank):
    """All images as they are: FedAvg's mean by sizes is the mean over all samples, and cross-entropy PyTorch's."""
    data = problem(bank=bank, views="none")
    config = replace(PLAIN, rounds=1, batch_size=0, momentum=0.0, weight_decay=0.0)
    rounds = Rounds(Supervised(config, data.model, data.views, 10), data.federation(personal=False), 1)
    first = tree_map(lambda p: p[0], rounds.server["theta"])
    first["classifier.weight"] += 0.1 * normal((10, 64), stream(0, "classifier"))  # from 0 features have no gradient
    rounds.server["theta"] = stack([first])
    last = tree_map(lambda p: p[0], run(rounds).server["theta"])
    body = data.model.build()[0].double()
    body.load_state_dict({n.removeprefix("backbone."): p for n, p in first.items() if n.startswith("backbone.")})
    top = torch.nn.Linear(64, 10).double()
    top.load_state_dict({n.removeprefix("classifier."): p for n, p in first.items() if n.startswith("classifier.")})
    torch.nn.functional.cross_entropy(top(body(data.views.plain(data.x))), data.y).backward()
    for prefix, module in (("backbone.", body), ("classifier.", top)):
        for name, p in module.named_parameters():
            moved = p.detach() - config.lr * p.grad
            assert float((last[prefix + name] - moved).abs().max()) < 1e-12 < float(p.grad.abs().max())
