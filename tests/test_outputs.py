"""What lies in --out: nothing is lost without a word, one run at a time, and the same numbers after whatever came."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedbook import command, experiment, outputs
from fedbook.papers.fedavg import FedAvg

TINY = ["fedavg", "--problem", "digits", "--device", "cpu", "--set", "model=linear", "--set", "clients=10"]
TINY += ["--set", "clients_per_round=5", "--set", "evaluate_every=1"]
RUN = ["run", *TINY, "--set", "rounds=2"]
COMPARE = ["compare", *TINY, "--set", "rounds=1", "--methods", "fedavg,local", "--vary", "partition=iid,classes"]
COMPARE += ["--seeds", "2", "--tune", "lr=0.01,0.1"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(command.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
ENVIRONMENT.pop("PYTHONUNBUFFERED", None)  # what is buffered is written last, when it can go wrong once more


def call(capsys, *words):
    status = command.main([str(word) for word in words])
    seen = capsys.readouterr()
    return status, seen.out.splitlines(), seen.err


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != outputs.LOCK}


def timeless(value):
    """Without what may differ between two runs of one thing."""
    if isinstance(value, dict):
        return {key: timeless(entry) for key, entry in value.items() if key not in ("seconds", "commit")}
    return [timeless(entry) for entry in value] if isinstance(value, list) else value


def stored(path):
    return timeless(json.loads(path.read_text()))


@pytest.fixture
def no_work(monkeypatch):
    monkeypatch.setattr(experiment, "execute", lambda *_, **__: pytest.fail("it began to work"))


def interrupt_at(monkeypatch, call, kind=KeyboardInterrupt):
    """The ``call``-th local training raises; counts on."""
    calls, train = [], FedAvg.train

    def train_or_raise(self, local):
        calls.append(1)
        if len(calls) == call:
            raise kind
        return train(self, local)

    monkeypatch.setattr(FedAvg, "train", train_or_raise)


@pytest.mark.parametrize("words", [RUN, COMPARE], ids=["run", "compare"])
def test_a_folder_that_cannot_be_used_is_refused_before_any_work(capsys, tmp_path, words, no_work):
    (tmp_path / "file").write_text("mine")
    for out, message in ((tmp_path / "file", "File exists"), (tmp_path / "file" / "below", "Not a directory"),
                         ("/proc/nothing/here", "cannot be written"), ("", "got ''"),
                         (tmp_path / ("x" * 300), "File name too long")):  # fmt: skip
        status, printed, err = call(capsys, *words, "--out", out)
        assert status == 2 and printed == [] and "--out: got" in err and message in err
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("words", [RUN, COMPARE], ids=["run", "compare"])
def test_there_is_nothing_to_resume_in_a_folder_misspelt(capsys, tmp_path, words, no_work):
    status, printed, err = call(capsys, *words, "--out", tmp_path / "typo", "--resume")
    assert status == 2 and printed == [] and re.search(r"--resume: .*typo; allowed is", err)
    assert not (tmp_path / "typo").exists()
    assert call(capsys, *words, "--resume")[0] == 2


def test_refused_settings_leave_no_folder_and_a_folder_without_results_is_free(capsys, tmp_path):
    bad = [*RUN, "--set", "train_samples=5000"]
    assert call(capsys, *bad, "--out", tmp_path / "new")[0] == 2 and not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    assert call(capsys, *bad, "--out", tmp_path / "old")[0] == 2
    assert call(capsys, *RUN, "--out", tmp_path / "old")[0] == 0


@pytest.mark.parametrize("words", [RUN, COMPARE], ids=["run", "compare"])
def test_results_are_never_written_over(capsys, tmp_path, monkeypatch, words):
    assert call(capsys, *words, "--out", tmp_path)[0] == 0
    before = files(tmp_path)
    monkeypatch.setattr(experiment, "execute", lambda *_, **__: pytest.fail("it began to work"))
    status, printed, err = call(capsys, *words, "--out", tmp_path)
    assert status == 2 and printed == [] and re.search("--out: .* of this run; allowed is --resume", err)
    for change in (["--set", "momentum=0.3"], ["--seed", "7"], ["--seeds", "3"], ["--vary", "alpha=1"]):
        if change[0] == "--set" or (change[0] == "--seed") == (words is RUN):
            name = change[1].split("=")[0] if change[0] == "--set" else change[0].strip("-")
            for resume in ([], ["--resume"]):
                status, printed, err = call(capsys, *words, *change, "--out", tmp_path, *resume)
                assert status == 2 and printed == [] and re.search(rf"differs in {name} \(there: .*, given: .*\)", err)
    assert call(capsys, *(COMPARE if words is RUN else RUN), "--out", tmp_path, "--resume")[0] == 2
    assert files(tmp_path) == before
    (tmp_path / outputs.IDENTITY).unlink()  # of a version that wrote none
    assert "unknown run" in call(capsys, *words, "--out", tmp_path)[2]
    (tmp_path / outputs.IDENTITY).write_text("{")
    assert f"{outputs.IDENTITY} is damaged" in call(capsys, *words, "--out", tmp_path, "--resume")[2]


def test_a_second_run_in_the_folder_is_refused_while_the_first_lasts(capsys, tmp_path):
    for words in (RUN, COMPARE):
        with outputs.claimed(tmp_path, {}, (), False):
            status, printed, err = call(capsys, *words, "--out", tmp_path)
            assert status == 2 and printed == [] and f"in use by process {os.getpid()}" in err
    assert call(capsys, *RUN, "--out", tmp_path)[0] == 0


def test_a_longer_run_interrupted_leaves_no_result_of_the_shorter_one(capsys, tmp_path, monkeypatch):
    call(capsys, *RUN, "--out", tmp_path)
    longer = [*RUN[:-1], "rounds=5", "--out", tmp_path, "--resume"]
    interrupt_at(monkeypatch, 2)
    assert call(capsys, *longer)[0] == 130
    monkeypatch.undo()
    assert set(files(tmp_path)) == {"checkpoint.pt", "rounds.csv", outputs.IDENTITY}
    assert len((tmp_path / "rounds.csv").read_text().splitlines()) == 1 + 3
    status, printed, err = call(capsys, *longer)
    assert status == 0 and "3 of 5 rounds" in err
    whole = json.loads(call(capsys, *longer[:-3])[1][-1])
    assert timeless(json.loads(printed[-1])) == timeless(whole) == stored(tmp_path / "result.json")


@pytest.fixture(scope="module")
def whole_table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert command.main([*COMPARE, "--out", str(folder)]) == 0
    return stored(folder / "compare.json"), sorted(files(folder))


@pytest.mark.parametrize("end", ["interrupt", "full disk"])
def test_a_comparison_cut_off_goes_on_and_gives_the_same_table(capsys, tmp_path, monkeypatch, whole_table, end):
    write = outputs.write

    def full(path, text):
        if path.name == "cells.json" and len(json.loads(text)["cells"]) == 3:
            raise OSError(28, "No space left on device", str(path))
        write(path, text)

    if end == "interrupt":
        interrupt_at(monkeypatch, 5)  # fedavg trains three times a cell, trials included: in the third's second trial
    else:
        monkeypatch.setattr(outputs, "write", full)
    left = {"interrupt": 2 + 3, "full disk": 1 + 3}[end]  # of the third cell what was not done, and the fourth
    status, printed, err = call(capsys, *COMPARE, "--out", tmp_path)
    assert status == (130 if end == "interrupt" else 1) and printed == [] and str(tmp_path / "cells.json") in err
    monkeypatch.undo()
    executed, execute = [], experiment.execute
    monkeypatch.setattr(experiment, "execute", lambda *a, **b: executed.append(1) or execute(*a, **b))
    again = shlex.split(err.splitlines()[-1].partition("to go on: fedbook ")[2])  # what it says to type
    status, _, err = call(capsys, *again)
    assert status == 0 and "2 cells" in err and len(executed) == left
    table, names = whole_table
    assert stored(tmp_path / "compare.json") == table and sorted(files(tmp_path)) == names
    assert call(capsys, *again)[0] == 0 and len(executed) == left  # nothing left to do: the table once more
    assert stored(tmp_path / "compare.json") == table


@pytest.mark.parametrize("where", ["trial", "cell"])
def test_a_comparison_goes_on_in_the_middle_of_a_run(capsys, tmp_path, monkeypatch, where):
    words = ["compare", *TINY, "--set", "rounds=8", "--methods", "fedavg", "--seeds", "2", "--tune", "lr=0.01,0.1"]
    assert call(capsys, *words, "--out", tmp_path / "whole")[0] == 0
    interrupt_at(monkeypatch, {"trial": 8 + 6, "cell": 8 + 8 + 6}[where])
    out = tmp_path / "cut"
    status, _, err = call(capsys, *words, "--out", out)
    assert status == 130 and "to go on" in err
    assert [path.name for path in (out / "unfinished").iterdir()] == [{"trial": "0-2.pt", "cell": "0.pt"}[where]]
    monkeypatch.undo()
    calls, train = [], FedAvg.train
    monkeypatch.setattr(FedAvg, "train", lambda self, local: calls.append(1) or train(self, local))
    assert call(capsys, *words, "--out", out, "--resume")[0] == 0
    assert len(calls) == {"trial": 3 + 8, "cell": 3}[where]  # five rounds were done
    assert stored(out / "compare.json") == stored(tmp_path / "whole" / "compare.json")
    assert sorted(files(out)) == sorted(files(tmp_path / "whole"))


@pytest.mark.parametrize(("first", "then"), [("run", "compare"), ("compare", "run")])
def test_a_run_and_a_comparison_do_not_share_a_folder(capsys, tmp_path, first, then):
    commands = {"run": ["run", "fedavg", "--problem", "digits", "--set", "rounds=1"], "compare": COMPARE}
    assert call(capsys, *commands[first], "--out", tmp_path)[0] == 0
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    status, _, err = call(capsys, *commands[then], "--out", tmp_path)
    assert status == 2 and "holds another run" in err and "command (there" in err
    assert before == {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}


def test_damaged_cells_are_refused_by_the_files_name(capsys, tmp_path, monkeypatch):
    interrupt_at(monkeypatch, 5)
    assert call(capsys, *COMPARE, "--out", tmp_path)[0] == 130
    cells = tmp_path / "cells.json"
    cells.write_text(cells.read_text()[:-10])
    status, _, err = call(capsys, *COMPARE, "--out", tmp_path, "--resume")
    assert status == 2 and f"{cells} is damaged" in err


ENDS = {
    "rounds=0": (["fedavg", "--problem", "digits", "--set", "rounds=0"], "nothing"),
    "a budget": (["dp2_fedsam", "--problem", "digits", "--set", "epsilon=2", "--set", "noise_multiplier=1"], "stopped"),
    "a large step": (["fedavg", "--problem", "digits", "--set", "lr=1e9", "--set", "rounds=2"], "diverged"),
    "NaN": (["fedavg", "--problem", "digits", "--set", "lr=1e38", "--set", "rounds=2"], "diverged"),
    "its own word": (["hetero_ssfl", "--problem", "digits", "--set", "lr=1e9", "--set", "rounds=2"], "diverged"),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_run_that_did_not_do_what_was_asked_says_so(capsys, case):
    words, how = ENDS[case]
    status, printed, err = call(capsys, "run", *words)
    assert status == 3 and json.loads(printed[-1])["ended"] == how and f"fedbook: {how} after " in err


def test_a_comparison_says_which_runs_diverged(capsys):
    words = ["compare", *TINY, "--set", "rounds=1", "--methods", "fedavg", "--vary", "lr=0.1,1e38", "--seeds", "2"]
    status, printed, err = call(capsys, *words)
    assert status == 3 and len(json.loads(printed[-1])["cells"]) == 2
    assert "lr=1e+38: 2 of 2" in err and "lr=0.1:" not in err


@pytest.mark.parametrize(("module", "number", "status"), [
    ("fedbook.interrupts", signal.SIGINT, 130), ("argparse", signal.SIGINT, 130), ("torch", signal.SIGINT, 130),
    ("fedbook.command", signal.SIGTERM, 143), ("fedbook.experiment", signal.SIGTERM, 143),
])  # fmt: skip
def test_a_signal_while_it_starts_is_no_traceback(module, number, status):
    """It comes while ``module`` is imported."""
    code = f"""if True:
        import os, runpy, signal, sys
        class Press:
            def find_spec(self, name, *_):
                if name == {module!r}:
                    os.kill(os.getpid(), {int(number)})
        sys.modules.pop("argparse", None)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.meta_path.insert(0, Press())
        sys.argv[1:] = {RUN!r}
        runpy.run_module("fedbook", run_name="__main__")
    """
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, timeout=100)
    word = "interrupted" if number == signal.SIGINT else "terminated"
    assert done.returncode == status and done.stdout == "", done.stderr
    assert done.stderr.splitlines()[0] == f"fedbook: {word}" and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        *(("stdout", words) for words in (["list"], ["compare", "cvfl", "--help"], ["data", "--list"], RUN)),
        ("stderr", ["run", "no-such-paper"]), ("full disk", ["--help"]), ("full disk", RUN),
    ],
)  # fmt: skip
def test_a_reader_that_goes_away_gets_no_traceback(tmp_path, stream, words):
    """``fedbook list | head``: nobody is told that nobody listens; a full disk is an error. The files are there."""
    words = [*words, "--out", str(tmp_path / "out")] if words is RUN else words
    line, pipe = [sys.executable, "-m", "fedbook", *words], subprocess.PIPE
    with open("/dev/full", "w") as full:
        process = subprocess.Popen(
            line, stdout=full if stream == "full disk" else pipe, stderr=pipe, env=ENVIRONMENT, text=True
        )
        closed = {"stdout": process.stdout, "stderr": process.stderr}.get(stream)
        if closed is not None:
            closed.close()
        said = "" if stream == "stderr" else process.stderr.read()
        status = process.wait(100)
    assert status == 1 and "Traceback" not in said and "ignored" not in said
    assert "Error" not in said and ("No space left on device" in said) == (stream == "full disk")
    if words[0] == "run" and stream != "stderr":
        assert stored(tmp_path / "out" / "result.json")["ended"] == "done"


ALLOWED = {  # exit statuses; 0 where it was done before the signal came
    "SIGINT": (130, 0), "SIGTERM": (143, 0), "SIGKILL": (137, 0), "full disk": (1, 2), "a second run": ([0, True],),
}  # fmt: skip


@pytest.mark.slow
def test_fifty_disturbances_lose_nothing(tmp_path):
    """Signals at many moments, a full disk, a second run in the folder: going on gives the undisturbed run's files."""
    script = Path(__file__).with_name("interrupt_the_command.py")
    done = subprocess.run(
        [sys.executable, script, tmp_path], env=ENVIRONMENT, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert len(report) == 50
    for entry in report:
        assert entry["same"] and entry["status"] in ALLOWED[entry["came"]] and "Traceback" not in entry["said"], entry
    hit = [entry for entry in report if entry["status"] in (130, 143, 137)]
    assert len(hit) >= 19  # half of the signals, on a busy machine
    told = ["to go on: fedbook " in entry["said"] for entry in hit if entry["came"] != "SIGKILL"]
    assert sum(told) >= len(told) / 2  # the others came before anything was finished
