"""The mammals of WordNet: how they were made of WordNet's nouns, the closure, damaged files, what ships."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import shortest_path

import fedbook.data
from fedbook.data import BrokenFile, DataNotFound, Taxonomy, wordnet_embedding, wordnet_mammals
from fedbook.data.wordnet import UNPUBLISHED, read_embedding, read_taxonomy

SHIPPED = Path(fedbook.data.__file__).parents[2] / "data" / "wordnet"

LICENCE = "  1 Take it.  \n  2   \n  3 Leave this here.  \n"
# label, words, pointers; {label} becomes an offset
SYNSETS = (
    ("animal", "animal 0 beast 0", "~ {mammal} n 0000"),
    ("pet", "pet 0", "@ {animal} n 0000"),
    ("mammal", "mammal 0 mammalian 0", "@ {animal} n 0000 + 01372049 a 0201 ~ {seal} n 0000"),
    ("seal", "seal 1", "@ {mammal} n 0000 #m {pet} n 0000"),
    ("otter", "otter 0", "@ {mammal} n 0000"),
    ("lapdog", "seal 2", "@ {mammal} n 0000 @ {pet} n 0000"),
    ("sea_otter", "sea_otter 0", "@ {otter} n 0000 @ {seal} n 0000"),
    ("nemo", "Nemo 0", "@i {sea_otter} n 0000 -c {pet} n 0000"),
    ("robot", "robot 0 Zahl's_machine a", "@ {pet} n 0000"),
)


def nouns(synsets=SYNSETS, licence=LICENCE):
    """A data.noun whose offsets are right."""

    def text(offsets):
        rows = []
        for label, words, pointers in synsets:
            count = len(words.split()) // 2
            links = pointers.format_map(offsets)
            rows.append(
                f"{offsets[label]} 05 n {count:02x} {words} {len(links.split()) // 4:03} {links}".rstrip()
                + f' | what a {label} is; "so | it goes"  \n'
            )
        return rows

    blank = {label: "0" * 8 for label, _, _ in synsets}
    places, place = {}, len(licence)
    for (label, _, _), row in zip(synsets, text(blank), strict=True):
        places[label], place = f"{place:08}", place + len(row)
    return licence + "".join(text(places)), places


TEXT, PLACES = nouns()


def written(folder, content, name="data.noun"):
    (folder / name).write_bytes(content)
    return folder / name


@pytest.mark.parametrize("pack, name", [(bytes, "data.noun"), (gzip.compress, "data.noun.gz")])
def test_the_maker_s_mammals_of_a_small_wordnet(tmp_path, make, capsys, pack, name):
    written(tmp_path, pack(TEXT.encode()), name)
    for out in ("a", "b"):
        assert make.main(["wordnet_mammals", str(tmp_path), str(tmp_path / out)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    content = (tmp_path / "a" / "mammals.txt.gz").read_bytes()
    assert content == (tmp_path / "b" / "mammals.txt.gz").read_bytes() and content[3:8] == bytes(5)  # no name, no time
    assert (tmp_path / "a" / "LICENSE.txt").read_text() == "Take it.\n\nLeave this here.\n"
    mammal, seal, otter, sea, nemo = (PLACES[word] for word in ("mammal", "seal", "otter", "sea_otter", "nemo"))
    assert [line for line in gzip.decompress(content).decode().splitlines() if line[0] != " "] == [
        f"{mammal} mammal",
        f"{seal} seal.1 @{mammal}",
        f"{otter} otter @{mammal}",
        f"{PLACES['lapdog']} seal.2 @{mammal}",  # its other hypernym, pet, is no mammal
        f"{sea} sea_otter @{otter} @{seal}",
        f"{nemo} Nemo @i{sea}",
    ]
    tree = read_taxonomy(tmp_path / "a" / "mammals.txt.gz")
    assert tree.names == ("mammal", "seal.1", "otter", "seal.2", "sea_otter", "Nemo") and tree.root == 0
    assert tree.edges.tolist() == [[1, 0], [2, 0], [3, 0], [4, 2], [4, 1], [5, 4]]
    assert tree.pairs.tolist() == [[1, 0], [2, 0], [3, 0], [4, 0], [4, 1], [4, 2], [5, 0], [5, 1], [5, 2], [5, 4]]
    assert tree.depth.tolist() == [0, 1, 1, 1, 2, 3]


@pytest.mark.parametrize(
    "text, message",
    [
        (LICENCE, "0 begin with the word mammal"),
        (TEXT.replace("Take it.", "Take it all."), "line 4 says it begins at byte 45, and begins at 49"),
        (TEXT.replace("seal 1 002", "seal 1 003"), "does not hold the 3 pointers that it announces"),
        (TEXT[:-45] + "\n", "is not what it should be"),
    ],
)
def test_the_maker_refuses_damaged_nouns(tmp_path, make, text, message):
    with pytest.raises(BrokenFile, match=message):
        make.make_wordnet_mammals(written(tmp_path, text.encode()).parent, tmp_path / "out")


@pytest.mark.parametrize(
    "names, edges, message",
    [
        ("ab", [], "2 have nothing above them"),
        ("aba", [(1, 0), (2, 0)], "one comes twice"),
        ("ab", [(1, 0), (1, 0)], "one comes twice"),
        ("ab", torch.tensor([[1, 0], [1, 0]]), "one comes twice"),
        ("abc", [(-1, 0), (1, 0)], "edges: got .*whole numbers in .0, 2"),
        ("ab", [(2, 0)], "edges: got"),
        ("abcd", [(1, 0), (2, 3), (3, 2)], "'c' is above or below a circle"),
    ],
)
def test_refuses_what_is_no_hierarchy(names, edges, message):
    with pytest.raises(ValueError, match=message):
        Taxonomy.from_edges("toy", list(names), edges)


def brute_force(count, edges):
    """Pairs and depths by all shortest paths."""
    graph = np.full((count, count), np.inf)
    for child, parent in edges:
        graph[child, parent] = 1
    distance = shortest_path(graph, method="FW")
    np.fill_diagonal(distance, np.inf)
    return np.argwhere(np.isfinite(distance)), distance


@pytest.mark.parametrize("seed", range(5))
def test_the_closure_is_reachability(seed):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(60)  # so that parents come before and after their children
    edges = {(int(labels[i]), int(labels[j])) for i in range(1, 60) for j in rng.integers(0, i, rng.integers(1, 4))}
    edges = sorted(edges, key=lambda edge: rng.random())
    tree = Taxonomy.from_edges("toy", [f"w{i}" for i in range(60)], edges)
    pairs, distance = brute_force(60, edges)
    assert tree.root == labels[0] and np.array_equal(tree.pairs.numpy(), pairs)
    expected = np.where(np.arange(60) == tree.root, 0, distance[:, tree.root])
    assert np.array_equal(tree.depth.numpy(), expected)


def rows_that_ship():
    text = gzip.decompress((SHIPPED / "mammals.txt.gz").read_bytes()).decode("ascii")
    return [line.split() for line in text.splitlines() if not line.startswith("  ")]


def test_the_counts_from_first_principles():
    """Counted here from the file's lines by recursion, without the package."""
    above = {row[0]: row[2:] for row in rows_that_ship()}
    names = {row[0]: row[1] for row in rows_that_ship()}

    def ancestors(node, kept):
        own = {parent.lstrip("@i") for parent in above[node]} & kept
        return own.union(*(ancestors(parent, kept) for parent in own))

    def count(kept):
        return len(kept), sum(len(ancestors(node, kept)) for node in kept)

    everybody = set(above)
    published = {node for node in everybody if names[node] not in ("tusker", "female_mammal")}
    assert count(everybody) == (1182, 6542) and count(published) == (1180, 6540)
    for tree, expected in ((read_taxonomy(SHIPPED / "mammals.txt.gz"), everybody), (wordnet_mammals(), published)):
        assert set(tree.names) == {names[node] for node in expected}
        assert (len(tree.names), len(tree.pairs)) == count(expected)
    assert (1180 - 1) == 9 * 131


def test_the_licence_ships_with_both_files():
    text = (SHIPPED / "LICENSE.txt").read_text(encoding="ascii")
    assert text.startswith("This software and database is being provided to you, the LICENSEE")
    assert "WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved." in text
    assert text.endswith("Princeton University and LICENSEE agrees to preserve same.\n")
    data = gzip.decompress((SHIPPED / "mammals.txt.gz").read_bytes()).decode("ascii")
    assert "".join(f"  {line}\n" for line in text.splitlines()) in data


def test_the_maker_writes_what_was_trained(tmp_path, make):
    words = ["mammal", "tusker @00000001", "female_mammal @00000001", "cat @00000001", "kitten @00000004"]
    rows = "".join(f"{i:08} {word}\n" for i, word in enumerate(words, 1))
    path = written(tmp_path, gzip.compress(rows.encode()), "mammals.txt.gz")
    assert make.main(["wordnet_embedding", str(tmp_path)]) == 0
    stored = read_embedding(tmp_path / "embedding.txt.gz", ("mammal", "cat", "kitten"))
    trained = make.train_embedding(read_taxonomy(path).without(UNPUBLISHED))
    assert torch.allclose(stored[:, 1:], trained[:, 1:], rtol=0, atol=0.51e-6)


def test_refuses_damaged_files(tmp_path):
    (tmp_path / "wordnet").mkdir()
    rows = gzip.decompress((SHIPPED / "mammals.txt.gz").read_bytes())
    written(tmp_path / "wordnet", gzip.compress(rows, 1), "mammals.txt.gz")  # packed anew it is the same
    for row in ("mammal 1.000000", "mammal 1.000000 nan"):
        written(tmp_path, row.encode(), "embedding.txt")
        with pytest.raises(BrokenFile, match="embedding.txt: (is not what it should be|holds coordinates)"):
            read_embedding(tmp_path / "embedding.txt", ["mammal"])
    written(tmp_path / "wordnet", b"mammal 1.000000 2.000000", "embedding.txt.gz")
    with pytest.raises(BrokenFile, match="holds other names than the 1,180 that are expected"):
        wordnet_embedding(tmp_path)
    written(tmp_path / "wordnet", gzip.compress(rows.replace(b"otter ", b"Otter ")), "mammals.txt.gz")
    with pytest.raises(BrokenFile, match="mammals.txt.gz: is not the file that ships: unpacked it has sha256"):
        wordnet_mammals(tmp_path)


def test_nothing_there(tmp_path):
    for function, name in ((wordnet_mammals, "wordnet_mammals"), (wordnet_embedding, "wordnet_mammals")):
        with pytest.raises(DataNotFound, match=f"'{name}'.*\n.*\n.*\nIt cannot be fetched for you. It ships"):
            function(root=tmp_path)


def test_bad_arguments():
    for function in (wordnet_mammals, wordnet_embedding):
        with pytest.raises(TypeError, match="root: got 3"):
            function(root=3)
    tree = Taxonomy.from_edges("toy", ["a", "b"], [(1, 0)])
    with pytest.raises(TypeError, match="word: got 3"):
        tree.index(3)
    with pytest.raises(ValueError, match="word: got 'primat'; allowed .* such as primate"):
        wordnet_mammals().index("primat")
    with pytest.raises(ValueError, match="0 have nothing above them"):
        tree.without(["a", "b"])
