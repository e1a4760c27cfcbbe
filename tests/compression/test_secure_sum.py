"""Masked codes: single messages say nothing, their sum is the sum of the decoded messages."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedbook.compression import HEADER_BYTES, Codec, UniformScalar
from fedbook.compression.secure_sum import MaskedIntegers, SecureSum, mask_codes, pair_mask, party_dither
from fedbook.randomness import stream
from tests.compression.sending import rngs


def codes_of(quantiser, x, seed, t):
    """Each party's codes and dithers without any masks: what the sum has to agree with."""
    dithers = torch.stack([party_dither(seed, t, m, tuple(x.shape[1:])).to(x.dtype) for m in range(len(x))])
    dithers *= quantiser.dither
    return quantiser.quantise(x, dithers), dithers


@given(st.integers(1, 16), st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**31))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_masks_cancel_in_the_sum(bits, parties, count, seed):
    wide = bits + math.ceil(math.log2(parties))
    codes = torch.from_numpy(stream(seed, "codes").integers(0, 2**bits, (parties, count)))
    codes[:, 0] = 2**bits - 1  # the largest sum there is
    masked = torch.stack([mask_codes(codes[m], seed, 3, m, parties, wide) for m in range(parties)])
    assert int(masked.min()) >= 0 and int(masked.max()) < 2**wide
    assert torch.equal(masked.sum(0) % 2**wide, codes.sum(0))
    if parties > 1:
        assert not torch.equal(masked[:-1].sum(0) % 2**wide, codes[:-1].sum(0)) or count < 3
    else:
        assert torch.equal(masked, codes)


@pytest.mark.parametrize("parties", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("quantiser", [UniformScalar(2), UniformScalar(5, -2, 1, grid="bins", dither=False)])
def test_the_sum_is_that_of_the_decoded_messages(parties, quantiser):
    secure = SecureSum(quantiser, parties)
    seeds, t = [11, 12], 5
    x = torch.from_numpy(stream(0, "x").uniform(-1, 1, (2, parties, 6, 5)))
    rows = [seed for seed in seeds for _ in range(parties)]
    numbers = list(range(parties)) * 2
    sent = secure.masked(x.flatten(0, 1), rows, t, numbers)
    codec = Codec(secure.wire)
    buffers = codec.encode({"": sent}, rngs(2 * parties))
    assert [m.nbytes for m in buffers] == [HEADER_BYTES + -(-30 * secure.bits // 8)] * 2 * parties
    assert secure.bits == quantiser.bits + math.ceil(math.log2(parties))
    sums = codec.decode(buffers, {"": sent})[""].view(2, parties, 6, 5).sum(1)
    total = secure.total(sums, seeds, t, x)
    for s, seed in enumerate(seeds):
        codes, dithers = codes_of(quantiser, x[s], seed, t)
        assert torch.equal(secure.codes(sums)[s], codes.sum(0))  # bit for bit
        values = torch.stack([quantiser.reconstruct(codes[m], dithers[m], x) for m in range(parties)])
        assert torch.allclose(total[s], values.sum(0), rtol=0, atol=1e-13)
        assert float((values - x[s]).abs().max()) <= quantiser.step() / 2 * (1 + 1e-9) + 1e-9
    again = secure.masked(x.flatten(0, 1)[::2], rows[::2], t, numbers[::2])  # a row does not depend on the others
    assert torch.equal(again, sent[::2])


@pytest.mark.parametrize("quantiser", [UniformScalar(2), UniformScalar(5, -2, 1, grid="bins", dither=False)])
def test_what_the_parties_add_is_the_total(quantiser):
    secure, seeds, numbers = SecureSum(quantiser, 4), [11] * 4 + [12] * 4, [0, 1, 2, 3] * 2
    x = torch.from_numpy(stream(0, "x").uniform(-1, 1, (8, 6, 5)))
    own = secure.own(x, seeds, 5, numbers)
    sums = secure.masked(x, seeds, 5, numbers).view(2, 4, 6, 5).sum(1)
    total = secure.total(sums, [11, 12], 5, x)
    assert own.dtype == x.dtype and torch.allclose(own.view(2, 4, 6, 5).sum(1), total, rtol=0, atol=1e-12)
    assert float((own - x).abs().max()) <= quantiser.step() / 2 * (1 + 1e-9)  # each one its own, not a share
    for s in range(2):
        codes, dithers = codes_of(quantiser, x.view(2, 4, 6, 5)[s], 11 + s, 5)
        values = torch.stack([quantiser.reconstruct(codes[m], dithers[m], x) for m in range(4)])
        assert torch.equal(own.view(2, 4, 6, 5)[s], values)
    assert torch.equal(secure.own(x[[6, 1]], [12, 11], 5, [2, 1]), own[[6, 1]])  # a row does not depend on the others
    for dtype in (torch.float32, torch.bfloat16):
        assert (
            secure.own(x.to(dtype), seeds, 5, numbers).dtype
            == dtype
            == secure.total(sums, [11, 12], 5, x.to(dtype)).dtype
        )
    assert secure.own(x[:0], [], 5, []).shape == (0, 6, 5)


def test_each_federation_has_its_own_dithers():
    secure, x = SecureSum(UniformScalar(3), 3), torch.from_numpy(stream(0, "x").uniform(-1, 1, (2, 3, 6, 5)))
    sent = [secure.masked(x[s], [seed] * 3, 4, [0, 1, 2]).sum(0) for s, seed in enumerate((7, 8))]
    one = secure.total(torch.stack(sent), [7, 8], 4, x)
    rows = [0, 1, 0, 0, 1]  # as at the parties: one row for each of a federation's
    each = secure.total(torch.stack([sent[s] for s in rows]), [7 + s for s in rows], 4, x)
    assert torch.equal(each, one[rows])
    different = secure.total(torch.stack(sent), [7, 7], 4, x)  # one seed, other sums: still the right ones
    expected = secure.quantiser.step() * (secure.codes(sent[1]) - secure.codes(sent[0])).double()
    assert torch.allclose(different[1] - different[0], expected, rtol=0, atol=1e-12)


def chi_square(messages, values):
    return stats.chisquare(torch.bincount(messages.flatten(), minlength=values).numpy()).pvalue


def test_a_single_message_is_uniform_whatever_it_says():
    secure = SecureSum(UniformScalar(2), 4)
    x = torch.full((4, 200, 100), 0.9)
    x[1] = -1.0
    sent = secure.masked(x, [7] * 4, 0, [0, 1, 2, 3])
    for m in range(4):
        assert chi_square(sent[m], 16) > 1e-3
    bare = codes_of(secure.quantiser, x, 7, 0)[0]
    assert chi_square(bare[0], 16) < 1e-9  # without masks the same test fails
    for missing in range(4):  # three of the four together say nothing either
        assert chi_square((sent.sum(0) - sent[missing]) % 16, 16) > 1e-3
    assert chi_square(sent.sum(0) % 16, 16) < 1e-9
    # what one party sends does not depend on its value, given its place: a joint table of code and message
    codes = codes_of(secure.quantiser, torch.linspace(-1, 1, 20_000).view(1, 200, 100).expand(4, -1, -1), 7, 1)[0]
    sent = mask_codes(codes[2], 7, 1, 2, 4, 4)
    table = torch.bincount((codes[2] * 16 + sent).flatten(), minlength=64).view(4, 16)
    assert stats.chi2_contingency(table.numpy()).pvalue > 1e-3


def test_masks_differ_between_rounds_pairs_and_seeds():
    masks = [
        pair_mask(seed, t, pair, (50,), 8)
        for seed, t, pair in ((1, 0, (0, 1)), (2, 0, (0, 1)), (1, 1, (0, 1)), (1, 0, (0, 2)), (1, 0, (1, 2)))
    ]
    dithers = [party_dither(s, t, m, (50,)) for s, t, m in ((1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1))]
    for found in (masks, dithers):
        for i in range(len(found)):
            assert not any(torch.equal(found[i], found[j]) for j in range(i))
    assert torch.equal(masks[0], pair_mask(1, 0, (0, 1), (50,), 8))
    assert float(dithers[0].abs().max()) <= 0.5


def test_masked_integers_cross_as_they_are():
    for bits in (1, 5, 8, 11, 20, 32):
        x = torch.from_numpy(stream(bits, "x").integers(0, 2**bits, (3, 4, 7)))
        found = MaskedIntegers(bits)
        sent = found.encode(x, rngs(3))
        assert torch.equal(found.decode(sent, x), x)
        assert [m.nbytes for m in sent] == [HEADER_BYTES + -(-28 * bits // 8)] * 3
    with pytest.raises(ValueError, match="^x: got"):
        MaskedIntegers(3).encode(torch.full((1, 2, 2), 8), rngs(1))
    with pytest.raises(ValueError, match="like"):
        MaskedIntegers(9).decode(MaskedIntegers(9).encode(x[:1] % 512, rngs(1)), x[:1].to(torch.uint8))


def test_values_that_cannot_be_summed_are_refused():
    secure, x = SecureSum(UniformScalar(3), 2), torch.zeros(2, 3, 4)
    for bad in (x + 2, x * math.nan):
        for function in (secure.masked, secure.own):
            with pytest.raises(ValueError, match="^x: got"):
                function(bad, [1, 1], 0, [0, 1])
    assert secure.masked(x[:0], [], 0, []).shape == (0, 3, 4)
