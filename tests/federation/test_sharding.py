"""Several processes share a run: the numbers of one, and all end together. One launch costs seconds: mostly slow."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from fedbook import command
from fedbook.federation import sharding
from fedbook.federation.exchange import Diverged
from fedbook.federation.tree import flatten
from fedbook.interrupts import Terminated

HERE = Path(__file__).parent
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
TWO = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
RUN = ["run", "fedavg", "--problem", "digits", "--device", "cpu"]


def start(*words, **options):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*map(str, words)], env=ENVIRONMENT, **pipes, **options)


def ended(process):
    out, error = process.communicate(timeout=300)
    return process.returncode, out, error


@pytest.mark.parametrize("counts", [[10], [3, 0, 4], [1, 1, 1, 1, 1], [1], [7, 2]])
@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_each_row_has_one_process_and_the_parts_are_equally_large(counts, parts):
    slices = [sharding.split(counts, part, parts) for part in range(parts)]
    for number, count in enumerate(counts):
        assert [row for own in slices for row in range(count)[own[number]]] == list(range(count))
    sizes = [sum(one.stop - one.start for one in own) for own in slices]
    assert max(sizes) - min(sizes) <= 1


def test_only_a_run_is_shared(monkeypatch, capsys):
    for name, value in (("TORCHELASTIC_RUN_ID", "here"), ("RANK", "0"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    assert command.main(["compare", "fedavg"]) == 2
    assert "2 processes" in capsys.readouterr().err


@pytest.mark.parametrize("reason", [KeyboardInterrupt(), Terminated(), MemoryError("no room"), None])
def test_a_process_that_the_others_left_tells_its_own_reason(monkeypatch, reason):
    """One signal reaches all: who leaves between two rounds is not there to hear that another leaves within one."""

    def gone(value):
        raise sharding.ProcessFailed("another process of this run has gone")

    def work(number, rows):
        if reason is not None:
            raise reason
        return None

    for name, value in (("size", lambda: 2), ("rank", lambda: 0), ("_all_objects", gone)):
        monkeypatch.setattr(sharding, name, value)
    with pytest.raises(sharding.ProcessFailed if reason is None else type(reason)) as end:
        sharding.shared([2], work)
    assert reason is None or end.value is reason


def test_a_run_that_diverges_in_one_process_diverges_in_all(monkeypatch):
    """It ends as on one process, with its result, and is no crash."""

    def heard(value):
        return [value, (None, 0, None)]

    def work(number, rows):
        raise Diverged("a model grew without bound")

    for name, value in (("size", lambda: 2), ("rank", lambda: 0), ("_all_objects", heard)):
        monkeypatch.setattr(sharding, name, value)
    with pytest.raises(Diverged, match="^a model grew without bound$"):
        sharding.shared([2], work)
    monkeypatch.setattr(sharding, "_all_objects", lambda value: [(None, 0, None), ("p: Diverged: x", 0, "x")])
    with pytest.raises(Diverged, match="^x$"):
        sharding._tell(None)
    monkeypatch.setattr(
        sharding, "_all_objects", lambda value: [("p: Diverged: x", 0, "x"), ("q: ValueError", 0, None)]
    )
    with pytest.raises(sharding.ProcessFailed, match="ValueError"):
        sharding._tell(None)


@pytest.mark.slow
def test_two_processes_compute_what_one_does(tmp_path):
    """All papers, ragged groups and set-ups included, each gone on with from a checkpoint after its first round."""
    script = HERE / "shared_runs.py"
    for words in ([sys.executable, script, tmp_path / "one"], [*TWO, script, tmp_path / "two"]):
        status, _, error = ended(start(*words))
        assert status == 0, error
    one, two = (torch.load(tmp_path / name, weights_only=True) for name in ("one", "two"))
    assert set(one) == set(two)
    for name in one:
        assert one[name]["bytes"] == two[name]["bytes"], name
        exact = name in ("FedAvg", "LocalOnly")  # in float64
        near = 1e-12 if exact else 1e-5
        for part in ("server", "clients"):
            mine, shared = (flatten(run[name][part]) for run in (one, two))
            assert mine.keys() == shared.keys()
            tensors = {leaf: value for leaf, value in mine.items() if isinstance(value, torch.Tensor)}
            assert all(value.dtype == torch.float64 for value in tensors.values()) or not exact
            for leaf, value in tensors.items():
                assert torch.allclose(value, shared[leaf], rtol=near, atol=near), (name, part, leaf)
        for mine, shared in zip(one[name]["history"], two[name]["history"], strict=True):
            for values, others in ((mine[word], shared[word]) for word in ("trace", "metrics")):
                assert values.keys() == others.keys()
                for key in values:
                    both = [[float("nan") if x is None else x for x in numbers[key]] for numbers in (values, others)]
                    a, b = torch.tensor(both, dtype=torch.float64)
                    assert torch.allclose(a, b, rtol=near, atol=near, equal_nan=True), (name, key)


@pytest.mark.slow
def test_an_error_in_one_process_ends_all_with_one_message(tmp_path):
    run = [*RUN, "--set", "rounds=4", "--out", tmp_path / "run"]
    status, out, error = ended(start(*TWO, HERE / "fail_in_one_process.py", *run))
    assert status != 0 and "{" not in out
    assert error.count("no room for a client") == 1 and "process 1: MemoryError" in error
    status, out, error = ended(start(sys.executable, "-m", "fedbook", *run, "--resume"))  # one process goes on alone
    assert status == 0 and '"rounds": 4' in out and "2 of 4 rounds are in" in error


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_and_what_was_finished_is_there(tmp_path, number):
    process = start(*TWO, "-m", "fedbook", *RUN, "--set", "rounds=100000", "--out", tmp_path / "run")
    log, until = tmp_path / "run" / "rounds.csv", time.monotonic() + 120
    while not log.exists() or len(log.read_text().splitlines()) < 4:
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.1)
    process.send_signal(number)
    status, out, error = ended(process)
    word = "interrupted" if number == signal.SIGINT else "terminated"
    assert status != 0 and "{" not in out and error.count(f"fedbook: {word}") == 1
    assert (tmp_path / "run" / "checkpoint.pt").exists() and "--resume" in error
