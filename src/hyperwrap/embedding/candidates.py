r"""On a CPU: how many nodes are ahead of each parent, exactly, from the energies of only a few.

A node counts if its energy is no more than that of the last parent, and a bound shows which may be:
with ``d`` the distance of the centres of ``a`` and ``c``, ``σ`` the largest scale of ``c`` and
``s`` the least of ``a``,

    E(a, c)  ≥  (d² + n·s²)/2σ² + (n−1)·log(sinh d / d) + ½·log det Σ_c

for draws come in pairs with ``μ_a`` halfway between the two, distances are convex, and nowhere is
the space curved upward. (In Euclidean space the middle term is missing.)

Neighbouring sources whose last parents have about the same energy look together: for the nodes near
a ball around them, then by the first term for pairs, then by the whole bound.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from hyperwrap.embedding.nodes import Nodes, NodeType
from hyperwrap.special import log_sinhc

__all__ = ["Candidates"]

_SCORES = 2**16  # at once: what stays in cache
_KINDS, _TOGETHER = 8, 48  # of sources, by the energy of the last parent; that look together
_CENTRES = 17  # tried as that of the ball
_SLACK = 1e-3  # for rounding, relative and absolute


class Ahead(NamedTuple):
    """For some sources: how many nodes are ahead of each parent, best parent first, by all draws
    and by each half of them, ``(3, b, most)``; and how many parents there are, ``(b,)``.
    """

    ahead: Tensor
    parents: Tensor


class Candidates:
    """The nodes that may be ahead of a parent."""

    def __init__(self, h: Tensor, log_scale: Tensor, kind: NodeType) -> None:
        self.kind, self._n = kind, h.shape[1]
        self._nodes = Nodes(h.T.contiguous(), log_scale.T.exp().contiguous())
        self._places = _Places.of(h.double(), kind.hyperbolic)
        log_scale = log_scale.double()
        self._widest, self._narrowest = log_scale.amax(1).exp(), log_scale.amin(1).exp()
        self._half_log_det = kind.half_log_det(log_scale, self._n)

    def ahead(
        self, sources: Tensor, noise: Tensor, parents: tuple[Tensor, Tensor], others: Tensor
    ) -> Iterator[Ahead]:
        """In parts and in any order, from the draws ``noise (b, 2, s, n)`` of the sources.

        Args:
            sources: ``(b,)``.
            noise: two halves of the draws.
            parents: ``(b, most)``, and which of these there are.
            others: ``(b, k)``, what is left out of the ranking; the parents are among them.
        """
        mine, real = parents
        row, column = real.nonzero(as_tuple=True)
        own = torch.full((3, *real.shape), torch.inf, dtype=torch.float64)
        for some, found in self._energies(sources, noise, row, mine[row, column]):
            own[:, row[some], column[some]] = found.nan_to_num(nan=torch.inf)
        own, count = own.sort(2).values, real.sum(1)
        limit = own.gather(2, (count - 1).view(1, -1, 1).expand(3, -1, -1)).amax((0, 2))
        limit += _SLACK * (1 + limit.abs())
        for kind in limit.argsort().chunk(_KINDS):
            for rows in self._places.neighbourhoods(sources, kind):
                some = sources[rows]
                pairs = self._pairs(some, others[rows], limit[rows])
                yield Ahead(self._counted(some, noise[rows], *pairs, own[:, rows]), count[rows])

    def _counted(
        self, sources: Tensor, noise: Tensor, row: Tensor, node: Tensor, own: Tensor
    ) -> Tensor:
        """How many of the pairs are ahead of each ``own (3, b, most)``."""
        _, b, most = own.shape
        counts = torch.zeros(3, b * (most + 1), dtype=torch.int64)
        for some, found in self._energies(sources, noise, row, node):
            found = found.nan_to_num(nan=-torch.inf).unsqueeze(2)
            behind = (own[:, row[some]] < found).sum(2)
            counts.scatter_add_(1, row[some] * (most + 1) + behind, torch.ones_like(behind))
        return counts.view(3, b, most + 1).cumsum(2)[..., :-1]

    def _energies(
        self, sources: Tensor, noise: Tensor, row: Tensor, node: Tensor
    ) -> Iterator[tuple[slice, Tensor]]:
        """``(3, p)``, from the sources in these rows to as many nodes; in parts."""
        size = max(1, _SCORES // (2 * noise.shape[2]))
        for start in range(0, len(row), size):
            some = slice(start, start + size)
            eps = noise[row[some]].movedim(-1, 0)
            ends = (x[some].view(-1, 1, 1) for x in (sources[row], node))
            anchor, seen = (self._nodes.at(end) for end in ends)
            halves = -self.kind.scores(anchor, eps, seen)[0].mean(-1).double().T
            halves = halves.expand(2, -1)
            yield some, torch.cat([halves.mean(0, keepdim=True), halves])

    # --- pairs that the bound lets through -------------------------------------------------------

    def _pairs(self, some: Tensor, others: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of sources, and nodes; what is left out of the ranking is not among them."""
        reach = self._reach(limit.max(), self._narrowest[some].min())
        near = self._places.near(some, reach)
        apart = self._places.at(some).apart(self._places.at(near))
        row, column = (~(apart > self._places.measure(reach[near]))).nonzero(as_tuple=True)
        node = near[column]
        kept = ~(self._least(apart[row, column], some[row], node) > limit[row])
        kept &= ~_listed(row, node, torch.cat([others, some.unsqueeze(1)], 1))
        return row[kept], node[kept]

    def _reach(self, limit: Tensor, narrowest: Tensor) -> Tensor:
        """``(N,)``: beyond this distance no energy is within the limit, by the first term."""
        if self.kind.point:
            return limit.expand_as(self._widest)
        room = 2 * self._widest.square() * (limit - self._half_log_det)
        return (room - self._n * narrowest.square()).clamp_min(0).sqrt()

    def _least(self, apart: Tensor, a: Tensor, c: Tensor) -> Tensor:
        """The bound, for pairs of nodes."""
        d = self._places.distance(apart)
        if self.kind.point:
            return d
        squares = d.square() + self._n * self._narrowest[a].square()
        curved = (self._n - 1) * log_sinhc(d) if self.kind.hyperbolic else 0
        return squares / (2 * self._widest[c].square()) + curved + self._half_log_det[c]


def _listed(row: Tensor, node: Tensor, listed: Tensor) -> Tensor:
    """Which of the pairs are in a list ``(rows, k)`` of the nodes of each row."""
    most = int(torch.cat([node, listed.flatten()]).max()) + 1
    keys = torch.arange(len(listed)).unsqueeze(1) * most + listed
    return torch.isin(row * most + node, keys)


class _Places(NamedTuple):
    """Centres in float64, and a *measure* of how far apart they are: ``sinh²(d/2)``, or ``d²``."""

    h: Tensor  # (N, n)
    m: Tensor  # directions, or h itself
    root: Tensor  # e^{ρ/2}, (N,)
    sinh: Tensor  # sinh ρ
    hyperbolic: bool

    @classmethod
    def of(cls, h: Tensor, hyperbolic: bool) -> "_Places":
        rho = h.norm(dim=1)
        m = h / rho.clamp_min(1e-300).unsqueeze(1) if hyperbolic else h
        return cls(h, m, torch.exp(rho / 2), torch.sinh(rho), hyperbolic)

    def measure(self, d: Tensor) -> Tensor:
        return torch.sinh(d / 2).square() if self.hyperbolic else d.square()

    def distance(self, measure: Tensor) -> Tensor:
        return 2 * torch.asinh(measure.sqrt()) if self.hyperbolic else measure.sqrt()

    def at(self, rows: Tensor) -> "_Places":
        return _Places(
            self.h[rows], self.m[rows], self.root[rows], self.sinh[rows], self.hyperbolic
        )

    def apart(self, other: "_Places") -> Tensor:
        """``sinh²(d/2) = sinh²(Δ/2) + sinh ρ_a·sinh ρ_c·|m_a − m_c|²/4``, all with all."""
        u = torch.cdist(self.m, other.m, compute_mode="donot_use_mm_for_euclid_dist")
        if not self.hyperbolic:
            return u.square_()
        ratio = self.root.unsqueeze(1) / other.root
        u.square_().mul_((self.sinh / 4).unsqueeze(1)).mul_(other.sinh)
        return u.add_(ratio.sub_(ratio.reciprocal()).square_(), alpha=0.25)

    def near(self, some: Tensor, reach: Tensor) -> Tensor:
        """The nodes within their reach of a ball around some centres."""
        steps = torch.linspace(0, 1, _CENTRES, dtype=torch.float64).unsqueeze(1)
        tried = _Places.of(steps * self.h[some].mean(0), self.hyperbolic)
        radius = tried.apart(self.at(some)).amax(1).nan_to_num(nan=torch.inf)
        best = radius.argmin()
        away = self.distance(tried.at(best.view(1)).apart(self).squeeze(0))
        return (~(away > reach + self.distance(radius[best]))).nonzero().squeeze(1)

    def neighbourhoods(self, sources: Tensor, rows: Tensor) -> Iterator[Tensor]:
        """The rows in parts that are close together: halved across the widest coordinate."""
        if len(rows) <= _TOGETHER:
            yield rows
            return
        x = self.h[sources[rows]]
        widest = (x.amax(0) - x.amin(0)).argmax()
        for half in rows[x[:, widest].argsort()].chunk(2):
            yield from self.neighbourhoods(sources, half)
