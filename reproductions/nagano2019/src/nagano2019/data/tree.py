"""The binary tree of §5.1: nodes as binary vectors whose Hamming distance is the graph distance.

Depth 8: 255 nodes in 255 dimensions; coordinate ``j`` of node ``i`` is 1 if ``j`` is ``i`` or one
of its ancestors. Nodes are numbered level by level, so the parent of ``i`` is ``(i − 1)//2``. For
all 32,385 pairs the Hamming distance is the distance in the tree.
"""

import torch
from torch import Tensor

__all__ = ["depths", "flipped", "hamming", "nodes", "parents"]


def parents(depth: int = 8) -> Tensor:
    """The parent of each node except the root, ``(2^depth − 2,)``.

    >>> parents(3)
    tensor([0, 0, 1, 1, 2, 2])
    """
    return (torch.arange(1, 2**depth - 1) - 1) // 2


def depths(depth: int = 8) -> Tensor:
    """The level of each node, 0 for the root.

    >>> depths(3)
    tensor([0, 1, 1, 2, 2, 2, 2])
    """
    return torch.repeat_interleave(torch.arange(depth), 2 ** torch.arange(depth))


def nodes(depth: int = 8) -> Tensor:
    """The vectors of all nodes, ``(2^depth − 1, 2^depth − 1)``, entries 0 and 1.

    >>> nodes(2)
    tensor([[1., 0., 0.],
            [1., 1., 0.],
            [1., 0., 1.]])
    """
    x = torch.eye(2**depth - 1)
    for i, parent in enumerate(parents(depth).tolist(), start=1):
        x[i] += x[parent]
    return x


def flipped(x: Tensor, p: float = 0.1) -> Tensor:
    """``x`` with every coordinate flipped with probability ``p``, drawn again at every call."""
    return (x - (torch.rand_like(x) < p).to(x.dtype)).abs()


def hamming(x: Tensor) -> Tensor:
    """Hamming distances between all rows, ``(n, d) → (n, n)``."""
    return torch.cdist(x, x, p=1)
