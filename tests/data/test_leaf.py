"""FEMNIST from LEAF's JSON: what the script writes is read, anything else is refused by the file's name."""

import json
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbook import data
from fedbook.data import BrokenFile, DataNotFound
from fedbook.data.fetch import fetch
from fedbook.data.leaf import read_leaf


def picture(seed):
    """Dark ink on white paper, an F somewhere and some grey."""
    x = np.full((28, 28), 255, np.uint8)
    x[4:20, 6] = x[4, 6:18] = x[11, 6:12] = 0
    x[22 + seed % 5, 20] = (37 * seed) % 256
    return x


def entry(name, *labels, seed=0):
    """A writer's part of a file; the numbers as the script makes them from bytes: divided by 255, as text."""
    x = [(picture(seed + i) / 255).flatten().tolist() for i in range(len(labels))]
    return {name: {"x": x, "y": list(labels)}}


def content(*entries, **change):
    merged = {name: own for one in entries for name, own in one.items()}
    users = [name for name, own in merged.items() if own["y"]]
    counts = [len(merged[name]["y"]) for name in users]
    return {"users": users, "num_samples": counts, "user_data": merged} | change


def write(path, thing):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(thing if isinstance(thing, str) else json.dumps(thing))
    return path


@pytest.fixture
def root(tmp_path):
    """Two files of training images and one of test images; a writer of one image has left an empty place behind."""
    train = tmp_path / "femnist/train"
    write(train / "all_data_1_niid_0_keep_0_train_9.json", content(entry("f0003_11", 61, 3, seed=10)))
    empty = {"f0009_09": {"x": [], "y": []}}
    write(train / "all_data_0_niid_0_keep_0_train_9.json",
          content(entry("f0020_40", 0, 10, 35, seed=20), empty, entry("f0001_12", 9, seed=30)))  # fmt: skip
    test = tmp_path / "femnist/test"
    write(test / "all_data_0_niid_0_keep_0_test_9.json",
          content(entry("f0001_12", 36, 8, seed=40), entry("f0700_13", 2, seed=50)))  # fmt: skip
    return tmp_path


def test_femnist(root):
    images = data.load("femnist", dtype=torch.uint8, root=root)
    assert images.train_x.shape == (6, 1, 28, 28) and images.train_x.dtype == torch.uint8
    seeds = [20, 21, 22, 30, 10, 11]  # file by file in the order of their names
    assert all(np.array_equal(images.train_x[i, 0], picture(seed)) for i, seed in enumerate(seeds))
    assert images.train_y.tolist() == [0, 10, 35, 9, 61, 3] and images.train_y.dtype == torch.int64
    assert "".join(images.classes[y] for y in images.train_y.tolist()) == "0AZ9z3" and len(images.classes) == 62
    assert images.writers == ("f0001_12", "f0003_11", "f0020_40", "f0700_13")
    assert images.train_writer.tolist() == [2, 2, 2, 0, 1, 1] and images.train_writer.dtype == torch.int64
    assert images.test_writer.tolist() == [0, 0, 3] and images.test_y.tolist() == [36, 8, 2]
    assert np.array_equal(images.test_x[2, 0], picture(50))
    images.test_x[0] = 1  # writable
    scaled = data.femnist(root)
    assert scaled.train_x.dtype == torch.float32 and torch.equal(scaled.train_x, images.train_x.float() / 255)
    assert len(repr(images)) < 500


def test_the_digits_alone(root):
    images = data.femnist(root, torch.uint8, characters="digits")
    assert images.classes == tuple("0123456789")
    assert images.train_y.tolist() == [0, 9, 3] and images.test_y.tolist() == [8, 2]
    assert images.writers == ("f0001_12", "f0003_11", "f0020_40", "f0700_13")
    assert images.train_writer.tolist() == [2, 0, 1] and images.test_writer.tolist() == [0, 3]
    assert np.array_equal(images.train_x[2, 0], picture(11)) and np.array_equal(images.test_x[0, 0], picture(41))


def test_every_grey_level_in_any_usual_text(tmp_path):
    levels = np.arange(784) % 256
    for name, numbers in (
        ("double", (levels / 255).tolist()),
        ("single", (levels / np.float32(255)).astype(np.float32).astype(float).tolist()),
        ("short", [round(k / 255, 4) for k in levels.tolist()]),
    ):
        path = write(tmp_path / name, content({"w": {"x": [numbers], "y": [1]}}))
        assert np.array_equal(read_leaf([path])[0].flatten(), levels)


def test_both_parts_have_to_be_there(root):
    for path in (root / "femnist/test").iterdir():
        path.unlink()
    with pytest.raises(DataNotFound, match=r"for: femnist/test/\*\.json\nIt cannot be fetched for you\. LEAF's script"):
        data.femnist(root)
    report = fetch("femnist", root)
    assert not report.ok and [file.state for file in report.files] == ["present", "missing"]
    assert "preprocess.sh" in report.as_text() and report.files[0].count == 2


WHOLE = content(entry("a", 1, 2), entry("b", 3))
TEXT = json.dumps(WHOLE)


def changed(**change):
    return WHOLE | change


def writer(**change):
    return changed(user_data=WHOLE["user_data"] | {"b": WHOLE["user_data"]["b"] | change})


ROW = WHOLE["user_data"]["b"]["x"][0]

BROKEN = {
    "no JSON": ("<html>", "is not what it should be"),
    "missing key": ({"users": ["a"], "user_data": {}}, "num_samples"),
    "key twice": (TEXT[:-1] + ', "users": []}', "a key comes twice in one object"),
    "writer twice": (TEXT.replace('"b": {', '"a": {'), "a key comes twice"),
    "other count": (changed(num_samples=[2, 2]), "writer 'b' has 1 images, 1 labels; num_samples says 2"),
    "user without data": (changed(users=["a", "c"]), "user_data does not hold each of the users once"),
    "data without user": (changed(users=["a"], num_samples=[2]), "writer 'b' has 1 images.*num_samples says 0"),
    "more labels": (writer(y=[3, 4]), "writer 'b' has 1 images, 2 labels"),
    "short image": (writer(x=[ROW[:-1]]), "writer 'b' has an image of other than 784 values"),
    "whole numbers": (writer(x=[[255] * 784]), "is not what it should be"),
    "NaN": (writer(x=[[float("nan"), *ROW[1:]]]), "holds NaN, which is no grey level"),
    "huge": (writer(x=[[1e308, *ROW[1:]]]), r"holds the value 1e\+308; allowed"),
    "above 1": (writer(x=[[256 / 255, *ROW[1:]]]), "holds the value 1.0039"),
    "between": (writer(x=[[0.5 / 255, *ROW[1:]]]), "holds the value 0.0019"),
    "label 62": (writer(y=[62]), "writer 'b' has a label other than the whole numbers 0 to 61"),
    "label true": (writer(y=[True]), "a label other than"),
    "label a decimal": (writer(y=[1.0]), "a label other than"),
}


@pytest.mark.parametrize("thing, message", BROKEN.values(), ids=BROKEN)
def test_refuses_what_the_script_does_not_write(tmp_path, thing, message):
    path = write(tmp_path / "some-file.json", thing)
    with pytest.raises(BrokenFile, match=message) as caught:
        read_leaf([path])
    assert str(caught.value).startswith(f"{path}: ") and len(str(caught.value)) < len(str(path)) + 400


def test_the_whole_file_itself_is_read(tmp_path):
    """Without this the test above could pass because everything is refused."""
    x, y, names = read_leaf([write(tmp_path / "x", WHOLE)])
    assert x.shape == (3, 1, 28, 28) and y.tolist() == [1, 2, 3] and names.tolist() == ["a", "a", "b"]
    x, y, names = read_leaf([write(tmp_path / "y", content())])
    assert x.shape == (0, 1, 28, 28) and len(y) == len(names) == 0


def test_files_of_two_runs_are_refused(tmp_path):
    first, second = (write(tmp_path / f"{i}.json", content(entry("a", 1), entry(f"b{i}", 2))) for i in (1, 2))
    with pytest.raises(
        BrokenFile, match=r"2.json: writer 'a' comes twice, the other time in 1.json: are these files of"
    ):
        read_leaf([first, second])


@pytest.mark.parametrize("bomb", ["[" * 100_000, '{"users": [' + "[]," * 100_000 + "[]]}", '["",' * 50_000])
def test_bombs_are_refused_before_they_are_parsed(tmp_path, bomb):
    path = write(tmp_path / "bomb", bomb)
    tracemalloc.start()
    with pytest.raises(BrokenFile, match="bomb: refused: .* far more lists and texts than images"):
        read_leaf([path])
    assert tracemalloc.get_traced_memory()[1] < 4 * len(bomb) + 2e6
    tracemalloc.stop()


@given(st.data())
def test_any_change_of_a_byte_is_read_or_refused(tmp_path_factory, data):
    text = bytearray(TEXT.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.sampled_from(b'[]{}",:0123456789.-eaxynN \xff'))
    path = tmp_path_factory.mktemp("leaf") / "x"
    path.write_bytes(bytes(text))
    try:
        x, y, names = read_leaf([path])
    except BrokenFile:
        return
    assert x.shape == (len(y), 1, 28, 28) and len(names) == len(y) <= 3 and (y < 62).all()


def test_writers_become_the_clients_of_a_personal_problem(tmp_path):
    """The whole way of chapter 4's FEMNIST: files, natural split, every writer judged on images of its own."""
    from fedbook.federation import Rounds, run
    from fedbook.papers.dp2_fedsam import Config, DP2FedSAM
    from fedbook.papers.dp2_fedsam.problem import PersonalSettings, personal_problem

    people = {name: [k, k + 10, k, 5, 6] for k, name in enumerate(("f0", "f1", "f2", "f3"))}
    for part in ("train", "test"):
        whole = content(*(entry(name, *labels, seed=7 * i) for i, (name, labels) in enumerate(people.items())))
        write(tmp_path / "femnist" / part / "all_data_0.json", whole)
    settings = PersonalSettings(partition="natural", clients=3, model="mlp16", own_share=0.2)
    problem = personal_problem("femnist", settings, (0,), root=str(tmp_path))
    assert problem.train[0].num_clients == 3 and problem.train[0].sizes.tolist() == [8, 8, 8]
    config = Config(rounds=1, client_rate=1.0, noise_multiplier=1.0, batch_size=4)
    algorithm = DP2FedSAM(config, problem.model)
    rounds = run(Rounds(algorithm, problem.federation(), 1, evaluate=algorithm.evaluation(problem, (0,))))
    assert 0 <= rounds.history[-1].metrics["accuracy"][0] <= 1
    with pytest.raises(ValueError, match="^partition: got 'natural' with images without writers"):
        personal_problem("digits", PersonalSettings(partition="natural", clients=3))
