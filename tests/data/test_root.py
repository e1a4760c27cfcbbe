"""Where data are looked for, and what is said when they are not there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedbook.data
from fedbook.data import DataNotFound
from fedbook.data import root as roots
from fedbook.data.sources import DataFile, Source

PACKAGE = Path(fedbook.data.__file__).parents[1]


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Four folders: argument, environment, checkout, user; the latter three are set up as such."""
    named = {name: tmp_path / name for name in ("argument", "environment", "checkout", "user")}
    for place in named.values():
        place.mkdir()
    monkeypatch.setenv("FEDBOOK_DATA", str(named["environment"]))
    monkeypatch.setattr(roots, "of_book", lambda: named["checkout"])
    monkeypatch.setattr(roots, "of_user", lambda: named["user"])
    return named


def find(root=None):
    return roots.find(Source("things", (DataFile("a"), DataFile("b")), "", ""), root)


def put(place, *names):
    for name in names:
        (place / name).write_bytes(b"x")


def test_order_of_the_folders(places):
    assert roots.folders() == (places["environment"], places["checkout"], places["user"])
    assert roots.folders(places["argument"]) == (places["argument"],)
    assert roots.folders(str(places["argument"])) == (places["argument"],)


def test_the_first_that_holds_all_files_serves(places):
    put(places["user"], "a", "b")
    assert find() == places["user"]
    put(places["checkout"], "a", "b")
    assert find() == places["checkout"]
    put(places["environment"], "a")
    assert find() == places["checkout"]
    put(places["environment"], "b")
    assert find() == places["environment"]
    with pytest.raises(DataNotFound):
        find(places["argument"])
    put(places["argument"], "a", "b")
    assert find(places["argument"]) == places["argument"]


def test_the_message_says_dataset_folders_files_and_remedy(places):
    put(places["user"], "a")
    with pytest.raises(FileNotFoundError) as caught:
        find()
    text = str(caught.value)
    for part in ("'things'", "environment", "checkout", "user", "for: b\n", "fedbook data things", "FEDBOOK_DATA"):
        assert part in text
    assert text.index("environment") < text.index("checkout") < text.index("/user")
    assert caught.value.name == "things" and caught.value.missing == ("b",)


def test_new_data_never_go_to_the_checkout(places, monkeypatch):
    assert roots.to_write(places["argument"]) == places["argument"]
    assert roots.to_write() == places["environment"]
    monkeypatch.delenv("FEDBOOK_DATA")
    assert roots.to_write() == places["user"]
    monkeypatch.setenv("FEDBOOK_DATA", "")
    assert roots.folders() == (places["checkout"], places["user"])


def test_refuses_what_is_no_folder(places, monkeypatch):
    put(places["user"], "file")
    with pytest.raises(ValueError, match="root: .*a folder, and this is a file"):
        roots.folders(places["user"] / "file")
    for bad in (3, b"x", ["x"]):
        with pytest.raises(TypeError, match="root: got"):
            roots.folders(bad)
    with pytest.raises(ValueError, match="root: got ''"):
        roots.folders("")
    monkeypatch.setenv("FEDBOOK_DATA", str(places["user"] / "file"))
    with pytest.raises(ValueError, match="FEDBOOK_DATA: "):
        roots.folders()


def test_the_checkout_is_this_one():
    assert roots.of_book() == PACKAGE.parent / "data"


def test_importing_is_cheap():
    code = (
        "import sys, fedbook.data, fedbook.data.fetch\n"
        "print([m for m in ('sklearn', 'scipy', 'pandas', 'requests', 'matplotlib', 'IPython') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
