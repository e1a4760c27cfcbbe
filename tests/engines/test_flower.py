"""Flower's own processes on loopback: a SuperLink, SuperNodes with folders of their own, TLS, registered nodes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedbook[flower]'")

from fedbook.engines import loopback
from fedbook.engines.flower import held, read_plan, write_plan
from fedbook.experiment import plan, result
from fedbook.federation import run
from fedbook.papers import paper

pytestmark = pytest.mark.slow

DIGITS = {"train_samples": 240, "test_samples": 60}
ALIGNED = {"local_epochs": 1, "alignment_samples": 20, "alignment_batch": 20}
RUNS = {
    "fedavg": ("fedavg", "digits", {**DIGITS, "clients": 6, "clients_per_round": 4, "rounds": 2}),
    "fedsc": (
        "fedsc",
        "digits",
        {**DIGITS, "clients": 3, "partition": "iid", "rounds": 1, "local_epochs": 1, "compressor": "topk", "bits": 2},
    ),
    "hetero_ssfl": ("hetero-ssfl", "digits", {**DIGITS, **ALIGNED, "clients": 3, "classes_per_client": 4, "rounds": 1}),
    "prirfed": ("dp-rsgd", "pca-digits", {"agents": 6, "samples": 120, "rounds": 1}),
    "dp2_fedsam": ("dp2-fedsam", "digits", {"clients": 6, "train_samples": 240, "rounds": 2}),
    "cvfl": ("c-vfl", "digits", {"train_samples": 100, "test_samples": 50, "rounds": 1, "batch_size": 20}),
}


def chosen(name):
    method, problem, changes = RUNS[name]
    return plan(paper(name), method, problem, "quick", changes, (3,), "cpu")


def command(name, out, *more):
    method, problem, changes = RUNS[name]
    words = [sys.executable, "-m", "fedbook", "run", name, "--method", method, "--problem", problem, "--seed", "3",
             "--device", "cpu", "--engine", "flower", "--out", str(out), *more]  # fmt: skip
    return words + [f"--set={key}={value}" for key, value in changes.items()]


def simulated(name):
    rounds = run(chosen(name).rounds(how="loop"))
    return result(rounds, chosen(name), 0.0)


def agrees(said, name):
    expected = simulated(name)
    numbers = {key: value for key, value in expected["metrics"].items() if isinstance(value, float)}
    assert numbers == pytest.approx({key: said["metrics"][key] for key in numbers}, abs=1e-6)
    return all(said[key] == expected[key] for key in ("rounds", "bytes_up", "bytes_down", "epsilon"))


@pytest.mark.parametrize("name", RUNS)
def test_real_nodes_give_the_simulators_numbers(name, tmp_path):
    done = subprocess.run(command(name, tmp_path / "run"), capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert agrees(said, name) and said["lost"] == [] and said["messages_up"] > 0
    for part in ("no secure aggregation", "does not protect from the server", "the state and the trace"):
        assert any(part in words for words in said["privacy"]["not_counted"])


def test_a_killed_run_goes_on(tmp_path):
    """Server, link and nodes all die at once, after the first round."""
    out = tmp_path / "run"
    first = subprocess.Popen(command("dp2_fedsam", out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (out / "checkpoint.pt").exists():
        assert time.monotonic() < deadline and first.poll() is None
        time.sleep(0.2)
    mine = f"FLWR_HOME={(out / 'flower').resolve()}".encode()
    for process in (int(word) for word in os.listdir("/proc") if word.isdigit()):
        try:
            with open(f"/proc/{process}/environ", "rb") as file:
                if mine in file.read().split(b"\0"):
                    os.kill(process, signal.SIGKILL)
        except OSError:
            continue
    first.kill()
    first.wait()
    done = subprocess.run(command("dp2_fedsam", out, "--resume"), capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    assert agrees(json.loads(done.stdout.splitlines()[-1]), "dp2_fedsam")


def test_a_plan_travels_whole_and_every_client_has_one_node():
    assert all(read_plan(write_plan(chosen(name))) == chosen(name) for name in RUNS)
    assert sorted(client for clients in held(7, 3).values() for client in clients) == list(range(7))


def test_a_result_is_kept_until_there_is_a_new_one(tmp_path):
    from fedbook.engines.loopback import _put_aside

    path = tmp_path / "result.json"
    path.write_text("old")
    with pytest.raises(RuntimeError), _put_aside(path):
        assert not path.exists()
        raise RuntimeError
    assert path.read_text() == "old"
    with _put_aside(path):
        path.write_text("new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_every_start_has_certificates_and_a_node_keeps_its_keys(tmp_path):
    loopback.certificates(tmp_path, 2)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    loopback.certificates(tmp_path, 70)
    after = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    kept = {name for name in before if after[name] == before[name]}
    assert kept == {"node0.key", "node0.pub", "node1.key", "node1.pub"} and "node69.pub" in after
    assert (tmp_path / "server.key").stat().st_mode & 0o777 == 0o600
