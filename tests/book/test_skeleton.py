"""A new paper: green as it is made, refused by name, and nothing half made."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedbook.book import skeleton
from fedbook.command import main

ROOT = Path(__file__).parents[2]
UNWANTED = shutil.ignore_patterns("__pycache__", ".*")


def contents(root):
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def works(words, root):
    raise AssertionError("work began")


@pytest.fixture
def small(tmp_path, monkeypatch):
    """What of a checkout a new paper is entered into; no other program is called."""
    monkeypatch.setattr(skeleton, "_call", works)
    for name in ("fedbook/papers", "fedbook/chapters", "tests/papers", "notebooks"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=UNWANTED)
    (tmp_path / "fedbook/book").mkdir()
    shutil.copy(ROOT / "fedbook/book/contents.py", tmp_path / "fedbook/book")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        "fedsc",
        "privacy",
        "start_here",
        "description",
        "Mine",
        "my-paper",
        "2nd",
        "lambda",
        "torch",
        "",
        "x__y",
        "../x",
        "personalised_prototypes",
    ],  # 23 letters
)
def test_a_name_that_cannot_be_used_is_refused_and_nothing_is_made(small, name):
    before = contents(small)
    with pytest.raises(ValueError, match="^NAME: got .*; allowed is "):
        skeleton.new_paper(name, small)
    assert contents(small) == before


def test_outside_a_checkout_nothing_is_made(tmp_path):
    with pytest.raises(ValueError, match="new-paper: got .*; allowed is a checkout"):
        skeleton.new_paper("mine", tmp_path)
    assert not any(tmp_path.iterdir())


def test_the_command_refuses_in_one_line(capsys):
    assert main(["new-paper", "cvfl"]) == 2
    assert capsys.readouterr().err.startswith("fedbook: NAME: got 'cvfl'")


@pytest.mark.parametrize("error", [RuntimeError("a notebook failed"), KeyboardInterrupt()])
def test_what_fails_on_the_way_leaves_the_checkout_as_it_was(small, monkeypatch, error):
    before, made = contents(small), []

    def fails(words, root):
        made.append((root / "fedbook/papers/mine/algorithm.py").is_file())
        if words[0] == "fedbook":
            raise error

    monkeypatch.setattr(skeleton, "_call", fails)
    with pytest.raises(type(error)):
        skeleton.new_paper("mine", small)
    assert made == [True] * 3 and contents(small) == before
    assert not (small / "fedbook/papers/mine").exists() and not (small / "tests/papers/mine").exists()


@pytest.mark.slow
def test_a_new_paper_is_green(tmp_path):
    """Its own tests, the rules and runs of its notebooks, the floors and the lint, in a copy of the tree."""
    for name in ("fedbook", "tests", "benchmarks", "notebooks"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=UNWANTED)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "data").symlink_to(ROOT / "data")

    def call(*words):
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    call("fedbook", "new-paper", "aa_mine")  # first of all in every sorted import
    call("ruff", "check", "fedbook", "tests", "benchmarks")
    call("ruff", "format", "--check", "fedbook", "tests")
    chapters = "aa_mine or (test_rules and cvfl)"  # its neighbours' bars have changed
    out = call("pytest", "-q", "-p", "no:xdist", "tests/papers/aa_mine", "tests/test_floors.py",
               "tests/book/test_contents.py", "tests/notebooks", "-k", f"not test_chapters or {chapters}")  # fmt: skip
    assert " passed" in out and "failed" not in out
    assert "aa-mine" in call("fedbook", "list", "aa_mine")
    again = subprocess.run([sys.executable, "-m", "fedbook", "new-paper", "aa_mine"], cwd=tmp_path,
                           env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)  # fmt: skip
    assert again.returncode == 2 and "NAME: got 'aa_mine'" in again.stderr
