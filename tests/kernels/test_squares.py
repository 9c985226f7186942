"""Convolutions on squares of pixels; in networks they are tested with those."""

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, pixel_shuffle, pixel_unshuffle
from torch.testing import assert_close

from hyperwrap.kernels import squares


@pytest.mark.parametrize("size", [3, 4])
@pytest.mark.parametrize("channels", [(1, 1), (1, 16), (5, 2)], ids=str)
def test_a_kernel_of_squares_is_made_of_the_kernel_of_pixels(size: int, channels: tuple[int, int]):
    fine = nn.Conv2d(*channels, size, stride=size - 2, padding=1, bias=False).double()
    squares.prepare([fine], ones=False)
    fine.double()
    x = torch.randn(3, channels[0], 6, 10).double().requires_grad_()
    y = fine(x)
    got = conv2d(pixel_unshuffle(x, 2), squares.kernel(fine), padding=1)
    got = pixel_shuffle(got, 2) if size == 3 else got
    assert_close(got, y)
    pull = torch.randn_like(y)
    expected = torch.autograd.grad(y, (fine.weight, x), pull)
    assert_close(torch.autograd.grad(got, (fine.weight, x), pull), expected)


@pytest.mark.parametrize("shape", [(3, 2, 6, 4), (1, 1, 2, 2)], ids=str)
def test_squares_are_those_of_torch(shape: tuple[int, ...]):
    x = torch.randn(shape)
    found = squares.squares(x)
    assert torch.equal(found, pixel_unshuffle(x, 2))
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(squares.pixels(found), x)
