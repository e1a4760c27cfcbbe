"""A setting that is said to change nothing changes nothing: no number of the run, no byte."""

import collections
import json
import re

import pytest

from fedbook import command, experiment, papers

SMALL = {
    "fedavg": {
        "rounds": 2, "clients": 6, "clients_per_round": 3, "train_samples": 200, "test_samples": 100,
        "model": "linear", "evaluate_every": 1,
    },
    "fedsc": {
        "rounds": 1, "clients": 3, "partition": "iid", "local_epochs": 1, "batch_size": 32,
        "train_samples": 120, "test_samples": 60, "matrix_views": 2, "bank": 4, "width": 4,
        "neighbours": 5, "evaluate_every": 1,
    },
    "hetero_ssfl": {
        "rounds": 1, "clients": 3, "partition": "iid", "local_epochs": 1, "batch_size": 32,
        "train_samples": 150, "test_samples": 60, "bank": 4, "width": 4,
        "alignment_samples": 20, "alignment_batch": 10, "architectures": "mlp", "model": "mlp",
        "neighbours": 5, "evaluate_every": 1,
    },
    "prirfed": {"rounds": 2, "agents": 5, "samples": 200, "agents_per_round": 2, "evaluate_every": 1},
    "dp2_fedsam": {
        "rounds": 2, "clients": 10, "client_rate": 0.5, "train_samples": 300, "model": "mlp16", "head_epochs": 1,
        "body_epochs": 1, "noise_multiplier": 0.5, "epsilon": 0.0, "partition": "iid", "evaluate_every": 1,
    },
    "cvfl": {
        "rounds": 3, "train_samples": 200, "test_samples": 60, "embedding": 8, "batch_size": 50, "evaluate_every": 1,
    },
}  # fmt: skip
TEXTS = {"weights": "samples", "architectures": "cnn_s", "word": "dog"}
REFUSED_ELSEWHERE = {"noise_by"}  # noise of the clients asks for another sampling first


def outcome(paper, method, changes):
    problem = "pca-digits" if paper.name == "prirfed" else "digits"
    plan = experiment.plan(paper, method, problem, "quick", changes, (0,), "cpu")
    rounds, _ = experiment.execute(plan.rounds(noise_key="seed"))  # any setting is in the other key
    return plan, json.dumps([record.metrics for record in rounds.history]) + str(rounds.bytes.total)


def others(field, value):
    """Other values of a setting, to be tried until one is allowed."""
    if field.metadata["choices"]:
        return [word for word in field.metadata["choices"] if word != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        return [TEXTS[field.name]]
    return [value + 1, 1, 2] if isinstance(value, int) else [2 * value or 0.5, 0.3]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("fedavg", "cvfl") else pytest.mark.slow) for name in papers.NAMES],
)
def test_a_setting_that_does_not_count_changes_nothing(name):
    paper, checked = papers.paper(name), collections.Counter()
    most = 1 if name in ("fedsc", "hetero_ssfl") else len(paper.methods)  # methods a setting: probes take their time
    for method in paper.methods:
        sums = {"fusion": "sum"} if method in ("secure-sum", "private-labels") else {}
        plan, before = outcome(paper, method, SMALL[name] | sums)
        settings = plan.settings()
        for key in paper.defaults():
            why = paper.idle(key, method, plan.problem, settings)
            if not why or key in REFUSED_ELSEWHERE or checked[key] == most:
                continue
            field = next(kind.__dataclass_fields__[key] for kind in paper.settings if key in kind.__dataclass_fields__)
            for value in others(field, settings[key]):
                try:
                    after = outcome(paper, method, plan.changes | {key: value})[1]
                except ValueError:
                    continue
                assert after == before, f"{key}={value} with {method}: {why}"
                checked[key] += 1
                break
            else:
                pytest.fail(f"no other value of {key} is allowed with {method}")
    assert checked


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "fedavg", "--set", "alpha=0.01"],
         ["alpha changes nothing: it counts with partition=dirichlet or quantity (here partition=classes)"]),
        (["run", "fedavg", "--set", "alpha=0.01", "--set", "partition=dirichlet"], []),
        (["run", "fedavg", "--method", "fedsgd", "--set", "local_epochs=3"], ["local_epochs changes nothing"]),
        (["run", "fedsc", "--method", "fedca", "--set", "mu=2"], ["mu changes nothing: it counts with method=fedsc"]),
        (["run", "fedavg", "--method", "local", "--set", "compressor=topk"],
         ["compressor changes nothing: it counts with method=fedavg, fedsgd or central (here method=local)"]),
        (["run", "cvfl", "--method", "c-vfl-one-step", "--set", "compress_server=false"], ["compress_server"]),
        (["run", "dp2_fedsam", "--set", "test_samples=9"], ["changes nothing: it counts with judged_on=common"]),
        # of several methods one that reads it is enough; at one value of an axis, too
        (["compare", "fedavg", "--methods", "fedavg,fedsgd", "--set", "local_epochs=3", "--seeds", "1"], []),
        (["compare", "fedavg", "--methods", "fedsgd", "--set", "local_epochs=3", "--seeds", "1"], ["local_epochs"]),
        (["compare", "fedavg", "--methods", "fedavg", "--vary", "partition=iid,dirichlet", "--set", "alpha=1",
          "--seeds", "1"], []),
        (["compare", "fedavg", "--methods", "fedavg", "--vary", "alpha=1,2", "--seeds", "1"], ["alpha"]),
    ],
)  # fmt: skip
def test_the_command_line_warns_of_a_setting_that_changes_nothing(capsys, words, expected):
    problem = ["--problem", "digits", "--device", "cpu", "--set", "rounds=0"]
    command.main([*words, *problem])
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fedbook: warning: ")]
    assert len(warnings) == len(expected)
    assert all(text in line for text, line in zip(expected, warnings, strict=True))


@pytest.mark.parametrize(
    ("paper", "method", "changes", "said"),
    [
        (
            "prirfed",
            "rfedavg",
            {"clip_norm": 0.1},
            "method=dp-rsgd, .*, or with clip_without_noise=true",
        ),
        ("prirfed", "rfedavg", {"clip_norm": 0.1, "clip_without_noise": True}, ""),
        ("prirfed", "dp-rsgd", {"clip_norm": 0.1}, ""),
        ("prirfed", "rsvrg", {"clip_gradient": 0.1}, "clip_gradient changes nothing"),
        ("cvfl", "c-vfl", {"compress_server": False, "fusion": "logits", "embedding": 10}, "fusion other than logits"),
        ("cvfl", "split-learning", {"only_party": 3}, "method other than split-learning"),
    ],
)
def test_what_counts_in_one_of_several_cases_is_named_only_outside_all(paper, method, changes, said):
    problem = "pca-digits" if paper == "prirfed" else "digits"
    plan = experiment.plan(papers.paper(paper), method, problem, "quick", changes)
    plan.rounds()
    why = plan.paper.idle(next(iter(changes)), method, problem, plan.settings())
    assert re.search(said, why) and bool(said) == bool(why)
