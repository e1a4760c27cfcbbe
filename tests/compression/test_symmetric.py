"""Symmetric matrices as their upper triangle: nothing lost, nothing else accepted."""

import pytest
import torch

from fedbook.compression.symmetric import UpperTriangle, triangle_wire
from fedbook.randomness import normal, stream


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 2, 5, 16])
def test_nothing_is_lost(dtype, width):
    x = normal((3, width, width), stream(0, "triangle")).to(dtype)
    x = x + x.mT
    codec = UpperTriangle()
    buffers = codec.encode({"": x}, [])
    assert [b.nbytes for b in buffers] == [width * (width + 1) // 2 * x.element_size()] * 3
    assert torch.equal(codec.decode(buffers, {"": torch.empty_like(x)})[""], x)
    wire = triangle_wire(x)
    assert wire.value is x and [b[0].nbytes for b in wire.buffers] == [b.nbytes for b in buffers]


def test_the_order_is_row_by_row():
    x = torch.tensor([[[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]]])
    (buffer,) = UpperTriangle().encode({"matrix": x}, [])
    assert buffer.buffer.view(torch.float32).tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("bad", [torch.tensor([[[1.0, 2.0], [2.1, 1.0]]]), torch.zeros(1, 2, 3), torch.zeros(2, 2)])
def test_other_matrices_are_refused(bad):
    with pytest.raises(ValueError, match="rows"):
        UpperTriangle().encode({"": bad}, [])


def test_words_are_refused():
    with pytest.raises(TypeError, match="rows"):
        triangle_wire("matrix")
