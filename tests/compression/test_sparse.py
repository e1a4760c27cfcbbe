"""Top-k and random-k: which components, at what error, in which form of the index."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbook.compression import HEADER_BYTES, RandomK, TopK, keep_columns
from fedbook.compression.sparse import largest
from fedbook.randomness import normal, stream
from tests.compression.sending import rngs, round_trip


def kept_by_hand(vector, k):
    """Indices of the k largest magnitudes of one vector, ties to the lowest index."""
    return sorted(sorted(range(len(vector)), key=lambda i: (-abs(float(vector[i])), i))[:k])


def by_hand(x, k):
    """Top-k one vector at a time."""
    kept = torch.zeros_like(x)
    for vector, out in zip(x.flatten(0, 1), kept.flatten(0, 1), strict=True):
        for i in kept_by_hand(vector, k):
            out[i] = vector[i]
    return kept


def index_bytes(x, k):
    """The cheapest index of one message, from the definition."""
    B, P = x.shape
    if k == P:
        return 0
    once = len({tuple(kept_by_hand(vector, k)) for vector in x}) == 1 or int((x != 0).any(0).sum()) <= k
    n = 1 if once else B
    return min(math.ceil(n * k * math.ceil(math.log2(P)) / 8), math.ceil(n * P / 8))


@given(
    st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(1, 9)),
    st.integers(1, 9),
    st.sampled_from(["normal", "ties", "columns", "zero", "same"]),
    st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    st.integers(0, 2**31),
)
@settings(derandomize=True, deadline=None, max_examples=200)
def test_any_shape_and_k(shape, k, what, dtype, seed):
    k = min(k, shape[2])
    rng = stream(seed, "x")
    x = torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(dtype)
    if what == "ties":
        x = torch.from_numpy(rng.integers(-2, 3, shape)).to(dtype)
    elif what == "columns":
        x = keep_columns(x, torch.from_numpy(rng.random((shape[0], shape[2]))), k)
    elif what == "zero":
        x = torch.zeros_like(x)
    elif what == "same":
        x = x[:, :1].expand(shape).contiguous()
    sent = TopK(k).encode(x, rngs(shape[0]))
    decoded = TopK(k).decode(sent, x)
    assert decoded.dtype == dtype and torch.equal(decoded, by_hand(x, k))
    sizes = [message.nbytes - HEADER_BYTES - 4 * shape[1] * k for message in sent]
    assert sizes == [index_bytes(row, k) for row in x]
    assert all(HEADER_BYTES + TopK(k).payload_bytes(*shape[1:]) >= message.nbytes for message in sent)
    for row in range(shape[0]):  # a message does not depend on what it is encoded with
        assert torch.equal(TopK(k).encode(x[row : row + 1], rngs(1))[0].buffer, sent[row].buffer)
        assert torch.equal(TopK(k).decode(sent[row : row + 1], x[row : row + 1])[0], decoded[row])


@pytest.mark.parametrize(("P", "k"), [(32, 2), (32, 8), (4096, 256), (64, 63), (3, 1), (2, 1), (1, 1), (128, 128)])
def test_payload_is_that_of_the_cheapest_index(P, k):
    x = normal((2, 4, P), stream(0, "x"))
    each = 4 * 4 * k + (0 if k == P else min(-(-4 * k * (P - 1).bit_length() // 8), -(-4 * P // 8)))
    assert TopK(k).payload_bytes(4, P) == each
    assert [m.nbytes for m in TopK(k).encode(x, rngs(2))] == [HEADER_BYTES + each] * 2
    same = x[:, :1].expand(2, 4, P)
    once = 4 * 4 * k + (0 if k == P else min(-(-k * (P - 1).bit_length() // 8), -(-P // 8)))
    assert TopK(k).payload_bytes(4, P, shared=True) == once
    mixed = torch.stack([x[0], same[1]])  # the form is chosen for each message
    assert [m.nbytes for m in TopK(k).encode(mixed, rngs(2))] == [HEADER_BYTES + each, HEADER_BYTES + once]
    assert torch.equal(round_trip(TopK(k), mixed.float()), by_hand(mixed.float(), k))


def test_the_bound_of_the_magnitude_rule():
    x = normal((3, 50, 16), stream(0, "x"), torch.zeros(1)).double()
    for k in range(1, 17):
        error = (round_trip(TopK(k), x) - x).square().sum(2)
        bound = (1 - k / 16) * x.square().sum(2)
        assert bool((error <= bound + 1e-12).all())
        alike = torch.where(x > 0, 0.75, -0.75).double()
        error = (round_trip(TopK(k), alike) - alike).square().sum(2)
        assert torch.allclose(error, (1 - k / 16) * alike.square().sum(2), rtol=1e-12)
        # the k smallest, not the k largest: the bound fails
        smallest = torch.where(largest(-x.abs(), k), x, 0)
        if k < 16:
            assert not bool(((smallest - x).square().sum(2) <= bound).any())


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_mean_error_of_random_k(k):
    x = torch.linspace(-1, 3, 8).double().expand(1, 100_000, 8)
    decoded = round_trip(RandomK(k), x)
    error = (decoded - x).square().sum(2)
    mean = float(error.mean())
    assert abs(mean - (1 - k / 8) * float(x[0, 0].square().sum())) < 4 * float(error.std()) / math.sqrt(100_000)
    kept = decoded[0] != 0
    assert bool((kept.sum(1) == k).all())
    assert torch.allclose(kept.double().mean(0), torch.tensor(k / 8).double(), atol=4 * 0.5 / math.sqrt(100_000))
    if k > 1:  # pairs as often as they should be
        both = (kept[:, 0] & kept[:, 3]).double().mean()
        assert float(both) == pytest.approx(k * (k - 1) / 56, abs=4 * 0.5 / math.sqrt(100_000))


def test_keep_columns_has_one_set_for_a_batch_and_ties_go_to_the_lowest_index():
    x = normal((2, 6, 5), stream(0, "x"), torch.zeros(1))
    scores = torch.tensor([[1.0, 2, 1, 2, 0], [0, 0, 0, 0, 0]])
    kept = keep_columns(x, scores, 3)
    assert (kept != 0).any(1).tolist() == [[True, True, False, True, False], [True, True, True, False, False]]
    assert torch.equal(kept[0, :, [0, 1, 3]], x[0, :, [0, 1, 3]])
    kept[0, 2, 3] = 0.0  # a kept value may be 0: column 2 is no better then
    for message in TopK(3).encode(kept, rngs(2)):
        assert message.nbytes == HEADER_BYTES + 4 * 6 * 3 + 1  # the set of five columns once, one byte
    assert torch.equal(round_trip(TopK(3), kept), kept)
    assert torch.equal(keep_columns(x, scores, 5), x)


@pytest.mark.parametrize("kind", [TopK, RandomK])
def test_k_and_values_that_cannot_be(kind):
    x = torch.ones(1, 2, 4)
    for call in (
        lambda: kind(5).encode(x, rngs(1)),
        lambda: kind(5).payload_bytes(2, 4),
        lambda: kind(5).decode(kind(4).encode(x, rngs(1)), x),
    ):
        with pytest.raises(ValueError, match="k: got 5; allowed is at most the 4 components"):
            call()
    with pytest.raises(ValueError, match="x: .*float32"):
        kind(4).encode(torch.full((1, 1, 4), 1e300, dtype=torch.float64), rngs(1))
