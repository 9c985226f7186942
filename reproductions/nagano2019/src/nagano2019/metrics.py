"""Arrays in, numbers out."""

import torch
from torch import Tensor

__all__ = ["distance_correlation", "pearson"]


def pearson(a: Tensor, b: Tensor) -> Tensor:
    """Pearson's correlation over the last dimension, ``(..., n) → (...)``.

    >>> pearson(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 4.0, 6.0])).round(decimals=4)
    tensor(1.)
    """
    a, b = (x - x.mean(-1, keepdim=True) for x in (a, b))
    return (a * b).sum(-1) / (a.square().sum(-1) * b.square().sum(-1)).sqrt()


def distance_correlation(a: Tensor, b: Tensor) -> Tensor:
    """Correlation of two distance matrices over all pairs, ``(..., n, n) → (...)``."""
    i, j = torch.triu_indices(a.shape[-1], a.shape[-1], offset=1, device=a.device)
    return pearson(a[..., i, j], b[..., i, j])
