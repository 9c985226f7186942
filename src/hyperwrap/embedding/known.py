"""Which pairs of nodes are edges, asked for millions of pairs in every step."""

import torch
from torch import Tensor

__all__ = ["MULTIPLIERS", "Known"]

MULTIPLIERS = 0x2545F491, 0x5851F42D
_PLACES = 64  # of the table, for each edge
_MOST_BITS = 26


class Known:
    """Answers whether a node is a parent of another, from a table of hashed pairs.

    An edge is always recognised. Of the other pairs one in ``64`` or fewer is taken for an edge,
    which as a negative it may well be: a few negatives fewer.

    >>> known = Known(torch.tensor([[1, 0], [2, 1]]), nodes=3)
    >>> known(torch.tensor([1, 2]), torch.tensor([0, 1]))
    tensor([True, True])
    """

    def __init__(self, edges: Tensor, nodes: int) -> None:
        self.nodes = nodes
        self.bits = min(_MOST_BITS, (_PLACES * max(1, len(edges))).bit_length())
        self.table = torch.zeros(2**self.bits, dtype=torch.bool, device=edges.device)
        self.table[self._place(edges[:, 0], edges[:, 1])] = True

    def __call__(self, child: Tensor, parent: Tensor) -> Tensor:
        """Over the broadcast shape; nodes of stacked copies are those of the first."""
        return self.table[self._place(child % self.nodes, parent % self.nodes)]

    def _place(self, child: Tensor, parent: Tensor) -> Tensor:
        """The upper bits of a sum of products, modulo 2³²."""
        a, b = MULTIPLIERS
        return ((child.long() * a + parent.long() * b) & 0xFFFFFFFF) >> (32 - self.bits)
