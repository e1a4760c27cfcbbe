"""What Tab offers is what the command then takes."""

import io
import os
import subprocess
import sys
from pathlib import Path

import argcomplete
import pytest

from fedbook import __main__, command, completion, papers

ROOT = Path(__file__).resolve().parents[1]


def offered(monkeypatch, line):
    """The words that the shell is offered at the end of ``line``."""
    parser, out = command._parser(), io.StringIO()
    for name, value in {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line.encode())),
                        "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_COMP_WORDBREAKS": " "}.items():  # fmt: skip
        monkeypatch.setenv(name, value)

    def stop(code):
        raise SystemExit

    def closed(number, mode):  # argcomplete would write its debugging to number 9, which pytest uses
        raise OSError

    monkeypatch.setattr(os, "fdopen", closed)
    with pytest.raises(SystemExit):
        argcomplete.autocomplete(parser, exit_method=stop, output_stream=out)
    monkeypatch.undo()
    return [word.strip() for word in out.getvalue().split("\n")]


@pytest.mark.parametrize("name", papers.NAMES)
def test_a_paper_completes_methods_problems_and_settings(monkeypatch, name):
    paper = papers.paper(name)
    assert set(offered(monkeypatch, f"fedbook run {name} --method ")) == set(paper.methods)
    assert set(offered(monkeypatch, f"fedbook run {name} --problem ")) == set(paper.problems)
    assert set(offered(monkeypatch, f"fedbook compare {name} --vary ")) == {f"{word}=" for word in paper.defaults()}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fedbook run ", set(papers.NAMES) | {"-h", "--help"}),
        ("fedbook run fedavg --profile s", {"standard"}),
        ("fedbook run 5 --set bits", {"bits=", "bits_schedule="}),
        ("fedbook run fedavg --set partition=d", {"partition=dirichlet"}),
        ("fedbook compare fedavg --vary partition=iid,d", {"partition=iid,dirichlet"}),
        ("fedbook compare fedavg --methods fedavg,l", {"fedavg,local"}),
        ("fedbook data mnis", {"mnist"}),
        ("fedbook run nosuch --method ", set()),
    ],
)
def test_words_complete(monkeypatch, line, expected):
    words = set(offered(monkeypatch, line)) - {""}
    assert words == expected or (line == "fedbook run " and words >= set(papers.NAMES))


def test_the_installed_command_answers_the_shell(tmp_path):
    answer = tmp_path / "answer"
    line = "fedbook run fedavg --set weighti"
    env = os.environ | {
        "_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_COMP_WORDBREAKS": " ", "_ARGCOMPLETE_STDOUT_FILENAME": str(answer), "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "fedbook"], env=env, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert {word.strip() for word in answer.read_text().split("\n")} == {"weighting="}
    assert b"PYTHON_ARGCOMPLETE_OK" in Path(__main__.__file__).read_bytes()[:1024]  # what global completion looks for


def test_without_a_shell_that_asks_nothing_is_loaded(monkeypatch):
    monkeypatch.delenv("_ARGCOMPLETE", raising=False)
    monkeypatch.setitem(sys.modules, "argcomplete", None)  # an import of it would fail
    completion.offer(command._parser())
