"""Hierarchies on the disc: nodes, edges as geodesics, names that do not overlap."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, nsmallest
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from hyperwrap import lorentz
from hyperwrap.embedding import Embedding, embed
from hyperwrap.embedding.layout import Tree
from hyperwrap.graphs.hierarchy import Hierarchy
from hyperwrap.plot.geometry import Array, ChartName, axes, chart_of, geodesic
from hyperwrap.plot.scatter import points
from hyperwrap.plot.style import KINDS, outlined, style

__all__ = ["embedding", "labels", "tree"]


def embedding(
    e: Embedding,
    ax: Axes | None = None,
    *,
    labels: int | Sequence[str] = 12,
    color: Any = "depth",
    edges: bool = True,
    chart: ChartName = "native",
) -> Axes:
    """Draws an embedding in two dimensions: nodes, edges as geodesics, names.

    Args:
        e: an embedding with ``n = 2``.
        ax: axes to draw on; new ones by default.
        labels: how many names to write, those with the most descendants first, or which.
        color: ``depth``, ``branch`` (the large subtree that a node is in), ``radius``,
            ``entropy``, or what `points` takes.
        edges: whether to draw the edges, where the embedding knows them.
        chart: ``native``, which shows all levels, ``poincare``, ``klein`` or ``halfspace``.

    >>> pets = hw.embed({"puppy": "dog", "dog": "animal", "cat": "animal"}, dim=2, epochs=0)
    >>> ax = hw.plot.embedding(pets, color="branch")
    >>> sorted(text.get_text() for text in ax.texts)
    ['animal', 'cat', 'dog', 'puppy']
    """
    if e.dim != 2 or e.kind.geometry != "hyperbolic":
        raise ValueError(
            f"Expected a hyperbolic embedding in two dimensions; got {e!r}. "
            "Embed with dim=2 to draw it."
        )
    x = lorentz.exp0(e.tangent.double())
    h = None if e.hierarchy is None else e.hierarchy.direct
    if edges and h is not None:
        child, parent = h.edges.T
        width = float(np.clip(200 / len(h.edges), 0.1, 0.7))
        alpha = 0.8 if len(h.edges) < 20_000 else 0.25
        ax = geodesic(x[parent], x[child], ax, chart=chart, linewidth=width, alpha=alpha)
    size = np.clip(3000 / len(e), 0.3, 22)
    shown, title = _colours(e, h, color)
    ax = points(x, ax, color=shown, chart=chart, size=size, label=title)
    order = _most_general(e, h)
    chosen = order[:labels] if isinstance(labels, int) else e.nodes(list(labels)).numpy()
    _write(ax, chart_of(chart).to(x[chosen]).numpy(), [_short(e.names[i]) for i in chosen])
    return ax


def tree(edges: Any, ax: Axes | None = None, **look: Any) -> Axes:
    """Draws a hierarchy: constructs its embedding in two dimensions and draws that.

    Args:
        edges: what `hw.embed` takes: a file, pairs, a dictionary, a data frame, a graph …
        ax: axes to draw on; new ones by default.
        look: keywords of `embedding`.

    >>> ax = hw.plot.tree({"puppy": "dog", "dog": "animal", "cat": "animal"})
    """
    return embedding(embed(edges, dim=2, epochs=0), ax, **look)


def labels(x: Any, names: Sequence[str], ax: Axes, *, chart: ChartName = "poincare") -> Axes:
    """Writes names beside points ``(N, 3)``, without those that would cover one before them."""
    ax = axes(ax, chart=chart)
    _write(ax, chart_of(chart).to(x).numpy(), names)
    return ax


def _write(ax: Axes, places: Array, names: Sequence[str]) -> None:
    taken: list[Bbox] = []
    with style():
        for (x, y), name in zip(places, names, strict=True):
            text = ax.annotate(
                name, (x, y), xytext=(3, 2), textcoords="offset points", fontsize=7.5, zorder=6,
                annotation_clip=False, **outlined(2.2, "white"),
            )  # fmt: skip
            box = text.get_window_extent()
            if any(box.overlaps(other) for other in taken):
                text.remove()
            else:
                taken.append(box)


def _short(name: str) -> str:
    """A synset's name without its part of speech and sense."""
    word, dot, sense = name.partition(".n.")
    return word.replace("_", " ") if dot and sense.isdigit() else name


def _most_general(e: Embedding, h: Hierarchy | None) -> NDArray[np.int64]:
    """Nodes with the most descendants first; without a hierarchy, those next to the origin."""
    near = e.radius().numpy()
    return np.argsort(near, kind="stable") if h is None else np.lexsort((near, -Tree.of(h).size))


def _branches(h: Hierarchy) -> list[str]:
    """For each node the large subtree that it is in, by name: the largest is split until there are
    as many as there are colours.
    """
    tree, kinds = Tree.of(h), len(KINDS) - 1
    top = np.full(len(h), -1)
    subtrees = [(-int(tree.size[i]), int(i)) for i in tree.levels[0]]
    below = np.argsort(tree.parent, kind="stable")
    first = np.searchsorted(tree.parent[below], np.arange(len(h)))
    heapify(subtrees)
    while len(subtrees) < kinds and tree.children[subtrees[0][1]]:
        node = heappop(subtrees)[1]
        for child in below[first[node] : first[node] + tree.children[node]].tolist():
            heappush(subtrees, (-int(tree.size[child]), child))
    largest = [node for _, node in nsmallest(kinds, subtrees)]
    top[largest] = largest
    for nodes in tree.levels[1:]:
        top[nodes] = np.where(top[nodes] < 0, top[tree.parent[nodes]], top[nodes])
    named = {i: _short(h.names[i]) for i in largest}
    return [named.get(i, "other") for i in top.tolist()]


def _colours(e: Embedding, h: Hierarchy | None, color: Any) -> tuple[Any, str | None]:
    """What `points` is to colour by, and what it is called."""
    if not isinstance(color, str) or color not in ("depth", "branch", "radius", "entropy"):
        return color, None
    if color in ("depth", "branch") and h is None:
        color = "radius"
    if h is not None and color == "branch":
        return _branches(h), None
    if h is not None and color == "depth":
        return h.depths(), "depth"
    return (e.radius() if color == "radius" else e.entropy()).numpy(), color
