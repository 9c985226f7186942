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

On a GPU, and where nodes are few, the energies of all nodes are found; on a CPU only those that
decide the ranks (`candidates`), with the same result.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from hyperwrap.embedding.candidates import Ahead, Candidates
from hyperwrap.embedding.nodes import Nodes, NodeType
from hyperwrap.errors import UserError
from hyperwrap.training import Progress

__all__ = ["Evaluation", "energies", "evaluate"]

_GPU_ELEMENTS = 2**27  # energies at once
_CPU_SCORES = 2**16  # draws × candidates of one source at once: what stays in cache
_CPU_ELEMENTS, _FEW_NODES = 2**21, 2**9
_SOURCES = 2**15  # at once, where only candidates are looked at


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
    judge, at_once = _judge(h, log_scale, kind)
    totals, done = torch.zeros(5, dtype=torch.float64, device=h.device), 0
    for some in sources.split(at_once):
        noise = torch.randn(len(some), 2, draws // 4, h.shape[1], generator=random, device=h.device)
        noise = torch.stack([_balanced(x) for x in noise.unbind(1)], 1)
        for each in judge.ahead(some, noise, parents.of(some), others.of(some)[0]):
            totals += _totals(*each)
            done += len(each.parents)
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


def _judge(h: Tensor, log_scale: Tensor, kind: NodeType) -> "tuple[Candidates | _Everyone, int]":
    """What finds the ranks, and for how many sources at once."""
    if h.is_cuda or len(h) <= _FEW_NODES:
        elements = _GPU_ELEMENTS if h.is_cuda else _CPU_ELEMENTS
        return _Everyone(h, log_scale, kind), max(1, elements // len(h))
    return Candidates(h, log_scale, kind), _SOURCES


def _balanced(noise: Tensor) -> Tensor:
    """``(b, s, n) → (b, 2s, n)``: with its mirror image, and scaled to mean square 1.

    So the mean of a quadratic form in each coordinate is exact, which most of a divergence is.
    """
    both = torch.cat([noise, -noise], 1)
    return both / both.square().mean(1, keepdim=True).sqrt()


# --- ranks ---------------------------------------------------------------------------------------


def _totals(ahead: Tensor, count: Tensor) -> Tensor:
    """Sums of average precision, of ranks, of the squared errors of both, and of pairs.

    ``ahead (3, b, most)`` says how many nodes are ahead of each of the ``count (b,)`` parents, best
    parent first: by all draws and by each half of them.
    """
    count = count.unsqueeze(1)
    place = torch.arange(1, ahead.shape[2] + 1, device=ahead.device, dtype=torch.float64)
    real = place <= count
    precision = (torch.where(real, place / (place + ahead), 0) / count).sum(2)
    rank = torch.where(real, 1 + ahead, 0).sum(2).double()
    errors = [((x[1] - x[2]) ** 2 / 4).sum() for x in (precision, rank)]
    return torch.stack([precision[0].sum(), rank[0].sum(), *errors, count.sum()])


class _Everyone:
    """The energies of all nodes."""

    def __init__(self, h: Tensor, log_scale: Tensor, kind: NodeType) -> None:
        self._space = h, log_scale, kind

    def ahead(
        self, sources: Tensor, noise: Tensor, parents: tuple[Tensor, Tensor], others: Tensor
    ) -> Iterator[Ahead]:
        """As of `Candidates`."""
        halves = torch.stack([energies(*self._space, sources, eps) for eps in noise.unbind(1)])
        energy, (mine, real) = torch.cat([halves.mean(0, keepdim=True), halves]), parents
        own = energy.gather(2, mine.expand(3, -1, -1)).nan_to_num(nan=torch.inf)
        own = own.masked_fill(~real, torch.inf).sort(2).values
        rest = energy.nan_to_num(nan=-torch.inf)
        for left_out in (sources.unsqueeze(1), others):
            rest.scatter_(2, left_out.expand(3, -1, -1), torch.nan)  # which is ahead of nothing
        ahead = [(rest <= x.unsqueeze(2)).sum(2) for x in own.unbind(2)]
        yield Ahead(torch.stack(ahead, 2), real.sum(1))


# --- energies ------------------------------------------------------------------------------------


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
