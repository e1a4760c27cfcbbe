"""A comparison says what was chosen, and on what each method is judged; it refuses before any work."""

import copy
import json
import math
import subprocess

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedbook import command, experiment, outputs, papers
from fedbook.lab.draw import draw_comparison
from fedbook.learning.models import stack
from fedbook.papers.fedavg.problem import ImageSettings, image_problem
from fedbook.randomness import stream

TINY = ["--problem", "digits", "--device", "cpu", "--set", "model=linear", "--set", "clients=10",
        "--set", "clients_per_round=5", "--set", "rounds=2"]  # fmt: skip


def call(capsys, *words):
    status = command.main([str(word) for word in words])
    seen = capsys.readouterr()
    return status, seen.out.splitlines(), seen.err


def test_what_was_tuned_is_said_and_whether_more_lies_beyond_the_grid(capsys, monkeypatch):
    def trials(paper, method, problem, profile, base, tune, *_):
        return [{"settings": setting, "mean": -abs(setting["lr"] - 0.1)} for setting in experiment.grid(tune)]

    monkeypatch.setattr(experiment, "_trials", trials)
    words = ["compare", "fedavg", *TINY, "--methods", "fedavg, local ,fedavg", "--seeds", 1, "--vary",
             "partition=iid, iid", "--tune", "lr=0.0001, 0.1,0.10, 1e30"]  # fmt: skip
    status, out, _ = call(capsys, *words)
    assert status == 0
    cells = json.loads(out[-1])["cells"]
    assert [(c["method"], c["partition"]) for c in cells] == [("fedavg", "iid"), ("local", "iid")]  # each once
    assert [(c["tuned"], c["at_edge"]) for c in cells] == [({"lr": 0.1}, [])] * 2
    tuned = [line for line in out if "lr=0.1" in line]
    assert [line.split()[0] for line in tuned] == ["fedavg", "local"] and not any("edge" in line for line in tuned)
    assert any("lr of 0.0001, 0.1, 1e+30" in line for line in out)
    words[-1] = "lr=0.0001,0.1"
    _, out, _ = call(capsys, *words)
    assert all(c["at_edge"] == ["lr"] for c in json.loads(out[-1])["cells"])
    assert sum("at the edge" in line for line in out) == 2


def test_values_that_hold_commas_are_set_apart_by_semicolons(capsys):
    words = ["compare", "fedavg", *TINY, "--methods", "fedavg", "--seeds", 1, "--vary", "partition=iid; classes"]
    status, out, _ = call(capsys, *words)
    assert status == 0
    assert [cell["partition"] for cell in json.loads(out[-1])["cells"]] == ["iid", "classes"]


def test_what_a_method_does_not_read_is_at_no_edge(capsys):
    words = ["--set", "rounds=2", "--methods", "fedavg,central", "--seeds", 1, "--tune", "clients_per_round=1,2"]
    status, out, _ = call(capsys, "compare", "fedavg", *TINY[:-4], *words)
    cells = {cell["method"]: cell["at_edge"] for cell in json.loads(out[-1])["cells"]}
    assert status == 0 and cells == {"fedavg": ["clients_per_round"], "central": []}
    assert not any("edge" in line for line in out if line.split()[:1] == ["central:"])


def test_the_edge_is_none_where_nothing_is_allowed_beyond():
    kinds = papers.paper("fedavg").settings
    grid = {"momentum": [0.0, 0.5, 0.9], "local_epochs": [1, 5], "weighting": ["size", "uniform"], "lr": [0.1]}
    assert experiment.at_edge(kinds, grid, {"momentum": 0.0, "local_epochs": 1, "weighting": "size", "lr": 0.1}) == []
    assert experiment.at_edge(kinds, grid, {"momentum": 0.9, "local_epochs": 5}) == ["momentum", "local_epochs"]


def test_methods_judged_on_different_images_are_not_shown_as_if_they_compared(capsys):
    _, out, _ = call(capsys, "compare", "fedavg", *TINY, "--methods", "fedavg,local", "--seeds", 2)
    first, second = (next(line for line in out if line.startswith(f"  {word}: ")) for word in ("fedavg", "local"))
    assert "common test images" in first and "its own mixture of classes" in second
    assert any("accuracy_all" in line and line.startswith("  local") for line in out)
    _, out, _ = call(capsys, "compare", "fedavg", *TINY, "--methods", "fedavg,fedsgd", "--seeds", 1)
    assert not any("accuracy_all" in line or "yardsticks" in line for line in out)


def test_what_was_held_out_is_not_called_the_test_images(capsys):
    _, out, _ = call(
        capsys, "compare", "fedavg", *TINY, "--methods", "fedavg", "--seeds", 1, "--set", "judge=validation"
    )
    assert any("judge=validation on held-out training data" in line for line in out)
    for option in ("--tune", "--tune-set"):
        tuned = ["--tune", "lr=0.1"] if option == "--tune-set" else []
        status, _, err = call(
            capsys, "compare", "fedavg", *TINY, "--methods", "fedavg", *tuned, option, "judge=validation"
        )
        assert status == 2 and f"{option}: got 'judge'; allowed is any setting but judge" in err


@pytest.mark.parametrize("name", papers.NAMES)
def test_every_method_says_on_what_it_is_judged(name):
    paper = papers.paper(name)
    assert set(paper.judged) - {""} <= set(paper.methods) and paper.judged[""]


TWICE = {
    "vary and tune": (["--vary", "lr=1,2", "--tune", "lr=1,2"], "--vary: got 'lr'"),
    "set and vary": (["--vary", "lr=1,2", "--set", "lr=1"], "--set: got 'lr'"),
    "set and tune": (["--tune", "lr=1,2", "--set", "lr=1"], "--set: got 'lr'"),
    "tune and tune-set": (["--tune", "lr=1,2", "--tune-set", "lr=1"], "--tune: got 'lr'"),
    "vary and tune-set": (["--vary", "lr=1,2", "--tune", "momentum=0,0.5", "--tune-set", "lr=1"], "--vary: got 'lr'"),
    "tune-set alone": (["--tune-set", "rounds=1"], "--tune-set: got 'rounds'"),
}


@pytest.mark.parametrize("case", TWICE)
def test_a_setting_named_twice_is_refused_before_any_work(capsys, monkeypatch, case):
    def works(*arguments, **options):
        raise AssertionError("work began")

    monkeypatch.setattr(experiment.Plan, "rounds", works)
    words, message = TWICE[case]
    status, out, err = call(capsys, "compare", "fedavg", "--problem", "digits", *words)
    assert status == 2 and out == [] and message in err and len(err.splitlines()) == 1


@pytest.fixture(scope="module")
def table():
    changes = {"model": "linear", "clients": 10, "clients_per_round": 5, "rounds": 4, "evaluate_every": 1}
    return experiment.compare(papers.paper("fedavg"), ["fedavg", "local"], "digits", changes=changes, seeds=2)


def axes_of(table):
    ax = Figure().add_subplot()
    draw_comparison(ax, table)
    return ax


def test_the_figure_shows_all_values_names_the_best_first_and_survives_divergence(table):
    ax = axes_of(table)
    low, high = ax.get_ylim()
    for line in ax.get_lines():
        values = np.asarray(line.get_ydata())
        assert ((low <= values) & (values <= high)).all()
    ends = {cell["method"]: np.mean([row[-1] for row in cell["curve"]["accuracy"]]) for cell in table["cells"]}
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == sorted(ends, key=ends.get, reverse=True) and ax.get_yscale() == "linear"
    ax.figure.canvas.draw()
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1  # it hides no curve
    lost = copy.deepcopy(table)
    lost["cells"][0]["curve"]["accuracy"][0][-1] = None  # one seed of two
    lost["cells"][1]["curve"]["accuracy"] = [[None] * 4] * 2
    names = [text.get_text() for text in axes_of(lost).get_legend().get_texts()]
    assert names[0] == "fedavg" and names[1].startswith("local (")
    gone = copy.deepcopy(table)
    for run in gone["cells"][1]["runs"]:
        run["ended"] = "diverged"  # its last numbers are none of the method's
    assert [text.get_text() for text in axes_of(gone).get_legend().get_texts()][1].startswith("local (")
    for cell in lost["cells"]:
        cell["curve"] = {"round": [], "accuracy": [[], []]}  # never judged
    assert len(axes_of(lost).get_legend().get_texts()) == 2


def test_a_risk_that_falls_by_orders_of_magnitude_gets_a_logarithmic_axis(table):
    risk = table | {"paper": "prirfed", "metric": "excess_risk"}
    curve, ends = {"round": [1, 2, 3], "excess_risk": [[1.0, 1e-3, 1e-6]] * 2}, {"metrics": {"excess_risk": 1e-6}}
    risk["cells"] = [{**cell, "curve": curve, "runs": [run | ends for run in cell["runs"]]} for cell in table["cells"]]
    assert axes_of(risk).get_yscale() == "log"


def test_a_step_with_which_runs_diverge_is_not_chosen():
    """Without numbers a model answers class 0 for everything, which is sometimes better than an honest beginning."""
    changes = {"rounds": 1, "clients": 20, "clients_per_round": 1, "model": "linear"}
    fedavg, words = papers.paper("fedavg"), ("digits", "quick")
    table = experiment.compare(fedavg, ["fedavg"], *words, changes, 2, tune={"lr": [1e-7, 1e6, 1e30]}, device="cpu")
    [cell] = table["cells"]
    assert cell["tuned"] == {"lr": 1e-7} and [trial["mean"] is None for trial in cell["tried"]] == [False, True, True]
    lost = experiment.compare(fedavg, ["fedavg"], *words, changes | {"lr": 1e30}, 2, device="cpu")
    assert [run["ended"] for run in lost["cells"][0]["runs"]] == ["diverged"] * 2
    assert experiment.summary(lost)["cells"][0]["mean"] is None


def test_a_seed_that_diverges_does_not_end_those_beside_it():
    """At this step the encoders of two seeds of five grow without bound; the other three are as they are alone."""
    changes = {"rounds": 2, "train_samples": 120, "test_samples": 40, "clients": 3, "classes_per_client": 4, "lr": 0.01}
    changes |= {"batch_size": 16, "local_epochs": 1, "width": 8, "clip_in_loss": False, "max_norm": 0.0}
    asked = papers.paper("fedsc"), ["fedavg-sc"], "digits", "quick", changes, 5
    [cell] = experiment.compare(*asked, device="cpu")["cells"]
    ends = [run["ended"] for run in cell["runs"]]
    assert {"done", "diverged"} == set(ends)
    for seed, (run, values) in enumerate(zip(cell["runs"], cell["curve"]["knn"], strict=True)):
        alone = experiment.plan(*asked[:1], "fedavg-sc", *asked[2:5], (seed,), "cpu").rounds()
        execute, _ = experiment.execute(alone)
        assert run["seed"] == seed and run["rounds"] == len(execute.history)
        assert (run["ended"] == "diverged") == execute.diverged
        if run["ended"] == "done":
            assert values[-1] == pytest.approx(float(execute.history.values("knn")[1][0, -1]), abs=1e-5)
        assert len(values) == len(cell["curve"]["round"])


def test_a_model_without_numbers_has_no_accuracy():
    images = image_problem("digits", ImageSettings(clients=10, model="linear"), seeds=(0, 1))
    theta = stack([images.model.init(stream(s, "init")) for s in (0, 1)])
    next(iter(theta.values()))[1] = math.nan
    accuracy = images.evaluation()({"theta": theta}, {})["accuracy"]
    assert accuracy[0].isfinite() and accuracy[1].isnan()


def test_names_are_checked_before_the_first_run(monkeypatch):
    monkeypatch.setattr(experiment, "_executed", lambda *_: pytest.fail("something ran"))
    with pytest.raises(ValueError, match="method: got 'fedsgdd'"):
        experiment.compare(papers.paper("fedavg"), ["fedavg", "fedsgdd"], "digits", seeds=1, device="cpu")


def test_what_would_run_is_checked_before_any_work_and_nothing_else(capsys, monkeypatch):
    def works(*arguments, **options):
        raise AssertionError("work began")

    private = ["--problem", "digits", "--set", "epsilon=0", "--tune", "clip_norm=0.5,inf"]
    with monkeypatch.context() as patch:
        patch.setattr(experiment.Plan, "rounds", works)
        status, out, err = call(capsys, "compare", "dp2_fedsam", *private, "--tune-set", "noise_multiplier=1")
    assert status == 2 and out == [] and "clip_norm: got inf" in err  # a trial's noise and bound, together
    few = papers.paper("cvfl"), ["c-vfl"], "digits", "quick", {"bits": 24}  # too many for most compressors
    assert experiment.plans(*few, {"compressor": ["topk", "randomk"]}, {}, {}, "cpu")
    with pytest.raises(ValueError, match="bits: got 24"):
        experiment.plans(*few, {"compressor": ["topk", "scalar"]}, {}, {}, "cpu")


def test_an_infinite_setting_is_kept(capsys, tmp_path):
    words = ["--problem", "digits", "--methods", "dp2-fedsam", "--seeds", 1, "--vary", "clip_norm=0.5,inf"]
    for setting in ("clients=20", "rounds=1", "train_samples=400", "epsilon=0"):
        words += ["--set", setting]
    words += ["--out", tmp_path / "a"]
    status, out, _ = call(capsys, "compare", "dp2_fedsam", *words)
    assert status == 0 and [cell["clip_norm"] for cell in json.loads(out[-1])["cells"]] == [0.5, "inf"]
    cell = json.loads((tmp_path / "a" / "compare.json").read_text())["cells"][1]
    again = experiment.plan(papers.paper("dp2_fedsam"), "dp2-fedsam", "digits", changes=cell["varied"])
    assert again.settings()["clip_norm"] == math.inf


def test_a_comparison_whose_runs_were_never_judged_ends_with_its_table(capsys, tmp_path):
    words = ["--problem", "digits", "--methods", "fedavg", "--seeds", 2, "--set", "rounds=0", "--out", tmp_path / "a"]
    status, out, err = call(capsys, "compare", "fedavg", *words)
    assert status == 3 and json.loads(out[-1])["cells"][0]["mean"] is None and "ended with: nothing" in err
    assert (tmp_path / "a" / "compare.json").exists()


def test_a_folder_with_another_comparison_is_refused(tmp_path):
    fedavg, changes = papers.paper("fedavg"), {"model": "linear", "clients": 10, "clients_per_round": 5, "rounds": 1}
    axis = {"local_epochs": list(np.array([1, 2]))}  # NumPy's whole numbers, too
    table = experiment.compare(fedavg, ["fedavg"], "digits", changes=changes, seeds=1, vary=axis, out=tmp_path)
    assert [cell["varied"] for cell in table["cells"]] == [{"local_epochs": 1}, {"local_epochs": 2}]
    for whole in (False, True):
        if whole:
            experiment.save(table, tmp_path)
        again = experiment.compare(fedavg, ["fedavg"], "digits", changes=changes, seeds=1, vary=axis, out=tmp_path)
        assert again["cells"] == table["cells"]
        for other, word in (({"lr": 0.5}, "lr"), ({"rounds": 2}, "rounds")):
            with pytest.raises(outputs.Refused, match=f"another comparison; it differs in {word}; allowed is"):
                experiment.compare(
                    fedavg, ["fedavg"], "digits", changes=changes | other, seeds=1, vary=axis, out=tmp_path
                )
        with pytest.raises(outputs.Refused, match="its methods or what varies"):
            experiment.compare(fedavg, ["local"], "digits", changes=changes, seeds=1, vary=axis, out=tmp_path)


def test_the_commit_is_of_our_own_checkout_only(tmp_path, monkeypatch):
    """Installed below somebody else's repository, say in its .venv."""
    own = tmp_path / "other" / ".venv" / "fedbook"
    own.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(tmp_path / "other")], check=True)
    words = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "theirs"]
    subprocess.run(["git", "-C", str(tmp_path / "other"), *words], check=True)
    monkeypatch.setattr(experiment, "__file__", str(own / "experiment.py"))
    assert experiment.commit() is None


def test_what_is_composed_by_hand_comes_on_top_of_the_settings():
    seen = []
    chosen = experiment.plan(papers.paper("fedavg"), "fedavg", "digits", changes={"compressor": "topk", "bits": 4})
    rounds = chosen.rounds(compose=lambda algorithm: seen.append(algorithm) or algorithm)
    assert seen == [rounds.algorithm] and "composed" in rounds.algorithm.configuration()
