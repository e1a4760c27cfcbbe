"""WordNet's nouns and the mammals among them: honest, damaged and hostile files, the closure, what ships."""

import gzip
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import shortest_path

import fedbook.data
from fedbook.data import BrokenFile, DataNotFound, Taxonomy, lines, make, wordnet_embedding, wordnet_mammals
from fedbook.data.wordnet import mammal_rows, read_embedding, read_nouns, read_taxonomy

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
            found = pointers.format_map(offsets)
            rows.append(
                f"{offsets[label]} 05 n {count:02x} {words} {len(found.split()) // 4:03} {found}".rstrip()
                + f' | what a {label} is; "so | it goes"  \n'
            )
        return rows

    blank = {label: "0" * 8 for label, _, _ in synsets}
    places, place = {}, len(licence)
    for (label, _, _), row in zip(synsets, text(blank), strict=True):
        places[label], place = f"{place:08}", place + len(row)
    return licence + "".join(text(places)), places


TEXT, PLACES = nouns()


def written(tmp_path, text, name="data.noun"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_reads_what_is_there(tmp_path, pack):
    licence, synsets = read_nouns(written(tmp_path, pack(TEXT.encode())))
    assert licence == ("Take it.", "", "Leave this here.")
    at = {label: int(place) for label, place in PLACES.items()}
    assert list(synsets) == sorted(at.values())
    assert synsets[at["mammal"]].words == ("mammal", "mammalian")
    assert synsets[at["sea_otter"]].hypernyms == (("@", at["otter"]), ("@", at["seal"]))
    assert synsets[at["nemo"]].hypernyms == (("@i", at["sea_otter"]),)
    assert synsets[at["robot"]].words == ("robot", "Zahl's_machine")
    assert synsets[at["animal"]].hypernyms == ()


def test_the_mammals_of_a_small_wordnet(tmp_path):
    rows = mammal_rows(read_nouns(written(tmp_path, TEXT))[1])
    mammal, seal, otter, sea, nemo = (PLACES[word] for word in ("mammal", "seal", "otter", "sea_otter", "nemo"))
    assert rows == (
        f"{mammal} mammal",
        f"{seal} seal.1 @{mammal}",
        f"{otter} otter @{mammal}",
        f"{PLACES['lapdog']} seal.2 @{mammal}",  # its other hypernym, pet, is no mammal
        f"{sea} sea_otter @{otter} @{seal}",
        f"{nemo} Nemo @i{sea}",
    )
    lines.write_lines(tmp_path / "some.gz", ["a comment", ""], rows)
    tree = read_taxonomy(tmp_path / "some.gz")
    assert tree.names == ("mammal", "seal.1", "otter", "seal.2", "sea_otter", "Nemo") and tree.root == 0
    assert tree.edges.tolist() == [[1, 0], [2, 0], [3, 0], [4, 2], [4, 1], [5, 4]]
    assert tree.instance.tolist() == [False] * 5 + [True]
    assert tree.pairs.tolist() == [[1, 0], [2, 0], [3, 0], [4, 0], [4, 1], [4, 2], [5, 0], [5, 1], [5, 2], [5, 4]]
    assert tree.depth.tolist() == [0, 1, 1, 1, 2, 3]
    with pytest.raises(ValueError, match="0 begin with the word mammal"):
        mammal_rows({})


def changed(old, new, count=1):
    assert old in TEXT
    return TEXT.replace(old, new, count)


SEAL = f"{PLACES['seal']} 05 n 01 seal 1"
DAMAGED = {
    "empty": ("", "is empty"),
    "cut short": (TEXT[:-1], "its last line has no end"),
    "cut in a line": (TEXT[:-45] + "\n", r"line 12: not 'offset file n words"),
    "a letter": (changed("otter is", "ötter is"), "line 8: holds bytes that are no ASCII"),
    "header": (changed("  2   \n", "  7   \n"), "line 2: no line of the licence"),
    "header without a number": (changed("  2   \n", "  two \n"), "line 2: no line of the licence"),
    "shifted": (changed("Take it.", "Take it all."), "line 4: says it begins at byte 45, and begins at 49"),
    "a blank line": (changed(" is; ", " is;\n", 1), "line 5: not 'offset"),
    "a verb": (changed(SEAL, SEAL.replace(" n ", " v ")), "line 7: not 'offset"),
    "count of words": (changed(SEAL, SEAL.replace(" 01 ", " 02 ")), "line 7: '@' where the number of its sense"),
    "no words": (changed(SEAL, SEAL.replace(" 01 seal 1", " 00")), "line 7: no words"),
    "count of pointers": (changed("seal 1 002", "seal 1 003"), "line 7: '' where a pointer should be"),
    "more than announced": (changed("seal 1 002", "seal 1 001"), "line 7: more fields than it announces"),
    "no pointer": (changed("#m", "#q"), "line 7: '#q' is no pointer of a noun"),
    "target": (changed(f"@ {PLACES['mammal']} n 0000 #m", "@ 123 n 0000 #m"), "line 7: '123' where a pointer's target"),
    "hypernym that is a verb": (changed(f"@ {PLACES['pet']} n", f"@ {PLACES['pet']} v"), "a hypernym that is no noun"),
    "part of speech": (changed(" a 0201", " x 0201"), "line 6: 'x' where a pointer's part of speech"),
    "words of a pointer": (changed(" a 0201", " a 02g1"), "line 6: '02g1' where a pointer's words"),
    "two blanks": (changed("beast 0", "beast  0"), "line 4: '' where the number of its sense"),
    "dangling": (changed(f"@i {PLACES['sea_otter']}", "@i 00000007"), "its hypernym @i00000007 is not in the file"),
    "header later": (TEXT + "  4 More.  \n", "line 13: not 'offset"),
}


@pytest.mark.parametrize("text, message", DAMAGED.values(), ids=DAMAGED)
def test_refuses_damaged_nouns_by_line(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(BrokenFile, match=message) as caught:
        read_nouns(path)
    assert str(path) in str(caught.value)


def test_refuses_a_damaged_packing_and_what_is_too_large(tmp_path, monkeypatch):
    packed = gzip.compress(TEXT.encode())
    for damaged in (packed[:-9], packed[:-8] + bytes(8), packed + b"more"):
        with pytest.raises(BrokenFile, match="packing is damaged"):
            read_nouns(written(tmp_path, damaged))
    monkeypatch.setattr(lines, "LIMIT", len(TEXT))
    assert read_nouns(written(tmp_path, packed))
    monkeypatch.setattr(lines, "LIMIT", len(TEXT) - 1)
    with pytest.raises(BrokenFile, match="more than the"):
        read_nouns(written(tmp_path, packed))
    with pytest.raises(FileNotFoundError):
        read_nouns(tmp_path / "nothing")


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.integers(0, 2**32))
def test_any_damage_is_a_broken_file(tmp_path_factory, seed):
    rng = random.Random(seed)
    content = bytearray(TEXT.encode())
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(content))
        content[place : place + rng.randint(0, 3)] = rng.choice([b"", b" ", b"\n", b"9", b"@", b"\xff", b"|"])
    path = written(tmp_path_factory.getbasetemp(), bytes(content), "fuzz")
    for reader in (read_nouns, read_taxonomy, lambda path: read_embedding(path, ["a"])):
        try:
            reader(path)
        except BrokenFile as error:
            assert str(path) in str(error)


ROWS = ["00000001 a", "00000005 b @00000001", "00000009 c @00000005 @i00000001"]
BAD_ROWS = {
    "nothing": ([], "0 have nothing above them"),
    "no number": (["a @00000001"], "line 2: no synset with a name"),
    "no name": (["00000001 @00000001 "], "line 2: no synset with a name"),
    "a hypernym of another form": (["00000001 a %00000001"], "line 2: no synset with a name"),
    "unknown": ([*ROWS, "00000010 d @00000008"], "line 5: its hypernym @00000008 is not in the file"),
    "order": ([*ROWS, "00000007 d @00000001"], "line 5: offset 00000007 does not follow"),
    "twice": ([*ROWS, "00000009 d @00000001"], "line 5: offset 00000009 does not follow"),
    "a name twice": ([*ROWS, "00000010 b @00000001"], "'b' comes twice"),
    "an edge twice": ([*ROWS, "00000010 d @00000001 @00000001"], "edges: one comes twice"),
    "two roots": ([*ROWS, "00000010 d"], "2 have nothing above them"),
    "a circle": ([*ROWS, "00000010 d @00000011", "00000011 e @00000010"], "'d' is above or below a circle"),
    "its own parent": ([*ROWS, "00000010 d @00000010"], "'d' is above or below a circle"),
}


@pytest.mark.parametrize("rows, message", BAD_ROWS.values(), ids=BAD_ROWS)
def test_refuses_a_damaged_taxonomy(tmp_path, rows, message):
    lines.write_lines(tmp_path / "x.gz", ["comment"], rows)
    with pytest.raises(BrokenFile, match=message):
        read_taxonomy(tmp_path / "x.gz")


def test_a_taxonomy_without_end_is_refused(tmp_path):
    lines.write_lines(tmp_path / "x.gz", [], [f"{i:08} w{i}" for i in range(5_001)])
    with pytest.raises(BrokenFile, match="line 5001: more than 5,000 synsets"):
        read_taxonomy(tmp_path / "x.gz")


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


def test_the_three_counts_from_first_principles():
    """Counted here from the file's lines by recursion, without the package."""
    above = {row[0]: row[2:] for row in rows_that_ship()}
    names = {row[0]: row[1] for row in rows_that_ship()}

    def ancestors(node, kept):
        found = set()
        for parent in above[node]:
            if parent.lstrip("@i") in kept:
                found |= {parent.lstrip("@i")} | ancestors(parent.lstrip("@i"), kept)
        return found

    def count(kept):
        return len(kept), sum(len(ancestors(node, kept)) for node in kept)

    everybody = set(above)
    kinds = {node for node in everybody if not any(parent.startswith("@i") for parent in above[node])}
    published = {node for node in everybody if names[node] not in ("tusker", "female_mammal")}
    assert count(everybody) == (1182, 6542) and count(kinds) == (1170, 6448) and count(published) == (1180, 6540)
    for nodes, expected in (("all", everybody), ("classes", kinds), ("published", published)):
        tree = wordnet_mammals(nodes)
        assert set(tree.names) == {names[node] for node in expected}
        assert (len(tree.names), len(tree.pairs)) == count(expected)
    assert (1180 - 1) == 9 * 131


def test_the_mammals_that_ship():
    tree = wordnet_mammals("all")
    assert tree.names[tree.root] == "mammal" and len(tree.edges) == 1182 and int(tree.depth.max()) == 9
    assert len(set(tree.names)) == 1182 and {"bull.1", "bull.2", "dog", "primate", "Lucy"} <= set(tree.names)
    pairs, distance = brute_force(1182, tree.edges.tolist())
    assert np.array_equal(tree.pairs.numpy(), pairs)
    assert np.array_equal(tree.depth.numpy()[1:6], distance[1:6, tree.root])
    several = [tree.names[i] for i in range(1182) if int((tree.edges[:, 0] == i).sum()) > 1]
    assert several == ["elephant"]
    instances = {tree.names[i] for i in tree.edges[tree.instance, 0].tolist()}
    assert len(instances) == 12 and {"Secretariat", "Lucy"} <= instances
    above = {tree.names[b] for a, b in tree.pairs.tolist() if a == tree.index("Lucy")}
    assert above == {"Australopithecus_afarensis", "australopithecine", "hominid", "primate", "placental", "mammal"}
    assert not bool(wordnet_mammals("classes").instance.any())
    assert wordnet_mammals().names == wordnet_mammals("published").names


def test_the_licence_ships_with_both_files():
    text = (SHIPPED / "LICENSE.txt").read_text(encoding="ascii")
    assert text.startswith("This software and database is being provided to you, the LICENSEE")
    assert "WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved." in text
    assert text.endswith("Princeton University and LICENSEE agrees to preserve same.\n")
    data = gzip.decompress((SHIPPED / "mammals.txt.gz").read_bytes()).decode("ascii")
    assert "".join(f"  {line}\n" for line in text.splitlines()) in data


def test_the_maker(tmp_path, capsys):
    written(tmp_path, gzip.compress(TEXT.encode()), "data.noun.gz")
    first, licence = make.make_wordnet_mammals(tmp_path, tmp_path / "a")
    assert licence.read_text() == "Take it.\n\nLeave this here.\n"
    written(tmp_path, TEXT)
    assert make.main(["wordnet_mammals", str(tmp_path), str(tmp_path / "b")]) == 0
    assert (tmp_path / "b/mammals.txt.gz").read_bytes() == first.read_bytes()
    assert first.read_bytes()[3:8] == bytes(5)  # no name, no time
    assert len(capsys.readouterr().out.splitlines()) == 2
    written(tmp_path, LICENCE)
    with pytest.raises(BrokenFile, match="0 begin with the word mammal"):
        make.make_wordnet_mammals(tmp_path, tmp_path / "c")
    with pytest.raises(FileNotFoundError):
        make.make_wordnet_mammals(tmp_path / "nowhere", tmp_path / "c")


def test_the_embedding_that_ships():
    points = wordnet_embedding()
    assert points.shape == (1180, 3) and points.dtype == torch.float64
    time, space = points[:, 0], points[:, 1:]
    assert torch.allclose(time.square() - space.square().sum(1), torch.ones(1, dtype=time.dtype), atol=1e-4)
    assert float(torch.asinh(space.norm(dim=1)).max()) <= 12 + 1e-9


BAD_PLACES = {
    "short": (["a 1.000000 2.000000"], "holds 1 places; expected are 2"),
    "long": (
        ["a 1.000000 2.000000", "b 1.000000 2.000000", "c 1.000000 2.000000"],
        "the place of c; expected is the end",
    ),
    "another": (["a 1.000000 2.000000", "c 1.000000 2.000000"], "line 3: the place of c; expected is b"),
    "no number": (["a 1.000000 nan"], "line 2: no name with two coordinates"),
    "huge": (["a 1.000000 123456789.000000"], "line 2: no name with two coordinates"),
    "three": (["a 1.000000 2.000000 3.000000"], "line 2: no name with two coordinates"),
}


@pytest.mark.parametrize("rows, message", BAD_PLACES.values(), ids=BAD_PLACES)
def test_refuses_a_damaged_embedding(tmp_path, rows, message):
    lines.write_lines(tmp_path / "x.gz", ["comment"], rows)
    with pytest.raises(BrokenFile, match=message):
        read_embedding(tmp_path / "x.gz", ["a", "b"])


def test_other_mammals_are_refused(tmp_path):
    (tmp_path / "wordnet").mkdir()
    lines.write_lines(tmp_path / "wordnet/mammals.txt.gz", [], ["00000001 mammal", "00000002 dog @00000001"])
    with pytest.raises(BrokenFile, match="gives 2 nodes and 1 pairs; expected are 1,182 nodes and 6,542 pairs"):
        wordnet_mammals("all", root=tmp_path)
    with pytest.raises(BrokenFile, match="word: got 'female_mammal'"):
        wordnet_mammals(root=tmp_path)


def test_nothing_there(tmp_path):
    for function, name in ((wordnet_mammals, "wordnet_mammals"), (wordnet_embedding, "wordnet_mammals")):
        with pytest.raises(DataNotFound, match=f"'{name}'.*\n.*\n.*\nIt cannot be fetched for you. It ships"):
            function(root=tmp_path)


def test_bad_arguments():
    for nodes, kind in ((None, TypeError), (True, TypeError), ("most", ValueError)):
        with pytest.raises(kind, match="nodes: got .*; allowed is one of all, classes, published"):
            wordnet_mammals(nodes)
    for root, kind in ((3, TypeError), ("", ValueError)):
        with pytest.raises(kind, match="root: got"):
            wordnet_mammals(root=root)
        with pytest.raises(kind, match="root: got"):
            wordnet_embedding(root)
    tree = Taxonomy.from_edges("toy", ["a", "b"], [(1, 0)])
    with pytest.raises(TypeError, match="word: got 3"):
        tree.index(3)
    with pytest.raises(ValueError, match="word: got 'primat'; allowed .* such as primate"):
        wordnet_mammals().index("primat")
    with pytest.raises(ValueError, match="0 have nothing above them"):
        tree.without(["a", "b"])
    with pytest.raises(ValueError, match="edges: got 2; allowed is a whole number in"):
        Taxonomy.from_edges("toy", ["a", "b"], [(2, 0)])
    with pytest.raises(ValueError, match="instance: got 2 flags for 1 edges"):
        Taxonomy.from_edges("toy", ["a", "b"], [(1, 0)], [True, False])
