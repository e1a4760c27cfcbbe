"""Trees of tensors, and the weighted mean against a plain loop."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbook.federation import weighted_mean
from fedbook.federation.tree import first_leaf, flatten, leaves, tree_map, unflatten
from fedbook.randomness import normal, stream

D = 3

# trees

words = st.text("abc", min_size=1, max_size=2)
trees = st.recursive(
    st.integers(0, 9).map(torch.tensor), lambda inner: st.dictionaries(words, inner, min_size=1, max_size=3)
)


@given(tree=trees)
def test_flatten_and_unflatten_are_inverse_and_maps_keep_the_form(tree):
    flat = flatten(tree)
    again = unflatten(flat, tree)
    assert list(leaves(again)) == list(leaves(tree))
    doubled = tree_map(lambda x, y: x + y, tree, again)
    assert {name: int(x) for name, x in leaves(doubled)} == {name: 2 * int(x) for name, x in flat.items()}


def test_trees_of_other_forms_are_refused():
    for other in ({"b": torch.zeros(1)}, {"a": torch.zeros(1), "b": torch.zeros(1)}, torch.zeros(1)):
        with pytest.raises(ValueError, match="trees: got the names"):
            tree_map(torch.add, {"a": torch.zeros(1)}, other)
    with pytest.raises(ValueError, match="tree: got the names"):
        flatten({"a/b": torch.zeros(1), "a": {"b": torch.ones(1)}})
    assert first_leaf({"a": {}, "b": {"c": torch.ones(2)}}).tolist() == [1, 1] and first_leaf({}) is None


# means


@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    whole=st.booleans(),
    seed=st.integers(0, 100),
)
def test_weighted_mean_is_the_plain_loop(sizes, dtype, whole, seed):
    rng, width = stream(seed, "mean"), max(sizes)
    x = {"a": normal((len(sizes), width, 2, D), rng).to(dtype), "b": {"c": normal((len(sizes), width), rng).to(dtype)}}
    weights = torch.zeros(len(sizes), width, dtype=torch.float64)
    for s, m in enumerate(sizes):
        weights[s, :m] = torch.from_numpy(rng.integers(1, 2**30, m) if whole else rng.random(m) + 0.01)
    if whole:
        weights = weights.long()
    old = tree_map(lambda leaf: torch.full((len(sizes), *leaf.shape[2:]), 7.0, dtype=dtype), x)
    mean = weighted_mean(x, weights, otherwise=old)
    for name, leaf in leaves(mean):
        assert leaf.dtype == dtype
        for s, m in enumerate(sizes):
            expected = flatten(old)[name][s].double()
            if m:
                terms = [float(weights[s, k]) * flatten(x)[name][s, k].double() for k in range(m)]
                expected = sum(terms) / float(weights[s].sum())
            assert torch.allclose(leaf[s].double(), expected, rtol=0, atol=1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize(
    ("tree", "weights", "otherwise", "word"),
    [
        (torch.zeros(1, 5, 2), torch.ones(1, 1), None, "tree"),  # would be a sum
        (torch.zeros(1, 2).long(), torch.ones(1, 2), None, "tree"),  # would be 0
        (torch.zeros(1, 2), torch.tensor([[1.0, -1.0]]), None, "weights"),
        (torch.zeros(1, 2), torch.tensor([[1.0, float("nan")]]), None, "weights"),
        (torch.zeros(1, 2), torch.ones(2), None, "weights"),
        (torch.zeros(1, 2), [[1.0, 1.0]], None, "weights"),
        (torch.zeros(1, 2), torch.zeros(1, 2), None, "weights"),
        (torch.zeros(1, 0), torch.zeros(1, 0), None, "weights"),
        (torch.zeros(1, 2, 3), torch.zeros(1, 2), torch.zeros(3), "otherwise"),
        ([1.0], torch.zeros(1, 2), None, "tree"),
    ],
)
def test_wrong_means_are_refused_by_name(tree, weights, otherwise, word):
    with pytest.raises((TypeError, ValueError), match=f"^{word}"):
        weighted_mean(tree, weights, otherwise)
