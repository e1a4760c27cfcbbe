"""The command line: one JSON object as the last line, exit statuses, resume, an interrupt, and honest refusals."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import fedbook
from fedbook import command, experiment, papers
from fedbook.data.sources import SOURCES

KEYS = ("paper", "method", "problem", "profile", "seed", "device", "rounds", "seconds", "metrics", "bytes_up",
        "bytes_down", "epsilon", "delta", "privacy", "stopped", "ended")  # fmt: skip
TINY = [
    "--problem",
    "digits",
    "--device",
    "cpu",
    "--set",
    "model=linear",
    "--set",
    "clients=10",
    "--set",
    "clients_per_round=5",
]


def call(capsys, *words):
    status = command.main([str(word) for word in words])
    seen = capsys.readouterr()
    return status, seen.out.splitlines(), seen.err


def test_run_ends_with_the_json_line_of_the_design(capsys):
    status, out, err = call(capsys, "run", "fedavg", *TINY, "--set", "rounds=3", "--seed", "4")
    assert status == 0 and len(out) == 1 and "Traceback" not in err
    found = json.loads(out[0], parse_constant=lambda word: pytest.fail(f"{word} in JSON"))
    assert tuple(found) == KEYS
    assert found["epsilon"] is None and found["delta"] is None  # FedAvg sends its parameters in clear, and says so
    assert "not private" in found["privacy"]["statement"] and found["privacy"]["in_clear"]
    assert (found["paper"], found["method"], found["problem"], found["profile"], found["seed"], found["rounds"]) == (
        "fedavg", "fedavg", "digits", "quick", 4, 3,
    )  # fmt: skip
    assert found["device"] == "cpu" and found["seconds"] > 0 and set(found["metrics"]) == {"accuracy", "loss"}
    assert 0 < found["metrics"]["accuracy"] <= 1 and found["epsilon"] is None and found["delta"] is None
    model_bytes = 4 * (64 * 10 + 10)
    assert found["bytes_down"] == 3 * 5 * model_bytes and found["bytes_up"] == 3 * 5 * (model_bytes + 8)


def test_a_diverged_run_still_prints_json(capsys):
    _, out, _ = call(capsys, "run", "fedavg", *TINY, "--set", "rounds=2", "--set", "lr=1e38")
    found = json.loads(out[-1], parse_constant=lambda word: pytest.fail(f"{word} in JSON"))
    assert found["metrics"]["loss"] is None


@pytest.mark.parametrize("method", papers.paper("fedavg").methods)
def test_every_method_runs_and_local_sends_nothing(capsys, method):
    status, out, _ = call(capsys, "run", "fedavg", "--method", method, *TINY, "--set", "rounds=1")
    found = json.loads(out[-1])
    assert status == 0 and found["method"] == method and found["metrics"]["accuracy"] is not None
    assert (found["bytes_up"] == 0) == (method == "local")


@pytest.mark.parametrize("profile", experiment.PROFILES)
def test_every_problem_that_ships_fits_every_profile(profile):
    """The settings alone: that digits has fewer images than a profile asks for is no reason to refuse it."""
    paper = papers.paper("fedavg")
    for problem, images in (("digits", 1438), ("mnist", 60_000), ("fashion_mnist", 20_000)):
        settings = experiment.plan(paper, problem=problem, profile=profile).settings()
        assert settings["train_samples"] <= images and settings["clients"] <= images


def test_list_says_what_there_is(capsys):
    status, out, _ = call(capsys, "list", "--json")
    found = json.loads(out[-1])
    assert status == 0 and len(out) == 1 and set(found) == set(papers.NAMES)
    paper = papers.paper("fedavg")
    settings = found["fedavg"]["settings"]
    assert set(found["fedavg"]["methods"]) == set(paper.methods) and settings["lr"]["symbol"] == "eta"
    assert {name: row["default"] for name, row in settings.items()} == paper.defaults()
    assert set(found["fedavg"]["profiles"]) == set(experiment.PROFILES)
    status, out, _ = call(capsys, "list")
    assert status == 0 and all(any(word in line for line in out) for word in (*paper.methods, *paper.problems))


@pytest.mark.parametrize("name", papers.NAMES)
@pytest.mark.parametrize("command_line", ["list {}", "run {} --help", "compare {} -h"])
def test_a_paper_explains_every_method_problem_profile_and_setting(capsys, name, command_line):
    status, out, err = call(capsys, *command_line.format(name).split())
    text, paper = " ".join(" ".join(out).split()), papers.paper(name)
    assert status == 0 and err == ""
    for word, line in {**paper.methods, **paper.problems}.items():
        assert f"{word} {line}" in text
    for row in paper.described().values():
        assert f"{row['name']} " in text and row["meaning"] in text and row["allowed"] in text
    assert all(f"{profile} " in text for profile in paper.profiles)


def test_a_paper_answers_to_its_chapter_and_to_the_notebook(capsys):
    for number, name in enumerate(("fedavg", "fedsc", "hetero_ssfl", "prirfed", "dp2_fedsam", "cvfl")):
        notebook = "00_start_here" if number == 0 else f"{number:02d}_{name}"
        assert (
            papers.paper(str(number))
            is papers.paper(notebook)
            is papers.paper(f"{notebook}.ipynb")
            is papers.paper(f"notebooks/{notebook}.ipynb")
            is papers.paper(name)
        )
    assert papers.paper("notebooks/01_fedsc_results.ipynb") is papers.paper("1")
    status, out, _ = call(capsys, "run", "0", *TINY, "--set", "rounds=1")
    assert status == 0 and json.loads(out[-1])["paper"] == "fedavg"
    assert call(capsys, "--version") == (0, [f"fedbook {fedbook.__version__}"], "")


def test_data_lists_the_datasets(capsys):
    status, out, _ = call(capsys, "data", "--list")
    assert status == 0 and {line.split()[0] for line in out} == set(SOURCES)


def test_compare_prints_and_writes_the_table(capsys, tmp_path):
    status, out, _ = call(
        capsys, "compare", "fedavg", "--methods", "fedavg, local", *TINY, "--set", "rounds=2", "--seeds", 2,
        "--vary", "partition=iid,classes", "--tune", "lr=0.01,0.1", "--tune-set", "rounds=1", "--out", tmp_path,
    )  # fmt: skip
    assert status == 0
    short, table = json.loads(out[-1]), json.loads((tmp_path / "compare.json").read_text())
    assert [(c["method"], c["partition"], c["seeds"]) for c in short["cells"]] == [
        ("fedavg", "iid", 2), ("local", "iid", 2), ("fedavg", "classes", 2), ("local", "classes", 2),
    ]  # fmt: skip
    assert (
        table["seeds"] == 2
        and table["settings"]["model"] == "linear"
        and (tmp_path / "compare.png").stat().st_size > 1000
    )
    assert len((tmp_path / "compare.csv").read_text().splitlines()) == 1 + 8  # a row a cell and seed
    assert "\\begin{tabular}" in (tmp_path / "compare.tex").read_text()
    for cell in table["cells"]:
        assert [run["seed"] for run in cell["runs"]] == [0, 1] and [entry["settings"] for entry in cell["tried"]] == [
            {"lr": 0.01}, {"lr": 0.1},  # numbers, not the texts of the command line
        ]  # fmt: skip
        assert cell["tuned"] == max(cell["tried"], key=lambda entry: entry["mean"])["settings"]
    assert any(line.split()[:2] == ["local", "classes"] for line in out[:-1])
    one = json.loads(call(capsys, "run", "fedavg", *TINY, "--set", "rounds=2", "--set", "partition=iid",
                          "--set", f"lr={table['cells'][0]['tuned']['lr']}", "--seed", 1)[1][-1])  # fmt: skip
    assert one["metrics"]["accuracy"] == pytest.approx(table["cells"][0]["runs"][1]["metrics"]["accuracy"], abs=1e-12)


def test_what_a_paper_publishes_for_one_method_is_set_for_it_alone():
    paper, changes = papers.paper("fedsc"), {"rounds": 2}
    rate = {m: experiment.plan(paper, m, "cifar10", "paper").settings()["lr"] for m in ("fedsc", "fedema", "fedu")}
    assert rate == {"fedsc": 0.06, "fedema": 0.1, "fedu": 0.03}
    assert experiment.plan(paper, "fedu", "cifar10", "paper", {"lr": 1.0}).settings()["lr"] == 1.0
    paper = papers.paper("fedavg")
    own = {"local": {"lr": 0.2}}
    paper = dataclasses.replace(paper, profiles={"paper": paper.profiles["quick"]}, published_for=own)
    table = experiment.compare(paper, ["fedavg", "local"], "digits", "paper", changes=changes, seeds=1)
    assert [cell.get("settings") for cell in table["cells"]] == [None, {"lr": 0.2}]
    alone = experiment.compare(paper, ["local"], "digits", "paper", changes=changes, seeds=1)
    assert alone["cells"][0]["curve"] == table["cells"][1]["curve"]


def test_a_seed_whose_budget_is_spent_ends_no_other():
    paper = papers.paper("prirfed")
    changes = {"rounds": 30, "budget": 0.4, "agents": 10, "agents_per_round": 1}
    table = experiment.compare(paper, ["dp-rsgd"], "pca-digits", changes=changes, seeds=3, device="cpu")
    runs = table["cells"][0]["runs"]
    assert len({run["rounds"] for run in runs}) > 1
    alone = experiment.plan(paper, "dp-rsgd", "pca-digits", changes=changes, seeds=(2,), device="cpu")
    rounds, _ = experiment.execute(alone.rounds(), label="alone", metric=paper.metric)
    assert rounds.t == runs[2]["rounds"] and rounds.stopped == runs[2]["stopped"]


def test_the_bytes_of_a_curve_are_all_that_crossed():
    changes = {"rounds": 2, "local_epochs": 1, "train_samples": 100, "alignment_samples": 20, "evaluate_every": 1}
    table = experiment.compare(papers.paper("hetero_ssfl"), ["hetero-ssfl"], changes=changes, seeds=1, device="cpu")
    (cell,) = table["cells"]
    run = cell["runs"][0]
    assert cell["curve"]["bytes"][0][-1] == run["bytes_up"] + run["bytes_down"]


def test_settings_of_trials_may_be_numpy_s(tmp_path):
    import numpy as np

    table = experiment.compare(
        papers.paper("fedavg"), ["fedavg"], changes={"model": "linear", "clients_per_round": 0, "rounds": 2}, seeds=1,
        tune={"lr": [0.1]}, tune_changes={"rounds": np.int64(1)}, device="cpu", out=tmp_path,
    )  # fmt: skip
    assert table["tuning"]["changes"] == {"rounds": 1}


def test_a_metric_of_zero_is_a_number_and_none_is_diverged():
    runs = [{"metrics": {"accuracy": 0.0}}, {"metrics": {"accuracy": 0.5}}]
    table = {"paper": "p", "problem": "q", "metric": "accuracy", "seeds": 2, "profile": "quick",
             "cells": [{"method": "m", "varied": {}, "runs": runs}]}  # fmt: skip
    assert experiment.summary(table)["cells"][0]["mean"] == 0.25
    runs[0]["metrics"]["accuracy"] = None
    assert experiment.summary(table)["cells"][0]["mean"] is None


REFUSED = {
    "no command": ([], "command"),
    "unknown command": (["train"], "command: invalid choice: 'train'"),
    "no paper": (["run"], "required: paper"),
    "unknown paper": (["run", "fedprox"], "paper: got 'fedprox'; allowed is one of cvfl, dp2_fedsam, fedavg, fedsc"),
    "unknown option": (["run", "fedavg", "--epochs", "3"], "--epochs 3; a setting is given as --set epochs=VALUE"),
    "option of another command": (["grade", ".", "--students", "3"], "unrecognized arguments: --students 3\n"),
    "verify, but from": (["data", "mimic3", "--verify", "--from", "."], "--from: got .* none beside --verify"),
    "nearly an option": (["run", "fedavg", "--metod", "fedavg"], "did you mean --method?"),
    "method": (["run", "fedavg", "--method", "x"], "method: got 'x'; allowed is one of central, fedavg, fedsgd, local"),
    "problem": (["run", "fedavg", "--problem", "x"], "problem: got 'x'; allowed is one of cifar10"),
    "profile": (["run", "fedavg", "--profile", "x"], "profile: got 'x'; allowed is one of paper, quick, standard"),
    "seed word": (["run", "fedavg", "--seed", "x"], "--seed: got 'x'; allowed is a whole number"),
    "seed sign": (["run", "fedavg", "--seed", "-1"], "seed: got -1; allowed is a whole number in"),
    "device": (["run", "fedavg", "--device", "tpu"], "device: got 'tpu'; allowed is one of auto, cpu, cuda"),
    "setting name": (["run", "fedavg", "--set", "epochs=3"], "--set: got 'epochs'; allowed is one of alpha"),
    "setting form": (["run", "fedavg", "--set", "lr"], "--set: got 'lr'; allowed is KEY=VALUE"),
    "setting twice": (["run", "fedavg", "--set", "lr=1", "--set", "lr=2"], "--set: got lr twice; allowed is once"),
    "setting type": (["run", "fedavg", "--set", "rounds=2.5"], "--set rounds: got '2.5'; allowed is a whole number"),
    "setting value": (["run", "fedavg", "--set", "lr=nan"], "lr: got nan; allowed is a finite number above 0.0"),
    "cohort": (
        ["run", "fedavg", *TINY[:4], "--set", "clients=3", "--set", "partition=iid"],
        r"clients_per_round: got 10; allowed is .*\[1, 3\]",
    ),
    "more images": (
        ["run", "fedavg", *TINY, "--set", "train_samples=2000"],
        r"train_samples: got 2000; allowed is .*1438\]",
    ),
    "resume alone": (["run", "fedavg", "--resume"], "--resume: got no --out; allowed is"),
    "paper misspelt": (["run", "fedvag"], "paper: got 'fedvag'; allowed is .*; did you mean fedavg\\?"),
    "paper explained": (["run", "7", "--help"], "paper: got '7'; allowed is one of cvfl"),
    "setting misspelt": (["run", "cvfl", "--set", "bit=3"], "--set: got 'bit'; allowed is .*; did you mean bits\\?"),
    "no data set": (["data"], "name: got none; allowed is"),
    "steps too long": (["run", "fedavg", "--set", "lr=1e300"], r"lr: got 1e\+300; allowed is at most 1e\+38"),
    "much noise": (["run", "fedsc", "--set", "sigma=1e39"], r"sigma: got 1e\+39; allowed is"),
    "steps too long on a manifold": (["run", "prirfed", "--set", "lr=1e308"], r"lr: got 1e\+308; allowed is at most"),
    "a large clip": (["run", "prirfed", "--set", "clip_norm=1e300"], r"clip_norm: got 1e\+300; allowed is at most"),
    "much noise on a manifold": (["run", "prirfed", "--set", "sigma=1e300"], r"sigma: got 1e\+300; allowed is at most"),
    "many clients": (["run", "fedavg", "--set", "clients=9999999999999999999999"], "clients: got 9+; allowed is"),
    "too few images for the problem": (
        ["compare", "hetero_ssfl", "--methods", "local-ssl", "--seeds", "1", "--set", "train_samples=200"],
        r"alignment_samples: got 300; allowed is .*\[2, 199\]",
    ),
    "compare method": (["compare", "fedavg", "--methods", "fedavg,,local"], "method: got ''; allowed is one of"),
    "compare value": (["compare", "fedavg", "--set", "lr=-1"], "lr: got -1.0; allowed is"),
    "compare axis": (["compare", "fedavg", "--vary", "alpha=1,0"], "alpha: got 0.0; allowed is"),
    "compare seeds": (["compare", "fedavg", "--seeds", "0"], "seeds: got 0; allowed is"),
    "compare tune": (["compare", "fedavg", "--tune", "speed=1"], "--tune: got 'speed'"),
    "compare tune type": (["compare", "fedavg", "--tune", "lr=abc"], "--tune lr: got 'abc'; allowed is a number"),
    "compare vary": (["compare", "fedavg", "--vary", "speed=1"], "--vary: got 'speed'"),
    "compare tune-set": (
        ["compare", "fedavg", "--tune", "lr=1", "--tune-set", "speed=1"],
        "--tune-set: got 'speed'",
    ),
    "compare nothing": (["compare", "fedavg", "--methods", ""], "method: got ''; allowed is one of"),
    "nodes of nothing": (["run", "fedavg", "--nodes", "3"], "--nodes: got 3; allowed with --engine flower only"),
    "grades nowhere": (["grade", "notebooks", "--out", "nowhere/grades.csv"], "--out: got 'nowhere/grades.csv'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_exit_2_with_a_message_and_nothing_on_stdout(capsys, case):
    words, message = REFUSED[case]
    status, out, err = call(capsys, *words)
    assert status == 2 and out == [] and len(err.splitlines()) == 1 and err.startswith("fedbook: ")
    assert re.search(message, err), err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_is_a_bad_argument(capsys):
    status, out, err = call(capsys, "run", "fedavg", "--device", "cuda")
    assert status == 2 and out == [] and "device: got 'cuda'" in err


def test_a_missing_dataset_exits_1_and_says_what_to_do(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBOOK_DATA", str(tmp_path))
    status, out, err = call(capsys, "run", "fedavg", "--problem", "cifar10")
    assert status == 1 and out == [] and "fedbook data cifar10" in err and "Traceback" not in err


def test_a_broken_dataset_exits_1(capsys, monkeypatch):
    from fedbook import data
    from fedbook.data import BrokenFile

    def broken(name, **options):
        raise BrokenFile("train.idx", "cut short")

    monkeypatch.setattr(data, "load", broken)
    assert call(capsys, "run", "fedavg", *TINY)[0] == 1


def test_resume_gives_the_result_of_the_whole_run(capsys, tmp_path):
    def run(folder, rounds, *more):
        return call(
            capsys,
            "run",
            "fedavg",
            *TINY,
            "--set",
            "evaluate_every=1",
            "--set",
            f"rounds={rounds}",
            "--out",
            folder,
            *more,
        )

    whole, out, _ = run(tmp_path / "whole", 6)
    assert whole == 0 and (tmp_path / "whole" / "result.json").read_text() == out[-1] + "\n"
    run(tmp_path / "parts", 2)
    status, parts, _ = run(tmp_path / "parts", 6, "--resume")
    a, b = (json.loads(text[-1]) for text in (out, parts))
    assert status == 0 and a | {"seconds": 0} == b | {"seconds": 0}
    histories = [json.loads((tmp_path / word / "history.json").read_text()) for word in ("whole", "parts")]
    assert [[{**r, "seconds": 0} for r in h] for h in histories][0] == [{**r, "seconds": 0} for r in histories[1]]
    logs = [(tmp_path / word / "rounds.csv").read_text().splitlines() for word in ("whole", "parts")]
    assert len(logs[0]) == 7 and [re.sub(r"^(\d+,\d+),[^,]*", r"\1", line) for line in logs[0]] == [
        re.sub(r"^(\d+,\d+),[^,]*", r"\1", line)
        for line in logs[1]  # all but the seconds
    ]
    status, out, err = run(tmp_path / "parts", 3, "--resume")
    assert status == 2 and out == [] and "rounds" in err and "got 3" in err
    there = json.loads((tmp_path / "parts" / "identity.json").read_text())
    assert there["rounds"] == 6  # still the run before


def test_an_interrupt_exits_130_with_a_checkpoint_to_resume_from(capsys, tmp_path, ctrl_c):
    words = ["run", "fedavg", *TINY, "--set", "rounds=100000", "--set", "evaluate_every=100000", "--out", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(Path(command.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    line, pipe = [sys.executable, "-m", "fedbook", *words], subprocess.PIPE
    process = subprocess.Popen(line, stdout=pipe, stderr=pipe, env=environment)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "checkpoint.pt").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert out == b"" and "fedbook: interrupted" in err.decode().splitlines(), err
    assert "to go on: fedbook run fedavg" in err.decode() and err.decode().endswith(" --resume\n")
    from fedbook.federation import checkpoint

    done = checkpoint.load(tmp_path / "checkpoint.pt")["t"]
    assert done >= 1
    words[words.index("rounds=100000")] = f"rounds={done + 1}"
    status, out, _ = call(capsys, *words, "--resume")
    assert status == 0 and json.loads(out[-1])["rounds"] == done + 1


def test_an_interrupt_before_the_first_save_leaves_a_checkpoint(tmp_path, capsys, monkeypatch):
    from fedbook.papers.fedavg import FedAvg

    calls, train = [], FedAvg.train

    def interrupted(self, local):
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return train(self, local)

    monkeypatch.setattr(FedAvg, "train", interrupted)
    words = ["run", "fedavg", *TINY, "--set", "rounds=2", "--out", tmp_path]
    assert call(capsys, *words)[0] == 130 and (tmp_path / "checkpoint.pt").exists()
    status, out, _ = call(capsys, *words, "--resume")
    monkeypatch.undo()
    whole = json.loads(call(capsys, *words[:-2])[1][-1])
    assert status == 0 and json.loads(out[-1])["metrics"] == whole["metrics"]


def test_tuning_takes_the_better_setting_whichever_way_the_metric_points():
    paper = papers.paper("fedavg")
    tried = [{"mean": 0.2}, {"mean": None}, {"mean": 0.7}]
    for larger, best in ((True, 0.7), (False, 0.2)):
        judged = dataclasses.replace(paper, larger_is_better=larger)
        assert max(tried, key=lambda entry, p=judged: experiment._goodness(entry["mean"], p))["mean"] == best
