r"""How well an embedding ranks true parents: mean average precision and mean rank.

For every source ``a`` all other nodes are ranked by the energy ``KL(a‖c)``, or by distance where
nodes are points. ``log q_a(z)`` is the same for all ``c``, so minus the mean of ``log q_c(z)`` over
draws ``z ~ q_a``, shared by the candidates, gives the same ranking.

- *rank* of a true parent: 1 + the number of nodes, not themselves parents, with as little energy;
  averaged over all pairs.
- *average precision* of a source, its parents being the relevant ones among all other nodes;
  averaged over sources (MAP).

Draws come with their mirror images and are scaled to mean square 1, which takes most of the noise
from a divergence. Those of different sources are independent, so the sampling error is estimated
from two halves of the draws of each source: with ``x`` and ``y`` the results of the halves, the
result of all has variance ``(x − y)²/4``. A NaN counts as ranked wrongly, and so does a tie.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from hyperwrap.embedding.nodes import Nodes, NodeType
from hyperwrap.errors import UserError
from hyperwrap.training import Progress

__all__ = ["Evaluation", "evaluate"]

_GPU_ELEMENTS = 2**27  # energies at once
_CPU_ELEMENTS = 2**21
_CPU_SCORES = 2**16  # draws × candidates of one source at once: what stays in cache


@dataclass(frozen=True)
class Evaluation:
    """MAP and mean rank, with the standard errors due to sampling."""

    mean_average_precision: float
    mean_rank: float
    mean_average_precision_error: float
    mean_rank_error: float
    sources: int
    pairs: int
    draws: int


def evaluate(
    h: Tensor,
    log_scale: Tensor,
    kind: NodeType,
    edges: Tensor,
    *,
    known: Tensor | None = None,
    sources: Tensor | None = None,
    draws: int = 50,
    seed: int = 0,
) -> Generator[Progress, None, Evaluation]:
    """Ranks the parents that ``edges (E, 2)`` name for every source, or for the ``sources`` given.

    A generator that reports how many sources are done, and returns an `Evaluation`.

    Args:
        h: tangent vectors of the centres, ``(N, n)``.
        log_scale: ``(N, n)`` or ``(N, 1)``.
        kind: what a node is.
        edges: child and parent.
        known: edges that are true as well and so are left out of the ranking (held-out edges are
            ranked among the nodes that are not known parents).
        sources: nodes to evaluate, by default all; those without a parent are left out.
        draws: samples of each source, rounded up to a multiple of four; points need none.
        seed: random seed for the draws.
    """
    parents = _Parents(edges.to(h.device), len(h))
    others = parents if known is None else _Parents(torch.cat([edges, known]).to(h.device), len(h))
    sources = parents.sources() if sources is None else sources.to(h.device)
    sources = sources[parents.count[sources] > 0]
    if not len(sources):
        raise UserError("Expected sources with parents to rank; got none. Pass their edges.")
    sources = sources[parents.count[sources].argsort()]
    draws = 4 if kind.point else 4 * ceil(draws / 4)
    random = torch.Generator(h.device).manual_seed(seed)
    totals, done = torch.zeros(5, dtype=torch.float64, device=h.device), 0
    for some in _chunks(sources, len(h)):
        noise = torch.randn(len(some), 2, draws // 4, h.shape[1], generator=random, device=h.device)
        halves = [energies(h, log_scale, kind, some, _balanced(x)) for x in noise.unbind(1)]
        totals += _totals(halves, some, parents, others)
        done += len(some)
        yield Progress(done, len(sources))
    precision, rank, precision_2, rank_2, pairs = totals.tolist()
    return Evaluation(
        precision / len(sources),
        rank / pairs,
        precision_2**0.5 / len(sources),
        rank_2**0.5 / pairs,
        len(sources),
        int(pairs),
        draws,
    )


def _balanced(noise: Tensor) -> Tensor:
    """``(b, s, n) → (b, 2s, n)``: with its mirror image, and scaled to mean square 1.

    So the mean of a quadratic form in each coordinate is exact, which most of a divergence is.
    """
    both = torch.cat([noise, -noise], 1)
    return both / both.square().mean(1, keepdim=True).sqrt()


def _totals(
    halves: list[Tensor], sources: Tensor, parents: "_Parents", others: "_Parents"
) -> Tensor:
    """Sums of average precision, of ranks, of the squared errors of both, and of pairs."""
    mean = torch.stack(halves).mean(0)
    results = [_ranked(energy, sources, parents, others) for energy in (mean, *halves)]
    (precision, rank, pairs), (p_1, r_1, _), (p_2, r_2, _) = results
    errors = [((p_1 - p_2) ** 2 / 4).sum(), ((r_1 - r_2) ** 2 / 4).sum()]
    return torch.stack([precision.sum(), rank.sum(), *errors, pairs.sum()])


def _ranked(
    energy: Tensor, sources: Tensor, parents: "_Parents", others: "_Parents"
) -> tuple[Tensor, Tensor, Tensor]:
    """Average precision, sum of ranks and number of parents of each source."""
    mine, real = parents.of(sources)
    own = energy.gather(1, mine).nan_to_num(nan=torch.inf).masked_fill(~real, torch.inf)
    own = own.sort(1).values
    rest = energy.nan_to_num(nan=-torch.inf)
    rest.scatter_(1, sources.unsqueeze(1), torch.nan)  # which is ahead of nothing
    rest.scatter_(1, others.of(sources)[0], torch.nan)
    ahead = torch.stack([(rest <= x.unsqueeze(1)).sum(1) for x in own.unbind(1)], 1).double()
    place = torch.arange(1, ahead.shape[1] + 1, device=energy.device, dtype=torch.float64)
    count = real.sum(1).double()
    real = place <= count.unsqueeze(1)
    precision = torch.where(real, place / (place + ahead), 0).sum(1) / count
    return precision, torch.where(real, 1 + ahead, 0).sum(1), count


def energies(
    h: Tensor, log_scale: Tensor, kind: NodeType, sources: Tensor, noise: Tensor
) -> Tensor:
    """Minus the mean score of every node ``(b, N)``, for draws ``noise (b, s, n)`` of sources.

    For Gaussians it is ``KL(a‖c)`` plus what depends on the source ``a`` alone.
    """
    if h.is_cuda:
        from hyperwrap.kernels import triton_embedding as triton

        return triton.energies(kind, h, log_scale, sources.to(torch.int32), noise)
    nodes, draws = Nodes(h.T.contiguous(), log_scale.T.exp().contiguous()), noise.shape[1]
    candidates = torch.arange(len(h)).view(1, 1, -1).split(max(1, _CPU_SCORES // draws), -1)
    parts, at_once = [nodes.at(some) for some in candidates], _CPU_SCORES // (draws * len(h)) or 1
    rows = []
    for some, eps in zip(sources.split(at_once), noise.split(at_once), strict=True):
        anchor, eps = nodes.at(some.view(-1, 1, 1)), eps.movedim(-1, 0).unsqueeze(-1)
        scores = [kind.scores(anchor, eps, part)[0] for part in parts]
        rows.append(-torch.cat(scores, -1).mean(1))
    return torch.cat(rows)


def _chunks(sources: Tensor, nodes: int) -> Iterator[Tensor]:
    elements = _GPU_ELEMENTS if sources.is_cuda else _CPU_ELEMENTS
    yield from sources.split(max(1, elements // nodes))


class _Parents:
    """Parents of each node, looked up for many at once."""

    def __init__(self, edges: Tensor, nodes: int) -> None:
        edges = edges.long()
        order = edges[:, 0].argsort(stable=True)
        self.flat = edges[order, 1]
        self.count = torch.bincount(edges[:, 0], minlength=nodes)
        self.first = self.count.cumsum(0) - self.count

    def sources(self) -> Tensor:
        return self.count.nonzero().squeeze(1)

    def of(self, sources: Tensor) -> tuple[Tensor, Tensor]:
        """``(b, most)``: parents, the source itself where it has fewer, and which are real."""
        count = self.count[sources].unsqueeze(1)
        place = torch.arange(int(count.max()), device=sources.device)
        real = place < count
        at = torch.where(real, self.first[sources].unsqueeze(1) + place, 0)
        return torch.where(real, self.flat[at], sources.unsqueeze(1)), real
