"""Sixty mistakes of somebody who is new: each is refused by name, at once, with nothing lost."""

import re

import pytest

from fedbook import command

DIGITS = ["--problem", "digits"]
# what was typed -> status, what the message names
MISTAKES = [
    # the command itself
    ([], 2, "command"),
    (["runn", "fedavg"], 2, "command: invalid choice: 'runn'"),
    (["run"], 2, "paper"),
    (["fedavg"], 2, "invalid choice: 'fedavg'"),
    (["Run", "fedavg"], 2, "'Run'"),
    (["help"], 2, "'help'"),
    (["run", "fedavg", "fedsc"], 2, "unrecognized arguments: fedsc"),
    (["run", "FedAvg"], 2, "paper: got 'FedAvg'.*did you mean fedavg"),
    (["run", "6"], 2, "paper: got '6'"),
    (["run", ""], 2, "paper: got ''"),
    (["run", "dp2-fedsam"], 2, "paper: got 'dp2-fedsam'.*did you mean dp2_fedsam"),
    (["run", "notebooks/01_fedscc.ipynb"], 2, "paper: got 'notebooks/01_fedscc.ipynb'"),
    (["list", "nothing"], 2, "paper: got 'nothing'"),
    # options
    (["run", "fedavg", "--seeds", "3"], 2, "--seeds 3; did you mean --seed"),
    (["compare", "fedavg", "--seed", "3"], 2, "--seed 3; did you mean --seeds"),
    (["run", "fedavg", "--methods", "local"], 2, "--methods local; did you mean --method"),
    (["compare", "fedavg", "--method", "local"], 2, "--method local; did you mean --methods"),
    (["run", "fedavg", "--sett", "lr=1"], 2, "did you mean --set"),
    (["run", "fedavg", "--rounds", "-3"], 2, "--rounds -3; a setting is given as --set rounds=VALUE"),
    (["rnu", "fedavg"], 2, "did you mean run"),
    (["run", "fedavg", "--lr", "0.1"], 2, "--lr"),
    (["run", "fedavg", "--set"], 2, "--set: expected one argument"),
    (["run", "fedavg", "-set", "lr=1"], 2, "-s"),
    (["run", "fedavg", "--seed", "one"], 2, "--seed: got 'one'"),
    (["run", "fedavg", "--seed", "1.0"], 2, "--seed: got '1.0'"),
    (["run", "fedavg", "--seed", "-3"], 2, "seed: got -3"),
    (["run", "fedavg", "--device", "gpu"], 2, "device: got 'gpu'"),
    (["run", "fedavg", "--profile", "fast"], 2, "profile: got 'fast'"),
    (["run", "fedavg", "--problem", "MNIST"], 2, "problem: got 'MNIST'.*did you mean mnist"),
    (["run", "fedavg", "--problem", "imagenet"], 2, "problem: got 'imagenet'"),
    (["run", "fedavg", "--method", "fedprox"], 2, "method: got 'fedprox'"),
    (["run", "fedavg", "--method", "FedSGD"], 2, "method: got 'FedSGD'.*did you mean fedsgd"),
    # settings
    (["run", "fedavg", "--set", "lr"], 2, "--set: got 'lr'"),
    (["run", "fedavg", "--set", "lr="], 2, "--set: got 'lr='"),
    (["run", "fedavg", "--set", "lr:0.1"], 2, "--set: got 'lr:0.1'"),
    (["run", "fedavg", "--set", "lr=0,1"], 2, "--set lr: got '0,1'"),
    (["run", "fedavg", "--set", "lr=0"], 2, "lr: got 0.0"),
    (["run", "fedavg", "--set", "lr=inf"], 2, "lr: got inf"),
    (["run", "fedavg", "--set", "lr=0.1,momentum=0.9"], 2, "--set lr: got '0.1,momentum=0.9'"),
    (["run", "fedavg", "--set", "learning_rate=0.1"], 2, "--set: got 'learning_rate'"),
    (["run", "fedavg", "--set", "epochs=3"], 2, "--set: got 'epochs'"),
    (["run", "fedavg", "--set", "partition=Dirichlet"], 2, "partition: got 'Dirichlet'.*did you mean dirichlet"),
    (["run", "fedavg", "--set", "rounds=ten"], 2, "--set rounds: got 'ten'"),
    (["run", "fedavg", "--set", "rounds=-1"], 2, "rounds: got -1"),
    (["run", "fedavg", "--set", "clients=0"], 2, "clients: got 0"),
    (["run", "fedavg", *DIGITS, "--set", "clients=5000"], 2, "clients"),
    (["run", "fedavg", *DIGITS, "--set", "clients_per_round=50"], 2, "clients_per_round: got 50"),
    (["run", "fedavg", *DIGITS, "--set", "train_samples=5000"], 2, "train_samples: got 5000"),
    (["run", "fedavg", *DIGITS, "--set", "model=resnet"], 2, "model: got 'resnet'"),
    (["run", "fedsc", *DIGITS, "--set", "clip_in_loss=yes"], 2, "--set clip_in_loss: got 'yes'"),
    (["run", "hetero_ssfl", *DIGITS, "--set", "architectures=cnn,transformer"], 2, "transformer"),
    (["run", "hetero_ssfl", *DIGITS, "--set", "weights=0.5,0.6"], 2, "weights: got '0.5,0.6'"),
    (["run", "dp2_fedsam", *DIGITS, "--set", "epsilon=-1"], 2, "epsilon: got -1.0"),
    (["run", "dp2_fedsam", *DIGITS, "--set", "client_rate=5"], 2, "client_rate: got 5.0"),
    (["run", "prirfed", "--set", "agents=0"], 2, "agents: got 0"),
    (["run", "cvfl", *DIGITS, "--set", "bits=64"], 2, "bits: got 64"),
    (["run", "cvfl", *DIGITS, "--method", "secure-sum"], 2, "fusion: got 'concat'"),
    # comparisons
    (["compare", "fedavg", "--methods", "fedavg|local"], 2, "method: got 'fedavg|local'"),
    (["compare", "fedavg", "--methods", "fedavg local"], 2, "method: got 'fedavg local'"),
    (["compare", "fedavg", "--seeds", "0"], 2, "seeds: got 0"),
    (["compare", "fedavg", "--seeds", "0,1,2"], 2, "--seeds: got '0,1,2'"),
    (["compare", "fedavg", "--vary", "method=fedavg,local"], 2, "--vary: got 'method'"),
    (["compare", "fedavg", "--vary", "lr=0.1|0.2"], 2, "--set lr: got '0.1|0.2'"),
    (["compare", "fedavg", "--tune", "lr=0.1,"], 2, "--tune lr: got ''"),
    (["compare", "fedavg", "--vary", "lr=1,2", "--tune", "lr=1,2"], 2, "lr"),
    # notebooks, data, chapters
    (["notebooks"], 2, "DIR"),
    (["notebooks", "full"], 2, "DIR: got 'full'"),
    (["notebooks", "full/note.txt"], 2, "DIR: got 'full/note.txt'"),
    (["data"], 2, "name: got none"),
    (["data", "MNIST"], 2, "name: got 'MNIST'.*did you mean mnist"),
    (["data", "mnist", "--root", "full/note.txt"], 2, "root: got 'full/note.txt'"),
    (["data", "mnist", "--from", "full"], 2, "--from: got 'full'"),
    (["book", "9"], 2, "chapter: got '9'"),
    (["book", "fedvag"], 2, "chapter: got 'fedvag'"),
    (["book", "1", "--profile", "full"], 2, "profile: got 'full'"),
    # what the machine lacks is not a bad argument
    (["run", "fedavg", "--problem", "cifar10"], 1, "fedbook data cifar10"),
    (["compare", "fedavg", "--problem", "cifar10", "--methods", "fedavg"], 1, "fedbook data cifar10"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a file of the user's, and no data but those of the book."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDBOOK_DATA", raising=False)
    return tmp_path


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: " ".join(case[0]) or "nothing")
def test_a_mistake_is_refused_by_name_and_costs_nothing(case, folder, capsys):
    words, expected, message = case
    status = command.main(words)
    seen = capsys.readouterr()
    assert status == expected and seen.out == "" and "Traceback" not in seen.err
    assert seen.err.startswith("fedbook: ") and re.search(message, seen.err), seen.err
    assert "object at 0x" not in seen.err and (expected == 1 or len(seen.err.splitlines()) == 1)
    assert [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*"))] == ["full", "full/note.txt"]
    assert (folder / "full" / "note.txt").read_text() == "mine"
