"""`hw.embed`: from anybody's edges to an `Embedding`; a training that can be stopped and resumed.

With a folder, the training keeps there ``config.json`` (all that decides it), ``metrics.jsonl`` (a
line an epoch) and ``checkpoint.safetensors``, and at its end writes what `Embedding.load` reads.
Files hold no times: on a CPU a training that was killed and resumed leaves the bytes
of one that was not.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from json import JSONDecodeError, loads
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from hyperwrap import __version__
from hyperwrap.embedding.evaluate import evaluate
from hyperwrap.embedding.model import Embedding, sample_of_sources, the_device
from hyperwrap.embedding.recipe import Recipe
from hyperwrap.embedding.train import Kind, Trainer
from hyperwrap.errors import UserError
from hyperwrap.files import Metrics, as_json, write_whole
from hyperwrap.graphs.catalogue import graph
from hyperwrap.graphs.hierarchy import Hierarchy

__all__ = ["Fit", "Report", "embed"]

_SECONDS_BETWEEN_CHECKPOINTS = 5.0
_TIMES_AS_LONG = 50  # between checkpoints, as writing one takes
_LOOKS, _LOOK_DRAWS, _LOOK_SHARE = 10, 10, 0.04
# Measured on a CPU, in the time that it takes to score one candidate by one draw in an evaluation:
_CANDIDATE_COST, _SOURCE_COST = 5, 60_000  # of a candidate in training; of a node, whatever N is


@dataclass(frozen=True)
class Report:
    """How a training stands after an epoch."""

    epoch: int
    step: int
    loss: float
    """Mean over the epoch."""
    mean_average_precision: float | None
    """Of a sample of nodes, the same every time, when it was last looked at."""


def embed(
    edges: Any,
    dim: int = 5,
    geometry: Literal["hyperbolic", "euclidean"] = "hyperbolic",
    covariance: Literal["diagonal", "scalar", "none"] = "diagonal",
    *,
    closure: bool = False,
    undirected: bool = False,
    epochs: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    recipe: Recipe | None = None,
    folder: str | PathLike[str] | None = None,
    watch: Callable[[Report], None] = lambda report: None,
) -> Embedding:
    """Learns a distribution for every node, such that ``KL(child‖parent)`` is small (§4.2).

    Several roots, several parents a node, parts that do not hang together: all are fine.

    Args:
        edges: child and parent: the path of an edge list, a NetworkX graph, a frame, a sparse
            matrix, parent pointers, a list of pairs (see `data.edges.as_hierarchy`); or
            a name such as ``"wordnet-mammals"``, which stands for a closure (`graphs.KNOWN`).
        dim: the dimension ``n`` of the space.
        geometry: of the space.
        covariance: one standard deviation a direction, or one a node, or none: nodes are points.
        closure: train on the transitive closure, so that all ancestors are found, not only parents.
        undirected: train on each edge both ways.
        epochs: in place of the recipe's.
        seed: of all that is drawn at random; on a CPU the same seed gives the same embedding.
        device: where to train; a GPU, if there is one.
        recipe: how to train; what was measured to work best, if not given.
        folder: to keep the training in. One that was stopped goes on from there.
        watch: called with a `Report` after every epoch.

    >>> pairs = [("dog", "mammal"), ("cat", "mammal"), ("mammal", "animal"), ("bird", "animal")]
    >>> zoo = hw.embed(pairs, dim=2, closure=True)
    >>> sorted(match.name for match in zoo.ancestors("dog", topn=2))
    ['animal', 'mammal']
    """
    recipe = recipe or Recipe()
    fit = Fit(
        graph(edges, closure=closure, undirected=undirected),
        dim,
        Kind(geometry, covariance),
        recipe if epochs is None else recipe.lasting(epochs),
        seed=seed,
        device=device,
        folder=None if folder is None else Path(folder),
    )
    fit.claim(resume=True)
    for report in fit.run():
        watch(report)
    return fit.finish()


class Fit:
    """The training of one embedding: `claim` the folder, `run`, `finish`.

    Args:
        graph: nodes and edges.
        dim: the dimension of the space.
        kind: what a node is.
        recipe: how to train.
        seed: of everything random.
        device: where to train; a GPU, if there is one.
        folder: where the files go; without one there are none.
        about: more to put into ``config.json``.
    """

    def __init__(
        self,
        graph: Hierarchy,
        dim: int,
        kind: Kind,
        recipe: Recipe,
        *,
        seed: int = 0,
        device: torch.device | str | None = None,
        folder: Path | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        if dim < 1 or recipe.epochs < 1:
            raise UserError(f"Expected `dim` ≥ 1 and `epochs` ≥ 1; got {dim} and {recipe.epochs}.")
        self.graph, self.dim, self.kind, self.recipe, self.seed = graph, dim, kind, recipe, seed
        self.device, self.folder = the_device(device), folder
        self.about = dict(about or {})

    @cached_property
    def edges(self) -> Tensor:
        return torch.tensor(self.graph.edges)

    # --- the folder ------------------------------------------------------------------------------

    @cached_property
    def config(self) -> dict[str, Any]:
        """All that decides the training, and what is said about it."""
        return {
            **asdict(self.kind),
            "dim": self.dim,
            "nodes": len(self.graph),
            "edges": len(self.graph.edges),
            "sha256": _digest(self.graph),
            "seed": self.seed,
            "device": self.device.type,
            "recipe": _finite(asdict(self.recipe)),
            "hyperwrap": __version__,
            **self.about,
        }

    def claim(self, *, resume: bool) -> None:
        """Makes the folder one of this training; what somebody else has there stays."""
        if self.folder is None:
            return
        there = _visible(self.folder)
        if resume and "config.json" in there:
            _require_same(self.config, self.folder)
        elif there:
            advice = "Go on with it by --resume" if _is_training(self.folder) else "Empty it"
            raise UserError(
                f"Expected a new or empty folder; {self.folder} holds {there[0]}. "
                f"{advice}, or choose another folder."
            )
        else:
            write_whole(self.folder / "config.json", as_json(self.config))

    # --- the training ----------------------------------------------------------------------------

    @cached_property
    def trainer(self) -> Trainer:
        """Made when it is first needed: it may find a checkpoint in the folder."""
        weights = self.graph.weights
        return Trainer(
            self.edges,
            len(self.graph),
            self.dim,
            self.kind,
            self.recipe,
            weights=None if weights is None else torch.tensor(weights),
            seed=self.seed,
            device=self.device,
            folder=self.folder,
        )

    def run(self) -> Iterator[Report]:
        """Trains to the end, with a report after every epoch; checkpoints by the clock."""
        precision, due = self._last_look(), time.monotonic() + _SECONDS_BETWEEN_CHECKPOINTS
        for progress in self.trainer.run(save_every=self.recipe.epochs):
            if progress.epoch % self._look_every == 0 or progress.epoch == self.recipe.epochs:
                precision = self._look()
            report = Report(progress.epoch, progress.step, progress.loss[0], precision)
            self._keep(report)
            if self.folder is not None and time.monotonic() >= due:
                due = self._save()
            yield report

    def _save(self) -> float:
        """Writes a checkpoint; returns when the next is due, so that they take little time."""
        start = time.monotonic()
        self.trainer.save()
        now = time.monotonic()
        return now + max(_SECONDS_BETWEEN_CHECKPOINTS, _TIMES_AS_LONG * (now - start))

    @property
    def _metrics(self) -> Metrics | None:
        return None if self.folder is None else Metrics(self.folder / "metrics.jsonl")

    def _keep(self, report: Report) -> None:
        if self._metrics is not None:
            self._metrics.append(asdict(report))

    def _last_look(self) -> float | None:
        """What a training that goes on knew; lines after its checkpoint are forgotten."""
        if self._metrics is None:
            return None
        self._metrics.rewind(self.trainer.step)
        lines = self._metrics.path.read_text().splitlines() if self._metrics.path.exists() else []
        return loads(lines[-1])["mean_average_precision"] if lines else None

    # --- looking at it ---------------------------------------------------------------------------

    @property
    def _look_every(self) -> int:
        return max(1, self.recipe.epochs // _LOOKS)

    @cached_property
    def sample(self) -> Tensor:
        """As many nodes as take a small share of the time, but at least 10 and at most 500."""
        candidates = 1 + max(self.trainer.negatives, self.recipe.draws)
        training = _CANDIDATE_COST * len(self.edges) * candidates * self._look_every
        count = int(_LOOK_SHARE * training / (_LOOK_DRAWS * len(self.graph) + _SOURCE_COST))
        return sample_of_sources(self.edges, min(max(count, 10), 500), seed=0)

    def _look(self) -> float:
        t = self.trainer
        found = evaluate(
            t.h, t.log_scale, self.kind, self.edges, sources=self.sample, draws=_LOOK_DRAWS
        )
        return found.mean_average_precision

    # --- the end ---------------------------------------------------------------------------------

    def finish(self) -> Embedding:
        """The embedding, written to the folder if there is one."""
        t, points = self.trainer, self.kind.covariance == "none"
        scale = torch.zeros_like(t.log_scale) if points else t.log_scale.exp()
        kind = self.kind.geometry, self.kind.covariance
        embedding = Embedding(self.graph.names, t.h, scale, *kind, self.config)
        if self.folder is not None:
            embedding.write(self.folder)
        return embedding


def _digest(graph: Hierarchy) -> str:
    """Of names, edges and weights."""
    digest = hashlib.sha256("\n".join(graph.names).encode(errors="surrogatepass"))
    digest.update(graph.edges.tobytes())
    if graph.weights is not None:
        digest.update(graph.weights.tobytes())
    return digest.hexdigest()


def _finite(x: Any) -> Any:
    """For JSON, which knows no infinity: None stands for it."""
    if isinstance(x, dict):
        return {name: _finite(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [_finite(value) for value in x]
    return None if isinstance(x, float) and not isfinite(x) else x


def _visible(folder: Path) -> list[str]:
    """What is in the folder, but hidden files: a write that was killed leaves one."""
    try:
        return sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(
            f"Expected a folder in {folder}; it is none ({error.strerror}). Choose another one."
        ) from None


def _found_config(folder: Path) -> dict[str, Any]:
    """The config of a training, or nothing."""
    try:
        found = loads((folder / "config.json").read_bytes())
    except (OSError, JSONDecodeError, UnicodeDecodeError):
        return {}
    training = isinstance(found, dict) and isinstance(found.get("recipe"), dict)
    return found if training else {}


def _is_training(folder: Path) -> bool:
    return bool(_found_config(folder))


def _decisive(config: Mapping[str, Any]) -> dict[str, Any]:
    names = ("geometry", "covariance", "dim", "seed", "device", "nodes", "edges")
    return {name: config.get(name) for name in names} | config["recipe"]


def _require_same(config: Mapping[str, Any], folder: Path) -> None:
    """Raises a `UserError` if the training in the folder is of other edges or options."""
    found = _found_config(folder)
    if not found:
        raise UserError(
            f"Expected the training of an embedding in {folder}; its config.json is of something "
            "else. Choose another folder."
        )
    there, here = _decisive(found), _decisive(config)
    for name in here:
        if there.get(name) != here[name]:
            raise UserError(
                f"Expected the options of the training in {folder}; {name} is {there.get(name)} "
                f"there and {here[name]} here. Take the same, or another folder."
            )
    if found.get("sha256") != config["sha256"]:
        raise UserError(
            f"Expected the edges of the training in {folder}; these are others. "
            "Take the same, or another folder."
        )
