"""`hw.embed`: from edges to an `Embedding`, by training that can be stopped and resumed.

With a folder, training keeps there ``config.json`` (all that decides it), ``metrics.jsonl``
(one line per epoch) and ``checkpoint.safetensors``, and at its end writes what `Embedding.load`
reads.
"""

import hashlib
import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict
from math import inf
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hyperwrap import __version__
from hyperwrap.embedding.evaluate import evaluate
from hyperwrap.embedding.layout import Layout, layout
from hyperwrap.embedding.model import Embedding, sample_of_sources
from hyperwrap.embedding.nodes import Covariance, Geometry, NodeType, node_type
from hyperwrap.embedding.recipe import Recipe
from hyperwrap.embedding.train import EmbeddingTask
from hyperwrap.errors import UserError
from hyperwrap.files import as_json
from hyperwrap.graphs.catalogue import graph
from hyperwrap.graphs.forest import is_symmetric
from hyperwrap.graphs.hierarchy import CycleError, Hierarchy
from hyperwrap.runs import Run, read_config
from hyperwrap.training import Loop, Progress, finished, the_device

__all__ = ["affordable", "embed", "fitting"]

_SAVE_EVERY = 5.0  # seconds
_MANY_DIMENSIONS, _MANY_EPOCHS = 4, 100  # with both, Gaussians start near the origin
_LOOKS, _LOOK_DRAWS, _LOOK_SHARE = 10, 10, 0.04
# Measured on a CPU, in the time that it takes to score one candidate by one draw in an evaluation:
_CANDIDATE_COST, _SOURCE_COST = 5, 60_000  # of a candidate in training; of a node, whatever N is
_FEWER = 20  # times as few energies decide the ranks
_CPU_SCORES = 4e9  # times (n + 2), in about two minutes on two cores


def embed(
    edges: Any,
    dim: int = 2,
    geometry: Geometry = "hyperbolic",
    covariance: Covariance = "diagonal",
    *,
    closure: bool = False,
    undirected: bool = False,
    epochs: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    recipe: Recipe | None = None,
    folder: str | PathLike[str] | None = None,
    resume: bool = False,
    watch: Callable[[Progress], object] = lambda progress: None,
) -> Embedding:
    """Learns a distribution for every node, such that ``KL(child‖parent)`` is small (§4.2).

    Several roots, several parents per node, disconnected parts: all are fine.

    Args:
        edges: child and parent: the path of an edge list, a NetworkX graph, a frame, a sparse
            matrix, parent pointers, a list of pairs (see `graphs.as_hierarchy`); or
            a name such as ``"wordnet-mammals"``, which stands for a closure (`graphs.KNOWN`).
        dim: the dimension ``n`` of the space.
        geometry: ``hyperbolic`` or ``euclidean`` space.
        covariance: ``diagonal``, one standard deviation per direction; ``scalar``, one per node;
            ``radial``, one along the ray from the origin and one across it; or ``none``, nodes are
            points.
        closure: train on the transitive closure, so that all ancestors are found, not only parents.
        undirected: train on each edge both ways.
        epochs: the number of passes over all edges, in place of the recipe's. With 0 nodes are laid
            out and not trained. Without it a CPU gets as many as it does in about two minutes.
        seconds: train for about so long, in place of a number of epochs; a run that is resumed ends
            after as many as it was begun with.
        seed: random seed; on a CPU the same seed gives the same embedding.
        device: where to train; by default a GPU, if there is one.
        recipe: how to train; by default what was found to work best for this kind of node.
        folder: a new or empty folder to keep the training in.
        resume: continue the training in the folder, if there is one.
        watch: called after every epoch with its `training.Progress`: the loss and, ten times in
            all, the MAP of a sample of nodes.

    >>> pairs = [("dog", "mammal"), ("cat", "mammal"), ("mammal", "animal"), ("bird", "animal")]
    >>> zoo = hw.embed(pairs, dim=2, closure=True, epochs=50)
    >>> sorted(match.name for match in zoo.ancestors("dog", topn=2))
    ['animal', 'mammal']
    """
    kind = node_type(geometry, covariance)
    if epochs is not None and seconds is not None:
        raise UserError(f"Expected `epochs` or `seconds`; got both, {epochs} and {seconds}.")
    _require_times(epochs, seconds)
    found = graph(edges, closure=closure, undirected=undirected)
    own, where = recipe or kind.recipe, the_device(device)
    epochs = own.epochs if epochs is None and recipe is not None else epochs
    own = own.lasting(affordable(own, found, dim, where) if epochs is None else epochs)
    options: dict[str, Any] = {"seed": seed, "device": where, "folder": folder, "resume": resume}
    return finished(fitting(found, dim, kind, own, seconds=seconds, **options), watch)


def affordable(recipe: Recipe, graph: Hierarchy, dim: int, device: torch.device) -> int:
    """The recipe's epochs, or on a CPU as many as it does in about two minutes."""
    if device.type != "cpu":
        return recipe.epochs
    scores = len(graph.edges) * (1 + max(recipe.negatives, recipe.draws)) * (dim + 2)
    return max(1, min(recipe.epochs, int(_CPU_SCORES / max(1, scores))))


def fitting(
    graph: Hierarchy,
    dim: int,
    kind: NodeType,
    recipe: Recipe,
    *,
    seconds: float | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    folder: str | PathLike[str] | None = None,
    resume: bool = False,
    about: Mapping[str, Any] | None = None,
) -> Generator[Progress, None, Embedding]:
    """Trains an embedding, with a report after every epoch, and returns it.

    What began from a layout ends as it was when the MAP of some nodes was best, so never worse than
    the layout. Ctrl-C ends with the best so far; with a folder that is written, and the interrupt
    goes on.

    Args:
        graph: nodes and edges.
        dim: the dimension of the space.
        kind: what a node is.
        recipe: how to train.
        seconds: train for about so long, in place of the recipe's epochs.
        seed: random seed.
        device: where to train; by default a GPU, if there is one.
        folder: where the files go; without one there are none.
        resume: continue the training in the folder, if there is one.
        about: more for ``config.json``.
    """
    if dim < 1 or recipe.epochs < 0:
        raise UserError(f"Expected `dim` ≥ 1 and `epochs` ≥ 0; got {dim} and {recipe.epochs}.")
    _require_times(recipe.epochs, seconds)
    start, where = _start(graph, dim, kind, recipe), the_device(device)
    if seconds is not None and recipe.epochs:
        begun = _epochs_of(folder) if resume else None
        timed = begun or _epochs_in(seconds, graph, dim, kind, recipe, start, where)
        recipe = recipe.lasting(timed)
    config = _config(graph, dim, kind, recipe, seed)
    config["device"] = where.type
    if folder is not None:
        about = {"hyperwrap": __version__, **(about or {})}
        Run(folder, "hyperwrap embed", config, resume=resume, about=about)
    interrupt = None
    if start is not None and recipe.epochs == 0:
        tangent, scale = start.tangent, start.scale.expand(-1, kind.columns(dim)).contiguous()
    else:
        loop = _loop(graph, dim, kind, recipe, start, seed, where, folder)
        try:
            yield from loop.run(_SAVE_EVERY)
        except (KeyboardInterrupt, GeneratorExit) as stopped:
            interrupt = stopped
        loop.best.restore()
        tangent, scale = loop.task.h, loop.task.log_scale.exp()
    scale = torch.zeros_like(scale) if kind.point else scale
    own = kind.geometry, kind.covariance
    config |= dict(about or {})
    embedding = Embedding(graph.names, tangent, scale, *own, config, graph.direct)
    if folder is not None:
        embedding.write(Path(folder))
        if interrupt is not None:
            raise interrupt
    return embedding


def _require_times(epochs: int | None, seconds: float | None) -> None:
    if epochs is not None and not isinstance(epochs, Integral):
        raise UserError(f"Expected `epochs` a whole number; got {epochs!r}.")
    if seconds is not None and not 0 < seconds < inf:
        raise UserError(f"Expected `seconds` > 0 and finite; got {seconds!r}.")


def _epochs_of(folder: str | PathLike[str] | None) -> int | None:
    """For how many epochs a run that is there was begun; how many fit differs from time to time."""
    found = {} if folder is None else read_config(Path(folder))
    return found.get("recipe", {}).get("epochs")


def _epochs_in(
    seconds: float,
    graph: Hierarchy,
    dim: int,
    kind: NodeType,
    recipe: Recipe,
    start: Layout | None,
    device: torch.device,
) -> int:
    """How many epochs fit, from the time that some steps take."""
    trial = EmbeddingTask(
        torch.tensor(graph.edges), len(graph), dim, kind, recipe, start=start, device=device
    )
    return max(1, int(seconds / trial.seconds()))


def _start(graph: Hierarchy, dim: int, kind: NodeType, recipe: Recipe) -> Layout | None:
    """The construction, where it is all that is wanted, or where training is best begun from it.

    It lies in a plane. Gaussians that have more dimensions, and time, find more room from near the
    origin; so do points of a graph that is no hierarchy. In Euclidean space training does it harm.
    """
    if recipe.epochs == 0:
        return layout(graph, dim, kind)
    room = dim >= _MANY_DIMENSIONS and recipe.epochs >= _MANY_EPOCHS and not kind.point
    if not kind.hyperbolic or dim < 2 or room or (kind.point and is_symmetric(graph)):
        return None
    try:
        return layout(graph, dim, kind)
    except CycleError:  # no levels
        return None


def _loop(
    graph: Hierarchy,
    dim: int,
    kind: NodeType,
    recipe: Recipe,
    start: Layout | None,
    seed: int,
    device: torch.device,
    folder: str | PathLike[str] | None,
) -> "Loop[EmbeddingTask]":
    weights = None if graph.weights is None else torch.tensor(graph.weights)
    edges, options = torch.tensor(graph.edges), {"weights": weights, "start": start, "seed": seed}
    task = EmbeddingTask(edges, len(graph), dim, kind, recipe, device=device, **options)
    _look_at(task, edges)
    task.score = None if start is None else "MAP"
    loop = Loop(task, seed=seed, device=device, folder=folder)
    if start is not None and task.step == 0 and task.look is not None:
        loop.best.offer([task.look()["MAP"]], 0)
    return loop


def _config(
    graph: Hierarchy, dim: int, kind: NodeType, recipe: Recipe, seed: int
) -> dict[str, Any]:
    """Everything that decides the training, except the device."""
    digest = hashlib.sha256("\n".join(graph.names).encode(errors="surrogatepass"))
    digest.update(graph.edges.tobytes())
    if graph.weights is not None:
        digest.update(graph.weights.tobytes())
    config = {
        **asdict(kind),
        "dim": dim,
        "nodes": len(graph),
        "edges": len(graph.edges),
        "sha256": digest.hexdigest(),
        "seed": seed,
        "recipe": asdict(recipe),
    }
    return json.loads(as_json(config))


# --- looking at it while it trains ---------------------------------------------------------------


def _look_at(task: EmbeddingTask, edges: Tensor) -> None:
    """Adds to the reports the MAP of some nodes, the same ones every time."""
    task.look_every = max(1, task.steps // _LOOKS)
    sample = sample_of_sources(edges, _sample_size(task, len(edges)), seed=0)

    def look() -> dict[str, float]:
        found = evaluate(
            task.h, task.log_scale, task.kind, edges, sources=sample, draws=_LOOK_DRAWS
        )
        return {"MAP": finished(found).mean_average_precision}

    task.look = look


def _sample_size(task: EmbeddingTask, edges: int) -> int:
    """As many nodes as take a small share of the time, but at least 10 and at most 500."""
    candidates = 1 + max(task.negatives, task.recipe.draws)
    training = _CANDIDATE_COST * edges * candidates * task.look_every
    count = int(_LOOK_SHARE * training / (_LOOK_DRAWS * task.nodes / _FEWER + _SOURCE_COST))
    return min(max(count, 10), 500)
