r"""Finding nodes: by the distance of their centres, by energy, by name.

**Distance.** The Lorentz product ``⟨x, y⟩ = −cosh d(x, y)`` is an inner product with one sign
turned, and ``|x|² − d(x, y)² = ⟨(2x, −1), (y, |y|²)⟩`` is one too: in both spaces the nearest nodes
are those with the largest inner product, which FAISS finds fast. But FAISS works in float32, and at
radius 13 the products are sums of numbers of size ``e^26``, so that distances below 9 drown. So
FAISS only proposes: distances in float64 decide, and a bound on the rounding errors
says whether a node that was not proposed might be nearer. While one might, more are requested, and
in the end all are checked. With FAISS or without, the answer is the same.

**Energy.** ``KL(a‖c)`` is not a function of the distance: a wide node far away may be nearer in it
than a narrow one close by. So no index of centres can propose; all nodes are scored, by a few
draws, and the best by as many as are needed.
"""

import difflib
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hyperwrap import lorentz
from hyperwrap.embedding.evaluate import energies
from hyperwrap.embedding.nodes import Geometry, Nodes, NodeType, node_type

__all__ = ["Found", "Index", "closest_names", "shortlist"]

_ELEMENTS = 2**20  # distances at once
_FEW = 32  # nodes to look from for which making an index does not pay
_FIRST, _MORE = 64, 8  # proposals at first; how many times as many if those do not do
_PAIRS = 16  # of draws, for a first look at energies


# --- by distance ---------------------------------------------------------------------------------


class Found(NamedTuple):
    """For each node asked about, others and how far they are, nearest first; both ``(q, k)``."""

    nodes: Tensor
    distance: Tensor


class Index:
    """Nodes by the distance of their centres.

    Args:
        h: tangent vectors of the centres, ``(N, n)``.
        geometry: ``hyperbolic`` or ``euclidean``.
        use_faiss: whether to search with FAISS; by default, if it is installed.

    >>> index = Index(torch.tensor([[0.0], [1.0], [3.0]]), "euclidean")
    >>> index.search(torch.tensor([1]), topn=2)
    Found(nodes=tensor([[0, 2]]), distance=tensor([[1., 2.]], dtype=torch.float64))
    """

    def __init__(self, h: Tensor, geometry: Geometry, *, use_faiss: bool | None = None) -> None:
        self.h, self.kind = h.double(), node_type(geometry, "none")
        self.use_faiss = find_spec("faiss") is not None if use_faiss is None else use_faiss

    def __len__(self) -> int:
        return len(self.h)

    def search(self, nodes: Tensor, topn: int = 10) -> Found:
        """The ``topn`` nearest to each of ``nodes (q,)``, themselves left out."""
        topn = min(topn, len(self) - 1)
        found = Found(
            torch.zeros(len(nodes), topn, dtype=torch.int64),
            torch.zeros(len(nodes), topn, dtype=torch.float64),
        )
        left = torch.arange(len(nodes))
        if self.use_faiss and len(nodes) > _FEW:
            left = self._search_by_proposals(nodes, found)
        for some in left.split(max(1, _ELEMENTS // len(self))):
            if len(some):
                _fill(found, some, *self._nearest_of_all(nodes[some], topn))
        return found

    def _nearest_of_all(self, nodes: Tensor, topn: int) -> Found:
        no_noise = self.h.new_zeros(len(nodes), 1, self.h.shape[1])
        distance = energies(self.h, self.h[:, :1], self.kind, nodes, no_noise)
        distance.scatter_(1, nodes.unsqueeze(1), torch.inf)
        nearest = distance.topk(topn, largest=False)
        return Found(nearest.indices, nearest.values)

    def _search_by_proposals(self, nodes: Tensor, found: Found) -> Tensor:
        """Fills in the rows that are certain and returns the others."""
        left, size = torch.arange(len(nodes)), max(_FIRST, 2 * found.nodes.shape[1])
        while len(left) and size < len(self) // 4:
            unsure = []
            for some in left.split(max(1, _ELEMENTS // size)):
                best, sure = self._propose(nodes[some], found.nodes.shape[1], size)
                _fill(found, some[sure], best.nodes[sure], best.distance[sure])
                unsure.append(some[~sure])
            left, size = torch.cat(unsure), _MORE * size
        return left

    def _propose(self, nodes: Tensor, topn: int, size: int) -> tuple[Found, Tensor]:
        """The nearest of ``size`` proposals, and for which rows nothing else can be nearer."""
        ask = self._asked(nodes)
        products, proposed = map(torch.from_numpy, self._faiss.search(ask.float().numpy(), size))
        distance = self.distances(nodes, proposed).masked_fill(
            proposed == nodes.unsqueeze(1), torch.inf
        )
        nearest = distance.topk(topn, largest=False)
        worst = self._products(nodes, nearest.values[:, -1])
        sure = worst >= products[:, -1].double() + self._rounding(ask)
        return Found(proposed.gather(1, nearest.indices), nearest.values), sure

    def distances(self, nodes: Tensor, others: Tensor) -> Tensor:
        """Distances from each of ``nodes (q,)`` to its own ``others (q, k)``, in float64."""
        everyone = Nodes(self.h.T, self.h.T[:1])
        here, there = everyone.at(nodes.unsqueeze(1)), everyone.at(others)
        return -self.kind.scores(here, torch.zeros_like(here.h), there)[0]

    # --- as inner products -----------------------------------------------------------------------

    @cached_property
    def _faiss(self) -> Any:
        import faiss  # pyright: ignore[reportMissingImports]

        index = faiss.IndexFlatIP(self._stored.shape[1])
        index.add(self._stored.float().numpy())
        return index

    @cached_property
    def _stored(self) -> Tensor:
        if self.kind.hyperbolic:
            return lorentz.exp0(self.h)
        return torch.cat([self.h, self.h.square().sum(1, keepdim=True)], 1)

    def _asked(self, nodes: Tensor) -> Tensor:
        """What to multiply `_stored` with to get `_products`."""
        if self.kind.hyperbolic:
            time, space = self._stored[nodes].tensor_split([1], 1)
            return torch.cat([-time, space], 1)
        return torch.cat([2 * self.h[nodes], -torch.ones(len(nodes), 1)], 1)

    def _products(self, nodes: Tensor, distance: Tensor) -> Tensor:
        if self.kind.hyperbolic:
            return -distance.cosh()
        return self.h[nodes].square().sum(1) - distance.square()

    def _rounding(self, asked: Tensor) -> Tensor:
        """By how much a product may be wrong in float32: its ``n+1`` terms, and they themselves."""
        terms = asked.shape[1]
        longest = self._stored.norm(dim=1).max()
        return (terms + 3) * 2**-24 * asked.norm(dim=1) * longest


def _fill(found: Found, rows: Tensor, nodes: Tensor, distance: Tensor) -> None:
    found.nodes[rows], found.distance[rows] = nodes, distance


# --- by energy -----------------------------------------------------------------------------------


def shortlist(
    h: Tensor, log_scale: Tensor, kind: NodeType, node: int, count: int, pairs: int = _PAIRS
) -> Tensor:
    """The ``count`` nodes ``c`` with about the least ``KL(node‖c)``, the node itself left out.

    They are found by this many pairs of draws.
    """
    noise = torch.randn(pairs, h.shape[1], generator=torch.Generator().manual_seed(0))
    noise = torch.cat([noise, -noise]).unsqueeze(0)
    (energy,) = energies(h, log_scale, kind, torch.tensor([node]), noise)
    energy[node] = torch.inf
    return energy.topk(min(count, len(h) - 1), largest=False).indices


# --- by name -------------------------------------------------------------------------------------


def closest_names(name: str, names: Sequence[str], count: int = 3) -> list[str]:
    """Names that begin like this, ignoring case, the shortest first; else those spelled alike.

    >>> closest_names("Dog", ["cat.n.01", "dog.n.01", "dogma.n.01"])
    ['dog.n.01', 'dogma.n.01']
    >>> closest_names("dgo", ["cat", "dog"])
    ['dog']
    """
    folded = name.casefold()
    begin = [other for other in names if folded and other.casefold().startswith(folded)]
    if begin:
        return sorted(begin, key=lambda other: (len(other), other))[:count]
    return difflib.get_close_matches(name, names, count)
