r"""`Embedding`: nodes with names, each a distribution in hyperbolic or Euclidean space.

A node is ``G(μ, Σ)`` with ``μ = exp₀(h)``, ``Σ = diag σ²``. An embedding holds ``h``, as `tangent`,
and ``σ``, as `scale`. Laws and distances are computed in float64.

On disk an embedding is a folder:

- ``nodes.txt``: the names, one per line, UTF-8. A name is anything but a line break and NUL.
- ``config.json``: ``geometry``, ``covariance``, ``dim``, ``nodes``, and how it was trained.
- ``embedding.safetensors``: ``tangent (N, n)``, ``scale (N, n)`` or ``(N, 1)``, 0 for points; for
  radial laws ``scale (N, 2)``, along and across, and for other readers ``scale_tril (N, n, n)``; if
  the hierarchy is known, ``edges (E, 2)``, rows of child and parent, and ``weights (E,)`` if any;
  and what `Embedding.probability` learnt from them, ``probability (16, 9)``.
"""

import hashlib
import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution, Independent, kl_divergence

from hyperwrap.distributions import KLEstimate, WrappedNormal, estimate_kl
from hyperwrap.embedding import export
from hyperwrap.embedding.adding import placed
from hyperwrap.embedding.below import WEIGHTS, fitted, log_odds
from hyperwrap.embedding.evaluate import Evaluation, evaluate
from hyperwrap.embedding.export import Coordinates
from hyperwrap.embedding.nodes import Covariance, Geometry, Nodes, NodeType, node_type
from hyperwrap.embedding.query import Index, closest_names, shortlist
from hyperwrap.errors import UnknownNodeError, UserError
from hyperwrap.files import as_json, read_tensors, write_tensors, write_whole
from hyperwrap.graphs.catalogue import graph
from hyperwrap.graphs.hierarchy import Hierarchy
from hyperwrap.graphs.relatives import Relatives
from hyperwrap.training import Progress, finished, the_device

if TYPE_CHECKING:
    from typing_extensions import TypeIs

__all__ = ["Edge", "Embedding", "Match"]

Name = str | int  # of a node that was given as a number
Names = Name | Sequence[Name]

_DRAWS_AT_ONCE = 2**22
_NODES_AT_ONCE = 2**14
_SHORTLIST = 300
_CERTAIN = 0.95  # of many nodes few are below one, so that a half would let in others


class Match(NamedTuple):
    """A node that was found, and how near it is: a distance or a divergence."""

    name: str
    value: float


class Edge(NamedTuple):
    """An edge, and how probable it is."""

    child: str
    parent: str
    probability: float


class Embedding:
    """Nodes as distributions.

    Where a method takes names, one name gives a result of shape ``()``, a list of ``k`` names one
    of shape ``(k,)``.

    Args:
        names: one per node, all different.
        tangent: ``(N, n)``, the tangent vectors ``h`` at the origin with ``μ = exp₀(h)``; in
            Euclidean geometry the means themselves.
        scale: the standard deviations ``σ``, ``(N, n)``; ``(N, 1)`` where covariance is ``scalar``.
            Zeros ``(N, 1)`` where it is ``none`` and nodes are points.
        geometry: ``hyperbolic`` or ``euclidean``.
        covariance: ``diagonal``, ``scalar`` or ``none``.
        config: anything that JSON holds and that should be kept with the embedding.
        hierarchy: the edges that the embedding was made from, over the same names.
        calibration: what `probability` learnt from them; without it, it is learnt when needed.

    >>> parents = {"puppy": "dog", "dog": "animal", "cat": "animal"}
    >>> pets = hw.embed(parents, dim=2, closure=True, epochs=50)
    >>> pets
    Embedding(4 nodes, n=2, hyperbolic, diagonal)
    >>> sorted(match.name for match in pets.ancestors("puppy", topn=2))
    ['animal', 'dog']
    >>> pets.distribution(["dog", "cat"]).batch_shape
    torch.Size([2])
    """

    def __init__(
        self,
        names: Iterable[str],
        tangent: Tensor,
        scale: Tensor,
        geometry: Geometry = "hyperbolic",
        covariance: Covariance = "diagonal",
        config: Mapping[str, Any] | None = None,
        hierarchy: Hierarchy | None = None,
        calibration: Tensor | None = None,
    ) -> None:
        self.kind = node_type(geometry, covariance)
        self.names = _checked_names(list(names), hierarchy)
        self.hierarchy = hierarchy
        """The direct edges from child to parent; None if the embedding was made without."""
        self.tangent, self.scale = _checked(tangent, scale, len(self.names), self.kind)
        self.config = dict(config or {})
        self.calibration = _checked_calibration(calibration)
        """What `probability` learnt; None until it is needed, or saved."""

    def __repr__(self) -> str:
        return f"Embedding({len(self):,} nodes, n={self.dim}, {self.kind})"

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    @property
    def dim(self) -> int:
        """The dimension ``n`` of the space."""
        return self.tangent.shape[1]

    # --- names ---------------------------------------------------------------------------------

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: node for node, name in enumerate(self.names)}

    def nodes(self, names: Names | None = None) -> Tensor:
        """The rows of nodes in `tangent` and `scale`; all of them, if no names are given."""
        if names is None:
            return torch.arange(len(self))
        if _is_one(names):
            return torch.tensor(self._node(names))
        return torch.tensor([self._node(name) for name in names], dtype=torch.int64)

    def _node(self, name: Name) -> int:
        try:
            return self._index[str(name) if _is_one(name) else name]
        except (KeyError, TypeError):
            near = [repr(other) for other in closest_names(str(name), self.names)]
            hint = f"The closest names are: {', '.join(near)}." if near else "None is close to it."
            raise UnknownNodeError(f"Expected the name of a node; got {name!r}. {hint}") from None

    # --- distributions ---------------------------------------------------------------------------

    def distribution(self, names: Names | None = None) -> WrappedNormal | Independent:
        """The laws of nodes, in float64: `hw.WrappedNormal`, or a normal law of torch's."""
        return self._law(self.nodes(names))

    def _law(self, nodes: Tensor) -> WrappedNormal | Independent:
        return self.kind.law(self.tangent[nodes].double(), self.scale[nodes].double())

    def kl(self, a: Names, b: Names, num_samples: int = 1024) -> KLEstimate:
        """``KL(a‖b)`` with its standard error; lists are taken pair by pair, a name with all.

        By `hw.estimate_kl`, from ``num_samples`` draws for each pair; exact between Euclidean
        Gaussians.
        """
        p, q = _paired(self.nodes(a), self.nodes(b))
        size = max(1, _DRAWS_AT_ONCE // (num_samples * self.dim))
        pairs = zip(p.reshape(-1).split(size), q.reshape(-1).split(size), strict=True)
        parts = [_kl(self._law(x), self._law(y), num_samples) for x, y in pairs]
        return KLEstimate(*(torch.cat(part).view(p.shape) for part in zip(*parts, strict=True)))

    def entropy(self, names: Names | None = None) -> Tensor:
        """How uncertain nodes are, in nats: the wider, the less specific."""
        return self._entropy(self.nodes(names))

    def _entropy(self, nodes: Tensor) -> Tensor:
        parts = [self._law(some).entropy() for some in nodes.reshape(-1).split(_NODES_AT_ONCE)]
        return torch.cat(parts).view(nodes.shape)

    def radius(self, names: Names | None = None) -> Tensor:
        """How far the centres are from the origin; specific nodes tend to lie far out."""
        return self.tangent[self.nodes(names)].double().norm(dim=-1)

    # --- queries -------------------------------------------------------------------------------

    @cached_property
    def index(self) -> Index:
        """Nodes by distance, to search from many at once: ``index.search(nodes, topn)``."""
        return Index(self.tangent, self.kind.geometry)

    @overload
    def neighbours(self, name: Name, topn: int = 10) -> list[Match]: ...
    @overload
    def neighbours(self, name: list[str] | list[int], topn: int = 10) -> list[list[Match]]: ...
    def neighbours(self, name: Names, topn: int = 10) -> list[Match] | list[list[Match]]:
        """The nodes whose centres are nearest, with their distances."""
        names = [name] if _is_one(name) else name
        nearest = self.index.search(self.nodes(names), _at_least_1(topn))
        found = [self._matches(*each) for each in zip(*nearest, strict=True)]
        return found[0] if _is_one(name) else found

    @overload
    def ancestors(self, name: Name, topn: int = 10, *, covering: bool = False) -> list[Match]: ...
    @overload
    def ancestors(
        self, name: list[str] | list[int], topn: int = 10, *, covering: bool = False
    ) -> list[list[Match]]: ...
    def ancestors(
        self, name: Names, topn: int = 10, *, covering: bool = False
    ) -> list[Match] | list[list[Match]]:
        """The nodes ``c`` with the least ``KL(name‖c)``: it is small where ``c`` covers the node.

        The order is the one that `evaluate` judges; after the ancestors come, if ``topn`` asks for
        more, near relatives. ``covering=True`` leaves out those that are covered by the node better
        than they cover it, ``KL(c‖name) ≤ KL(name‖c)``: descendants, but also a parent with no
        child to spread it. The divergences are those of `torch.distributions.kl_divergence`, the
        same at every call.
        """
        if not _is_one(name):
            return [self.ancestors(each, topn, covering=covering) for each in name]
        node, count = self._node(name), max(_SHORTLIST, 10 * _at_least_1(topn))
        own = self._law(torch.tensor(node))
        near = shortlist(self.tangent, self._log_scale, self.kind, node, count)
        laws = self._law(near)
        divergence = kl_divergence(own, laws)
        if covering:
            covers = divergence < kl_divergence(laws, own)
            near, divergence = near[covers], divergence[covers]
        order = divergence.argsort()[:topn]
        return self._matches(near[order], divergence[order])

    def _matches(self, nodes: Tensor, values: Tensor) -> list[Match]:
        found = zip(nodes.tolist(), values.tolist(), strict=True)
        return [Match(self.names[node], value) for node, value in found]

    @property
    def _log_scale(self) -> Tensor:
        return torch.zeros_like(self.scale) if self.kind.point else self.scale.log()

    def most_general(self, topn: int = 10) -> list[Match]:
        """The nodes with the largest entropy; of points, those nearest to the origin, by radius."""
        count = min(_at_least_1(topn), len(self))
        first = self._specificity(torch.arange(len(self))).topk(count, largest=False)
        sign = 1 if self.kind.point else -1
        return self._matches(first.indices, sign * first.values)

    def _specificity(self, nodes: Tensor) -> Tensor:
        """The radius of points, else minus the entropy."""
        if self.kind.point:
            return self.tangent[nodes].double().norm(dim=-1)
        return -self._entropy(nodes)

    def search(self, text: str, topn: int = 10) -> list[str]:
        """Names that begin like this, ignoring case, the shortest first; else those spelled alike.

        >>> hw.embed({"dog": "animal", "cat": "animal"}, dim=2, epochs=0).search("DO")
        ['dog']
        """
        return closest_names(text, self.names, _at_least_1(topn))

    # --- the hierarchy ---------------------------------------------------------------------------

    @cached_property
    def _relatives(self) -> Relatives:
        if self.hierarchy is None:
            raise UserError(
                "Expected an embedding that knows its hierarchy; this one was made without. "
                "Embed the edges again, or pass `hierarchy`."
            )
        return Relatives(self.hierarchy)

    def contains(self, a: str, b: str) -> bool:
        """Whether the edges put ``b`` below ``a``."""
        ends = (np.array([self._node(name)]) for name in (b, a))
        return bool(self._relatives.below(*ends)[0])

    def common_ancestor(self, a: str, b: str) -> str | None:
        """The deepest node that is above both by the edges, or is one of them; None without any.

        >>> animals = [("dog", "mammal"), ("cat", "mammal"), ("mammal", "animal")]
        >>> hw.embed(animals, dim=2, epochs=0).common_ancestor("dog", "cat")
        'mammal'
        """
        found = self._relatives.common(self._node(a), self._node(b))
        return None if found is None else self.names[found]

    def path(self, a: str, b: str) -> list[str]:
        """The shortest way along the edges, up from ``a`` and down to ``b``; empty without any.

        >>> animals = [("dog", "mammal"), ("mammal", "animal"), ("bird", "animal")]
        >>> hw.embed(animals, dim=2, epochs=0).path("dog", "bird")
        ['dog', 'mammal', 'animal', 'bird']
        """
        return [self.names[node] for node in self._relatives.way(self._node(a), self._node(b))]

    def _calibrated(self) -> Tensor:
        if self.calibration is None:
            if not self._relatives.ordered:
                raise UserError(
                    "Expected a hierarchy, to learn from it what is below what; the edges of this "
                    "embedding go round in cycles, or there are none."
                )
            self.calibration = fitted(self._relatives, self.kind, self._all_nodes)
        return self.calibration

    def probability(self, child: Names, parent: Names) -> Tensor:
        """How probable it is, by where the nodes lie, that ``child`` is below ``parent``.

        Lists are taken pair by pair, a name with all. It is calibrated on pairs from the hierarchy
        of the embedding, half of them true and half not: see `hyperwrap.embedding.below`. It speaks
        of nodes that were added, and of edges that nobody drew, just as well.

        >>> animals = [("dog", "mammal"), ("cat", "mammal"), ("mammal", "animal")]
        >>> zoo = hw.embed(animals, dim=2, epochs=0)
        >>> bool(zoo.probability("dog", "animal") > zoo.probability("dog", "cat"))
        True
        """
        a, c = _paired(self.nodes(child), self.nodes(parent))
        return self._below(torch.stack([a, c], -1).view(-1, 2)).view(a.shape)

    def _below(self, ends: Tensor) -> Tensor:
        return log_odds(self._calibrated(), self.kind, self._all_nodes, ends).sigmoid()

    @property
    def _all_nodes(self) -> Nodes:
        scale = torch.ones_like(self.scale) if self.kind.point else self.scale
        return Nodes(self.tangent.T.double(), scale.T.double())

    @overload
    def descendants(self, name: Name, topn: int = 10) -> list[Match]: ...
    @overload
    def descendants(self, name: list[str] | list[int], topn: int = 10) -> list[list[Match]]: ...
    def descendants(self, name: Names, topn: int = 10) -> list[Match] | list[list[Match]]:
        """Nodes that are almost certainly below this one, the most general first.

        They are found by where they lie, and come with their `probability`.
        ``embedding.hierarchy.below(name).names`` are those that the edges put there.
        """
        if not _is_one(name):
            return [self.descendants(each, topn) for each in name]
        child = torch.arange(len(self))
        parent = torch.full_like(child, self._node(name))
        probability = self._below(torch.stack([child, parent], 1))
        found = (probability > _CERTAIN).nonzero().squeeze(1)
        first = self._specificity(found).argsort()[: _at_least_1(topn)]
        return self._matches(found[first], probability[found[first]])

    def suspicious_edges(self, topn: int = 10) -> list[Edge]:
        """The edges that the geometry contradicts: of those improbable by a half, the worst first.

        They may be wrong. Or they are second parents, of a node that lies with its first.
        """
        ends = torch.from_numpy(self._relatives.hierarchy.edges)
        probability = self._below(ends)
        worst = probability.topk(min(_at_least_1(topn), len(ends)), largest=False)
        found = zip(ends[worst.indices].tolist(), worst.values.tolist(), strict=True)
        names = self.names
        return [Edge(names[a], names[c], value) for (a, c), value in found if value < 0.5]

    def add(self, child: Name, parents: Names) -> "Embedding":
        """Gives a new leaf a place below its parents, at once and without training.

        The rest stays as it is. Returns the embedding itself.

        >>> zoo = hw.embed({"dog": "mammal", "cat": "mammal", "mammal": "animal"}, dim=2, epochs=0)
        >>> zoo.add("horse", "mammal").path("horse", "animal")
        ['horse', 'mammal', 'animal']
        """
        return self.add_all({child: parents})

    def add_all(self, parents: Mapping[Any, Names] | Iterable[tuple[Any, Name]]) -> "Embedding":
        """`add` for many: new names, each with its parents, which may be new and come before it.

        They are a mapping, or pairs of a child and a parent.
        """
        given = _by_child(parents)
        leaves = self._numbered(given)
        hierarchy = _grown(self._relatives, [*given], leaves)
        nodes = self.tangent, self.scale
        known = self._calibrated() if self._relatives.ordered else None
        self.tangent, self.scale = placed(self.kind, nodes, Relatives(hierarchy), leaves, known)
        self.names, self.hierarchy = hierarchy.names, hierarchy
        for cached in ("_index", "index", "_relatives"):
            self.__dict__.pop(cached, None)
        return self

    def _numbered(self, parents: Mapping[str, Sequence[Name]]) -> dict[int, list[int]]:
        """New nodes and their parents as rows, those of new nodes at the end."""
        new: dict[str, int] = {}
        leaves: dict[int, list[int]] = {}
        for child, above in parents.items():
            if child in self:
                raise UserError(f"Expected a new name; there is already a node {child!r}.")
            names = [str(name) if _is_one(name) else name for name in above]
            if not names or None in names:
                raise UserError(f"Expected a parent for {child!r}; got none.")
            rows = [new[name] if name in new else self._node(name) for name in names]
            new[child] = len(self) + len(new)
            leaves[new[child]] = [*dict.fromkeys(rows)]
        return leaves

    # --- how good it is --------------------------------------------------------------------------

    def evaluate(self, edges: Any, **options: Any) -> Evaluation:
        """Mean average precision and mean rank of the true parents: `evaluating`, run to its end.

        >>> pets = hw.embed({"puppy": "dog", "dog": "animal"}, dim=2, closure=True, epochs=30)
        >>> pets.evaluate({"puppy": "dog", "dog": "animal"}, closure=True).pairs
        3
        """
        return finished(self.evaluating(edges, **options))

    def evaluating(
        self,
        edges: Any,
        *,
        closure: bool = False,
        undirected: bool = False,
        known: Any = None,
        sources: int | None = None,
        draws: int = 50,
        seed: int = 0,
        device: torch.device | str | None = None,
    ) -> Generator[Progress, None, Evaluation]:
        """A generator that reports how many nodes are done; it returns an `Evaluation`.

        Args:
            edges: child and parent, by name, in anything that `hw.embed` takes.
            closure: use the transitive closure of the edges.
            undirected: use each edge in both directions.
            known: edges that are true as well; they are left out of the ranking.
            sources: how many nodes to evaluate, drawn at random; all by default.
            draws: samples per node, rounded up to a multiple of four.
            seed: random seed for both.
            device: where to compute; by default a GPU, if there is one.
        """
        device = the_device(device)
        pairs = self._pairs(edges, closure=closure, undirected=undirected)
        return evaluate(
            self.tangent.to(device),
            self._log_scale.to(device),
            self.kind,
            pairs,
            known=None if known is None else self._pairs(known),
            sources=None if sources is None else sample_of_sources(pairs, sources, seed),
            draws=draws,
            seed=seed,
        )

    def link_prediction(self, held_out: Any, known: Any, **options: Any) -> Evaluation:
        """How well edges that were not trained on are ranked: among all nodes except known parents.

        ``train, held_out = Hierarchy.split()`` makes such edges; ``known`` are those trained on.
        """
        return self.evaluate(held_out, known=known, **options)

    def hypernymy_direction(
        self, edges: Any, *, closure: bool = False, undirected: bool = False
    ) -> float:
        """The share of edges whose parent has the larger entropy: a half would be chance."""
        pairs = self._pairs(edges, closure=closure, undirected=undirected)
        among, place = pairs.unique(return_inverse=True)
        entropy = self._entropy(among)[place]
        return (entropy[:, 1] > entropy[:, 0]).double().mean().item()

    def _pairs(self, edges: Any, **options: bool) -> Tensor:
        """Edges ``(E, 2)`` as rows of this embedding."""
        h = graph(edges, **options)
        rows = np.fromiter((self._index.get(name, -1) for name in h.names), np.int64, len(h))
        strange = [h.names[node] for node in np.unique(h.edges) if rows[node] < 0]
        if strange:
            more = f" (and {len(strange) - 1:,} more)" if len(strange) > 1 else ""
            raise UserError(
                f"Expected edges between nodes of the embedding; {strange[0]!r}{more} is not one. "
                "Evaluate with edges between the nodes that were embedded."
            )
        return torch.from_numpy(rows[h.edges])

    # --- for other tools -------------------------------------------------------------------------

    def to_numpy(self, coordinates: Coordinates = "tangent") -> NDArray[np.float64]:
        """The centres, ``(N, n)``; on the ``hyperboloid`` ``(N, n+1)``, time first.

        ``tangent`` are vectors of any length; ``poincare`` is the unit ball.
        """
        return export.numpy(self, coordinates)

    def to_keyed_vectors(self) -> Any:
        """The centres for gensim: its ``PoincareKeyedVectors``, or ``KeyedVectors`` if Euclidean.

        Their distances are ours; the scales are lost.
        """
        return export.keyed_vectors(self)

    def to_parquet(self, path: str | PathLike[str]) -> None:
        """A table with one row per node: name, radius, entropy, scales and tangent vector."""
        export.parquet(self, Path(path))

    # --- on disk ---------------------------------------------------------------------------------

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Writes the folder; one that already holds such files only with ``overwrite=True``."""
        folder = Path(folder)
        there = [name for name in FILES if (folder / name).exists()]
        if there and not overwrite:
            raise UserError(
                f"Expected a new folder; {folder} holds {there[0]}. "
                "Choose another one, or save with overwrite=True."
            )
        own = {**asdict(self.kind), "dim": self.dim, "nodes": len(self)}
        write_whole(folder / "config.json", as_json(own | self.config | own))
        self.write(folder)

    def write(self, folder: Path) -> None:
        """The names, and last the tensors, into a folder that has its config."""
        names = _lines(self.names)
        write_whole(folder / "nodes.txt", names)
        tensors = {"tangent": self.tangent, "scale": self.scale, **_edge_tensors(self.hierarchy)}
        tril = self.kind.scale_tril(self.tangent, self.scale)
        tensors |= {} if tril is None else {"scale_tril": tril}
        if self.hierarchy is not None and self._relatives.ordered:
            tensors["probability"] = self._calibrated()
        # One text only: safetensors writes several in any order, and files should be reproducible.
        write_tensors(folder / "embedding.safetensors", tensors, {"nodes": _digest(names)})

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> "Embedding":
        """The embedding in a folder that `save` or ``hyperwrap embed`` wrote."""
        folder = Path(folder)
        _require_files(folder)
        config, (names, digest) = _read_config(folder), _read_names(folder)
        path = folder / "embedding.safetensors"
        tensors, about = read_tensors(path, "the tensors of an embedding", "Use another folder.")
        if about.get("nodes", digest) != digest:
            raise _not_whole(folder, "nodes.txt and embedding.safetensors do not belong together")
        if not {"tangent", "scale"} <= tensors.keys():
            raise _not_whole(folder, f"{path.name} belongs to something else")
        try:
            kind = config["geometry"], config["covariance"]
            more = config, _hierarchy(names, tensors), tensors.get("probability")
            return cls(names, tensors["tangent"], tensors["scale"], *kind, *more)
        except UserError as error:
            raise _not_whole(folder, f"its files do not belong together ({error})") from None


FILES = ("config.json", "nodes.txt", "embedding.safetensors")


def sample_of_sources(edges: Tensor, count: int, seed: int) -> Tensor:
    """This many children of edges ``(E, 2)``, or all if there are fewer, in increasing order."""
    children = edges[:, 0].unique()
    order = torch.randperm(len(children), generator=torch.Generator().manual_seed(seed))
    return children[order[: _at_least_1(count, "sources")].sort().values]


def _is_one(names: object) -> "TypeIs[Name]":
    return isinstance(names, str | int | np.integer)


def _by_child(parents: Mapping[Any, Names] | Iterable[tuple[Any, Name]]) -> dict[str, list[Name]]:
    """Names of children, and of the parents of each."""
    pairs = parents.items() if isinstance(parents, Mapping) else parents
    found: dict[str, list[Name]] = {}
    for child, above in pairs:
        if not _is_one(child):
            raise UserError(f"Expected the name of a new node; got {child!r}.")
        found.setdefault(str(child), []).extend(_listed(above))
    return found


def _listed(names: Names | None) -> Sequence[Name]:
    return [names] if _is_one(names) else [] if names is None else list(names)


def _at_least_1(number: int, name: str = "topn") -> int:
    if not isinstance(number, int | np.integer):
        raise UserError(f"Expected `{name}` a whole number; got {number!r}.")
    if number < 1:
        raise UserError(f"Expected `{name}` ≥ 1; got {number}.")
    return number


def _paired(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    if a.dim() and b.dim() and len(a) != len(b):
        raise UserError(
            f"Expected as many names in `a` as in `b`, or one; got {len(a)} and {len(b)}."
        )
    shape = torch.broadcast_shapes(a.shape, b.shape)
    return a.expand(shape), b.expand(shape)


def _kl(p: Distribution, q: Distribution, num_samples: int) -> KLEstimate:
    if isinstance(p, WrappedNormal):
        return estimate_kl(p, q, num_samples)
    exact = kl_divergence(p, q)
    return KLEstimate(exact, torch.zeros_like(exact))


def _checked_names(names: list[str], hierarchy: Hierarchy | None) -> list[str]:
    known = Hierarchy(names, []) if hierarchy is None else hierarchy  # which checks them
    if known.names != names:
        raise UserError("Expected a `hierarchy` over the names of the nodes, in the same order.")
    return known.names


def _checked(tangent: Tensor, scale: Tensor, nodes: int, kind: NodeType) -> tuple[Tensor, Tensor]:
    """Both on the CPU, or an error that says which is wrong."""
    if tangent.dim() != 2 or len(tangent) != nodes or tangent.shape[1] < 1:
        raise UserError(f"Expected `tangent` of shape ({nodes}, n); got {tuple(tangent.shape)}.")
    expected = (nodes, kind.columns(tangent.shape[1]))
    if tuple(scale.shape) != expected:
        raise UserError(f"Expected `scale` of shape {expected}; got {tuple(scale.shape)}.")
    tangent, scale = tangent.detach().cpu(), scale.detach().cpu()
    if not bool(torch.isfinite(tangent).all() and torch.isfinite(scale).all()):
        raise UserError("Expected finite `tangent` and `scale`; got NaN or inf.")
    if not kind.point and not bool((scale > 0).all()):
        raise UserError(f"Expected positive `scale`; got {scale.min().item():g}.")
    return tangent, scale


def _checked_calibration(calibration: Tensor | None) -> Tensor | None:
    if calibration is not None and calibration.shape != WEIGHTS:
        raise UserError(
            f"Expected `calibration` of shape {WEIGHTS}; got {tuple(calibration.shape)}."
        )
    return calibration


def _grown(relatives: Relatives, names: list[str], leaves: dict[int, list[int]]) -> Hierarchy:
    """With new leaves at the end; both ways where the edges have no direction."""
    old = relatives.hierarchy
    new = np.array([(leaf, parent) for leaf in leaves for parent in leaves[leaf]], np.int64)
    new = new.reshape(-1, 2)
    new = new if relatives.ordered or not len(old.edges) else np.concatenate([new, new[:, ::-1]])
    weights = old.weights
    if weights is not None:
        weights = np.concatenate([weights, np.ones(len(new), np.float32)])
    return Hierarchy([*old.names, *names], np.concatenate([old.edges, new]), weights)


# --- reading and writing a folder ----------------------------------------------------------------


def _edge_tensors(hierarchy: Hierarchy | None) -> dict[str, Tensor]:
    if hierarchy is None:
        return {}
    edges = {"edges": torch.from_numpy(hierarchy.edges).to(torch.int32)}
    weights = hierarchy.weights
    return edges if weights is None else edges | {"weights": torch.from_numpy(weights)}


def _hierarchy(names: list[str], tensors: Mapping[str, Tensor]) -> Hierarchy | None:
    """None in a folder from before edges were kept."""
    if "edges" not in tensors:
        return None
    weights = tensors.get("weights")
    return Hierarchy(names, tensors["edges"].numpy(), None if weights is None else weights.numpy())


def _not_whole(folder: Path, why: str) -> UserError:
    return UserError(
        f"Expected an embedding in {folder}; {why}. "
        "Use a folder that `hyperwrap embed` or `Embedding.save` wrote."
    )


def _require_files(folder: Path) -> None:
    if not folder.is_dir():
        raise _not_whole(folder, "it is a file" if folder.exists() else "there is no such folder")
    missing = [name for name in FILES if not (folder / name).is_file()]
    begun = (folder / "config.json").is_file() and (folder / "checkpoint.safetensors").is_file()
    if missing and begun:
        _read_config(folder)  # it may be a training of something else
        raise UserError(
            f"Expected an embedding in {folder}; its training has not finished. "
            "Resume it, with the same edges and options."
        )
    if missing:
        raise _not_whole(folder, f"it has no {missing[0]}")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _not_whole(path.parent, f"{path.name} cannot be read ({error.strerror})") from None


def _read_config(folder: Path) -> dict[str, Any]:
    content = _read(folder / "config.json")
    try:
        config = json.loads(content)
        node_type(config["geometry"], config["covariance"])
    except (ValueError, KeyError, TypeError, UserError):
        raise _not_whole(folder, "its config.json belongs to something else") from None
    return config


def _read_names(folder: Path) -> tuple[list[str], str]:
    """The lines of ``nodes.txt``, which only a line feed ends, and their digest."""
    content = _read(folder / "nodes.txt")
    try:
        *names, rest = content.decode().split("\n")
    except UnicodeDecodeError:
        raise _not_whole(folder, "its nodes.txt is not UTF-8 text") from None
    if rest:
        raise _not_whole(folder, "its nodes.txt is cut off")
    return names, _digest(content)


def _lines(names: Sequence[str]) -> bytes:
    try:
        return "".join(f"{name}\n" for name in names).encode()
    except UnicodeEncodeError as error:
        bad = error.object[error.start]
        raise UserError(f"Expected names that UTF-8 can hold; one has {bad!r} in it.") from None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
