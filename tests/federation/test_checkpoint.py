"""Checkpoints: refused by name of what differs, never half written, never a door for code."""

import os
import pickle
import re
import resource

import pytest
import torch

from fedbook.federation import CheckpointError, Federation, Rounds
from fedbook.federation import checkpoint as files
from fedbook.learning.models import model
from fedbook.papers.fedavg import Config, FedAvg
from fedbook.partition import iid
from fedbook.randomness import normal, stream


def rounds(path=None, seeds=(0,), total=3, clients=4, shift=0.0, resume=True, noise_seeds="same", **config):
    x, y = normal((40, 1, 8, 8), stream(0, "x")).float() + shift, torch.arange(40) % 4
    settings = Config(**({"batch_size": 5, "lr": 0.1} | config))
    federation = Federation({"x": x, "y": y}, iid(40, clients, 0))
    algorithm = FedAvg(settings, model("linear", (1, 8, 8), 4))
    return Rounds(algorithm, federation, total, seeds=seeds, path=path, resume=resume, noise_seeds=noise_seeds)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"lr": 0.2}, "fedavg.lr"),
        ({"local_epochs": 3}, "fedavg.local_epochs"),
        ({"seeds": (1,)}, "seeds"),
        ({"clients": 5}, "data"),
        ({"shift": 1.0}, "data"),
    ],
)
def test_another_configuration_is_refused_by_name(tmp_path, change, word):
    path = tmp_path / "run.pt"
    list(rounds(path))
    with pytest.raises(CheckpointError, match=word) as caught:
        rounds(path, **change)
    others = (
        {"fedavg.lr", "fedavg.local_epochs", "seeds", "data"} - {word} - ({"noise_seeds"} if word == "seeds" else set())
    )
    assert not any(f"{other} (" in str(caught.value).replace("noise_seeds (", "") for other in others)


def test_a_run_can_be_prolonged(tmp_path):
    path = tmp_path / "run.pt"
    list(rounds(path, total=2))
    longer = rounds(path, total=5)
    assert longer.t == 2
    list(longer)
    whole = rounds(total=5)
    list(whole)
    assert longer.history == whole.history
    assert all(torch.equal(longer.server["theta"][k], whole.server["theta"][k]) for k in whole.server["theta"])


def test_without_resume_a_run_starts_anew(tmp_path):
    path = tmp_path / "run.pt"
    list(rounds(path))
    assert rounds(path, resume=False).t == -1


def test_damaged_and_foreign_files(tmp_path):
    path = tmp_path / "run.pt"
    list(rounds(path))
    for damaged in (b"", b"not a checkpoint", pickle.dumps({"format": 2})):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"run\.pt"):
            files.load(path)
    torch.save({"format": 2, "configuration": {}}, path)  # as the version before wrote it
    with pytest.raises(CheckpointError, match="format"):
        files.load(path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        files.load(tmp_path / "missing.pt")


@pytest.mark.parametrize("name", ["run.pt", "run.pt.releases"])
def test_every_flipped_bit_and_every_truncation_is_refused_with_the_files_name(tmp_path, name):
    """200 of each, spread over the file; the ledger of the system's noise, beside the checkpoint, too."""
    path = tmp_path / "run.pt"
    list(rounds(path, noise_seeds="system"))
    whole, draw = (tmp_path / name).read_bytes(), stream(0, "damage")
    damaged = [whole[:length] for length in draw.choice(len(whole), 200, replace=False)]
    for bit in draw.choice(8 * len(whole), 200, replace=False):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << (bit % 8)
        damaged.append(bytes(flipped))
    for content in damaged:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CheckpointError, match=re.escape(f"{tmp_path / name} ")):
            rounds(path, noise_seeds="system")
    (tmp_path / name).write_bytes(whole)
    assert rounds(path, noise_seeds="system").t == 3


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil-was-here",)


def test_a_checkpoint_cannot_run_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.save("evil.pt", {"configuration": {}, "server": Evil()})
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        files.load("evil.pt")
    assert not (tmp_path / "evil-was-here").exists()


@pytest.mark.parametrize("left", [10, 1000, 100_000])
def test_a_full_disk_is_an_error_with_the_files_name_and_leaves_the_old_file(tmp_path, left):
    """Wherever in the file it happens, PyTorch's own writing included."""
    path = tmp_path / "run.pt"
    list(rounds(path))
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, limits[1]))
    try:
        with pytest.raises(OSError, match=re.escape(str(path))):
            files.save(path, {"configuration": {}, "x": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["run.pt"]
