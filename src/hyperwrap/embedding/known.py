"""Which pairs of nodes are edges, looked up for millions of pairs in every step."""

import torch
from torch import Tensor

from hyperwrap.embedding.nodes import taken

__all__ = ["Known"]

_HASH = 0x2545F491, 0x5851F42D
_PLACES = 64  # of the table, for each edge
_MOST_BITS = 26


class Known:
    """Answers whether a node is a parent of another, from a table of pairs.

    Up to 8192 nodes the table has a place for each pair. With more, pairs are hashed: an edge is
    always recognised, and of the other pairs one in 64 or so is taken for one, which as a negative
    it may well be: a few negatives fewer.

    >>> known = Known(torch.tensor([[1, 0], [2, 1]]), nodes=3)
    >>> known(torch.tensor([1, 2, 2]), torch.tensor([0, 1, 0]))
    tensor([ True,  True, False])
    """

    def __init__(self, edges: Tensor, nodes: int) -> None:
        self.nodes = nodes
        if nodes * nodes <= 2**_MOST_BITS:
            self.multipliers, self.shift, places = (nodes, 1), 0, nodes * nodes
        else:
            bits = min(_MOST_BITS, (_PLACES * len(edges)).bit_length())
            self.multipliers, self.shift, places = _HASH, 32 - bits, 2**bits
        self.table = torch.zeros(places, dtype=torch.bool, device=edges.device)
        self.table[self._place(edges[:, 0], edges[:, 1])] = True

    def __call__(self, child: Tensor, parent: Tensor) -> Tensor:
        """Over the broadcast shape; nodes of stacked copies are those of the first."""
        return taken(self.table, self._place(child % self.nodes, parent % self.nodes))

    def _place(self, child: Tensor, parent: Tensor) -> Tensor:
        """The upper bits of a sum of products, modulo 2³²."""
        a, b = self.multipliers
        return ((child.long() * a + parent.long() * b) & 0xFFFFFFFF) >> self.shift
