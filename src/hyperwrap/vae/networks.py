"""Networks for the models: MLPs, of one model or of many stacked."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import sqrt

import torch
from torch import Tensor, nn

__all__ = ["Linear", "mlp"]


class Linear(nn.Module):
    """``x @ W + b``, for one model or a stack of them that share nothing but the call.

    With ``stack=(m,)`` the weights are ``(m, inputs, outputs)`` and act on ``(m, batch, inputs)``,
    or on ``(batch, inputs)`` seen by all. Several seeds then train in one program.
    """

    def __init__(self, inputs: int, outputs: int, *, stack: Sequence[int] = ()) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(*stack, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(*stack, outputs))
        lecun_normal(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        stacked = self.weight.dim() > 2
        bias = self.bias.unsqueeze(-2) if stacked else self.bias
        if stacked and x.dim() == self.weight.dim() == 3:
            return torch.baddbmm(bias, x, self.weight)
        return x @ self.weight + bias


def lecun_normal(weight: Tensor) -> None:
    """``N(0, 1/inputs)``."""
    nn.init.normal_(weight, std=1 / sqrt(weight.shape[-2]))


def glorot_uniform(weight: Tensor) -> None:
    """``U(−a, a)``, ``a = √(6/(inputs + outputs))``."""
    bound = sqrt(6 / (weight.shape[-2] + weight.shape[-1]))
    nn.init.uniform_(weight, -bound, bound)


def mlp(
    sizes: Sequence[int],
    *,
    stack: Sequence[int] = (),
    activation: Callable[[], nn.Module] = nn.Tanh,
) -> nn.Sequential:
    """Linear layers of these sizes with the activation between them.

    Hidden layers start LeCun normal, the last Glorot uniform, biases at 0, as in the paper's code.

    >>> mlp([784, 500, 4])(torch.zeros(10, 784)).shape
    torch.Size([10, 4])
    """
    if len(sizes) < 2:
        raise ValueError(f"Expected at least two `sizes`, of input and output; got {list(sizes)}.")
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [Linear(inputs, outputs, stack=stack), activation()]
    last = layers[-2]
    glorot_uniform(last.weight)  # pyright: ignore[reportArgumentType]
    return nn.Sequential(*layers[:-1])
