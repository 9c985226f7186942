"""Convolutions of few channels, on squares of 2×2 pixels.

Tensor cores are made for many channels, and at full height and width a DCGAN has 1, 2 or 16. So on
a GPU its layers there work on squares, at half the height and width and with four times the
channels. Pixel a ∈ {0, 1} of square r is pixel 2r + a, in height as in width, and a kernel of
squares has three taps p: it sees the pixels a' of the squares r + p − 1. Of the fine kernel w that
is the tap u, or 0 if there is none ::

    3×3, from squares to squares    Σ_u w[u]·x[2r + a + u − 1]    u = 2p + a' − a − 1
    4×4/2, from squares to pixels   Σ_u w[u]·x[2r + u − 1]        u = 2p + a' − 1
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import conv2d, conv_transpose2d, pad

from hyperwrap.precision import no_autocast

__all__ = ["doubled", "halved", "kernel", "pixels", "prepare", "squares"]


def prepare(layers: Iterable[nn.Module], *, ones: bool) -> None:
    """Gives each convolution what `kernel` needs, in a buffer that is not saved.

    With ``ones`` those 3×3 get a channel of ones in front of them, as in `halved`.
    """
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            _, channels, size, _ = layer.weight.shape
            table = _to_squares(size, channels, ones and size == 3)
            layer.register_buffer("to_squares", table, persistent=False)


def halved(same: nn.Conv2d, activation: nn.Module, halve: nn.Conv2d, x: Tensor) -> Tensor:
    """``halve(activation(same(x)))``.

    A channel of ones carries the bias of the first, which so takes no pass over the result nor over
    its gradient; and of one channel it makes two, in squares the eight that tensor cores want.
    """
    x = squares(pad(x, (0, 0, 0, 0, 0, 1), value=1.0))
    y = activation(conv2d(x, kernel(same, same.bias), padding=1))
    return conv2d(y, kernel(halve), padding=1)


def doubled(
    double: nn.ConvTranspose2d, activation: nn.Module, same: nn.Conv2d, x: Tensor
) -> Tensor:
    """``same(activation(double(x)))``; the first is the transpose of a layer 4×4/2."""
    with no_autocast(x):
        y = _Convolved.apply(x, kernel(double), _four_times(double.bias), True, x.dtype)
        y = _Convolved.apply(activation(y), kernel(same), _four_times(same.bias), False, x.dtype)
    return pixels(y)


class _Convolved(torch.autograd.Function):
    """A convolution 3×3 that keeps the size, in the precision of the kernel.

    Means and scales of pixels want float32: in bfloat16 means come in steps of 1/256, in which a
    scale of .01 is lost, and a training goes up and down by thousands of nats. But if its input is
    in bfloat16 (``given``), gradients are: with those in float32 training was no better, and for so
    few channels a GPU takes much longer for them.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, kernel: Tensor, bias: Tensor, transposed: bool, given: torch.dtype
    ) -> Tensor:
        dtype = given if given == torch.bfloat16 else kernel.dtype
        ctx.save_for_backward(x.to(dtype), kernel.to(dtype))
        ctx.transposed = transposed
        convolve = conv_transpose2d if transposed else conv2d
        return convolve(x.to(kernel.dtype), kernel, bias, padding=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        x, kernel = ctx.saved_tensors
        slope, one, wanted = slopes[0].to(x.dtype), [1, 1], ctx.needs_input_grad[:3]
        form = ([slope.shape[1]], one, one, one, ctx.transposed, [0, 0], 1, wanted)
        return *torch.ops.aten.convolution_backward(slope, x, kernel, *form), None, None


def _to_squares(size: int, channels: int, ones: bool) -> Tensor:
    """Zeros and ones that make a kernel of squares, out of a row ``(u, v, i)`` of the fine one.

    With ``ones`` the row ends with a bias, and the kernel has one more channel in, of ones: the
    bias is its tap in the middle. Letters are those of above, ``c`` and ``d`` being ``a'``.
    """
    a, c = torch.arange(5 - size).view(-1, 1, 1, 1), torch.arange(2).view(-1, 1, 1)
    p, u = torch.arange(3).view(-1, 1), torch.arange(size)
    eye = torch.eye(channels + ones)
    tap = (2 * p + c - a - 1 == u).to(eye)
    whole = torch.einsum("acpu,bdqv,ij->uviabpqjcd", tap, tap, eye)
    rows = whole[:, :, :channels].flatten(0, 2)
    return (torch.cat([rows, whole[1, 1, channels:]]) if ones else rows).flatten(1)


def kernel(layer: nn.Conv2d | nn.ConvTranspose2d, bias: Tensor | None = None) -> Tensor:
    """``(o, i, 3, 3) → (4o, 4i, 3, 3)`` or ``(o, i, 4, 4) → (o, 4i, 3, 3)``, channels last."""
    rows = layer.weight.permute(0, 2, 3, 1).flatten(1)
    rows = rows if bias is None else torch.cat([rows, bias.unsqueeze(1)], 1)
    with torch.autocast(rows.device.type, enabled=False):
        taps = rows @ layer.to_squares
    channels = layer.weight.shape[1] + (bias is not None)
    return taps.view(-1, 3, 3, 4 * channels).permute(0, 3, 1, 2)


def _four_times(bias: Tensor | None) -> Tensor | None:
    """For each pixel of a square."""
    return None if bias is None else bias.view(-1, 1).expand(-1, 4).flatten()


def squares(x: Tensor) -> Tensor:
    """``(n, c, 2h, 2w) → (n, 4c, h, w)`` like `torch.pixel_unshuffle`, but channels last."""
    n, c, height, width = x.shape
    parts = x.reshape(n, c, height // 2, 2, width // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return parts.flatten(3).permute(0, 3, 1, 2)


def pixels(x: Tensor) -> Tensor:
    """The inverse of `squares`, channels first."""
    n, c, height, width = x.shape
    parts = x.permute(0, 2, 3, 1).unflatten(3, (c // 4, 2, 2))
    return parts.permute(0, 3, 1, 4, 2, 5).reshape(n, c // 4, 2 * height, 2 * width)
