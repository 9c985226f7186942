r"""Training an embedding: batches, the schedule, checkpoints.

An epoch is a permutation of the edges, cut into batches, and batches into groups that share their
negatives. Several *copies* of the graph train in one program, each with its own start, order and
noise: they are one graph of disconnected parts, whose negatives are drawn from the own part.

A few dozen steps make a *block*: its random numbers are drawn at once, and on a GPU its kernels are
one captured graph, replayed. A checkpoint is written between epochs and holds everything the next
one depends on, the state of the generator included; on CPU a resumed training ends with the bits
of one that was never stopped.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import isfinite, log
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from hyperwrap.embedding import objective
from hyperwrap.embedding.known import Known
from hyperwrap.embedding.objective import LAWS, Gradient, Law, Nodes
from hyperwrap.embedding.optimisers import AdaGrad, Adam, Optimiser
from hyperwrap.embedding.recipe import Recipe
from hyperwrap.embedding.spaces import SPACES, Space
from hyperwrap.errors import DivergedError, UserError
from hyperwrap.files import read_tensors, write_tensors

if TYPE_CHECKING:
    from hyperwrap.embedding.gpu import Kernels

__all__ = ["Kind", "Progress", "Trainer"]

_BLOCK = 32  # steps
_LEAST_STEPS = 6  # of an epoch: a small graph gets smaller batches
_LEAST_NODES, _LEAST_NEGATIVES = 16, 16  # nodes for each negative: a small graph gets fewer
_TILE = 2**19  # coordinates worked on at once on a CPU: what its caches hold, and no less


@dataclass(frozen=True)
class Kind:
    """What a node is."""

    geometry: Literal["hyperbolic", "euclidean"] = "hyperbolic"
    covariance: Literal["diagonal", "scalar", "none"] = "diagonal"
    """``none`` makes nodes points, scored by distance."""

    def __post_init__(self) -> None:
        if self.geometry not in SPACES:
            raise UserError(f"Expected `geometry` hyperbolic or euclidean; got {self.geometry!r}.")
        if self.covariance not in ("diagonal", "scalar", "none"):
            raise UserError(
                f"Expected `covariance` diagonal, scalar or none; got {self.covariance!r}."
            )

    @property
    def space(self) -> Space:
        return SPACES[self.geometry]

    @property
    def law(self) -> Law:
        return LAWS["point" if self.covariance == "none" else "gaussian"]

    def columns(self, dim: int) -> int:
        """How many scales a node has."""
        return dim if self.covariance == "diagonal" else 1


@dataclass(frozen=True)
class Progress:
    """After an epoch: the mean loss of each copy over it."""

    epoch: int
    step: int
    loss: list[float]


class _Block(NamedTuple):
    """The batches of some steps, one a row."""

    edges: Tensor  # (T, 2, G, e)
    negatives: Tensor  # (T, G, k), or (T, G·e) for the hinge
    noise: Tensor  # (T, draws, n), draws = samples · G · e
    weight: Tensor  # (T, G, e)
    rates: Tensor  # (T, r)
    loss: Tensor  # (T, G, e), filled


class Trainer:
    """Trains the nodes of a graph with edges ``(E, 2)``, child and parent, among ``nodes`` nodes.

    ``h`` ``(copies·nodes, n)`` and ``log_scale`` are what is learned. With a ``folder`` there is a
    checkpoint in it, from which an earlier training with the same settings goes on.
    """

    def __init__(
        self,
        edges: Tensor,
        nodes: int,
        dim: int,
        kind: Kind = Kind(),  # noqa: B008
        recipe: Recipe = Recipe(),  # noqa: B008
        *,
        weights: Tensor | None = None,
        seed: int = 0,
        copies: int = 1,
        device: torch.device | str = "cpu",
        folder: Path | None = None,
    ) -> None:
        self.kind, self.recipe, self.nodes, self.dim, self.copies = kind, recipe, nodes, dim, copies
        self.device, self.folder = torch.device(device), folder
        self._kernels = self._gpu_kernels()
        if len(edges) < 1 or dim < 1:
            raise UserError(f"Expected edges and `dim` ≥ 1; got {len(edges)} edges, dim {dim}.")
        more = {"seed": seed, "copies": copies, "device": self.device.type}
        self._identity = _identity(edges, weights, nodes, dim, kind, recipe, more)
        self._plan(len(edges))
        index = torch.int32 if self._kernels else torch.int64
        self._edges = edges.to(self.device, index)
        self._parents = self._edges[:, 1].unique()
        self._known = Known(self._edges, nodes)
        self._weights = None if weights is None else weights.to(self.device, torch.float32)
        self._random = torch.Generator(self.device).manual_seed(seed)
        self._start()
        self._grad = Gradient(self.h, self.log_scale)
        self.optimiser = self._optimiser()
        self.epoch = self.step = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        if folder is not None and self._path.exists():
            self._resume()

    def _gpu_kernels(self) -> "Kernels | None":
        if self.device.type != "cuda":
            return None
        from hyperwrap.embedding.gpu import Kernels

        return Kernels(self.kind)

    def _plan(self, edges: int) -> None:
        """How an epoch is cut: ``blocks`` of ``steps`` steps of ``groups`` groups a copy."""
        r = self.recipe
        batch = max(1, min(r.batch, edges // _LEAST_STEPS))
        self.group = 2 ** min(r.group, batch).bit_length() // 2  # a power of 2, for the kernels
        self.groups = batch // self.group
        self.negatives = min(r.negatives, max(_LEAST_NEGATIVES, self.nodes // _LEAST_NODES))
        steps = max(1, edges // (self.groups * self.group))
        lengths = range(min(steps, _BLOCK // 2), min(steps, 2 * _BLOCK) + 1)
        self.steps = max(lengths, key=lambda length: steps // length * length)
        self.blocks = steps // self.steps

    def _start(self) -> None:
        r, rows = self.recipe, self.copies * self.nodes
        self.h = r.initial_spread * self._randn(rows, self.dim)
        shape = (rows, self.kind.columns(self.dim))
        self.log_scale = torch.full(shape, log(r.initial_scale), device=self.device)

    def _optimiser(self) -> Optimiser:
        space, kernels = self.kind.space, self._kernels
        if self.recipe.objective == "hinge":
            return AdaGrad(space, kernels, self.h, self.log_scale, self.recipe)
        return Adam(space, kernels, self.h, self.log_scale, self.recipe)

    # --- the loop -------------------------------------------------------------------------------

    @property
    def steps_in_epoch(self) -> int:
        return self.blocks * self.steps

    def run(self, save_every: int = 10) -> Iterator[Progress]:
        """Trains to the end, yielding a report after every epoch."""
        while self.epoch < self.recipe.epochs:
            yield self._one_epoch()
            last = self.epoch == self.recipe.epochs
            if self.folder is not None and (last or self.epoch % save_every == 0):
                self.save()
        self._require_finite()

    def _one_epoch(self) -> Progress:
        size = self.blocks * self.steps * self.groups * self.group
        order = torch.stack([self._randperm(size) for _ in range(self.copies)])
        order = order.view(self.copies, self.blocks, self.steps, self.groups, self.group)
        losses = [self._run(self._block(order[:, b])) for b in range(self.blocks)]
        self.epoch += 1
        loss = torch.stack(losses).mean(0).tolist()
        if not all(map(isfinite, loss)):
            raise DivergedError(
                f"Expected a finite loss; epoch {self.epoch} gave {loss}.",
                self._checkpoint,
            )
        return Progress(self.epoch, self.step, loss)

    def _block(self, order: Tensor) -> _Block:
        """The batches of a block from positions ``(copies, T, groups, group)`` of edges."""
        r, n = self.recipe, self.dim
        order = order.movedim(0, 1)  # (T, copies, groups, group)
        steps, total = self.steps, self.copies * self.groups
        first = self.nodes * torch.arange(self.copies, device=self.device).view(1, -1, 1, 1)
        edges = self._edges[order].movedim(-1, 1) + first.unsqueeze(1).to(self._edges.dtype)
        each = self.group if r.objective == "hinge" else self.negatives
        negatives = self._negatives((steps, self.copies, self.groups), each)
        negatives = negatives + first.to(self._edges.dtype)
        draws = r.draws if r.objective == "hinge" else 1
        noise = self._randn(steps, draws * total * self.group, n)
        ones = torch.ones(order.shape, device=self.device)
        weight = ones if self._weights is None else self._weights[order]
        rates = [self._rates(self.step + 1 + t) for t in range(steps)]
        return _Block(  # contiguous, as the kernels expect
            edges.reshape(steps, 2, total, self.group).contiguous(),
            negatives.view(steps, total, each),
            noise,
            weight.reshape(steps, total, self.group).contiguous(),
            torch.tensor(rates, device=self.device),
            torch.zeros(steps, total, self.group, device=self.device),
        )

    def _negatives(self, shape: tuple[int, ...], each: int) -> Tensor:
        """``(*shape, each)``: parents first, as many as the recipe says, then any nodes."""
        parents = round(self.recipe.parent_negatives * each)
        hard = self._parents[self._randint(len(self._parents), (*shape, parents)).long()]
        return torch.cat([hard, self._randint(self.nodes, (*shape, each - parents))], -1)

    def _rates(self, step: int) -> list[float]:
        r = self.recipe
        all_steps = r.epochs * self.steps_in_epoch
        fraction = 1 - (step - 1) / all_steps if r.decay else 1.0
        if step <= r.burn_in * self.steps_in_epoch:
            fraction *= r.burn_in_factor
        return self.optimiser.rates(r, step, fraction)

    def _run(self, block: _Block) -> Tensor:
        """The steps of a block; the mean loss of each copy."""
        if self._kernels is None:
            for t in range(self.steps):
                self._one_step(block, t)
        else:
            self._replay(block)
            block = self._static
        self.step += self.steps
        return block.loss.view(self.steps, self.copies, -1).mean((0, 2))

    def _one_step(self, block: _Block, t: int) -> None:
        inputs = (block.edges[t], block.negatives[t], block.noise[t], block.weight[t])
        if self._kernels is not None:
            self._kernels.gradient(
                self.recipe, self.h, self.log_scale, *inputs, self._known, self._grad, block.loss[t]
            )
        else:
            block.loss[t] = self._gradient(*inputs)
        self.optimiser.update(self.h, self.log_scale, self._grad, block.rates[t])

    def _gradient(self, edges: Tensor, negatives: Tensor, noise: Tensor, weight: Tensor) -> Tensor:
        r, space, law = self.recipe, self.kind.space, self.kind.law
        nodes = Nodes(space.centres(self.h.T.contiguous()), self.log_scale.T.contiguous())
        noise = noise.T.contiguous()
        if r.objective == "hinge":
            loss = objective.hinge(
                space, law, nodes, edges.flatten(1), negatives.flatten(),
                noise.unflatten(1, (r.draws, -1)), weight.flatten(), r.margin, self._grad,
            )  # fmt: skip
            return loss.view_as(weight)
        noise = noise.unflatten(1, tuple(weight.shape))
        some = max(1, _TILE // (self.group * self.negatives * self.dim))
        losses = [
            objective.softmax(space, law, nodes, *part, self._grad, self._known)
            for part in zip(
                edges.split(some, 1),
                negatives.split(some),
                noise.split(some, 1),
                weight.split(some),
                strict=True,
            )
        ]
        return torch.cat(losses)

    # --- on a GPU --------------------------------------------------------------------------------

    def _replay(self, block: _Block) -> None:
        """The captured steps of a block, on these batches."""
        if self._graph is None:
            self._static = _Block(*(x.clone() for x in block))
            self._graph = self._captured()
        for static, x in zip(self._static, block, strict=True):
            static.copy_(x)
        self._graph.replay()

    def _captured(self) -> torch.cuda.CUDAGraph:
        """Records a block as a CUDA graph; the steps that this takes leave no trace."""
        tensors = [self.h, self.log_scale, *self.optimiser.state.values()]
        before = [t.clone() for t in tensors]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._one_step(self._static, 0)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for t in range(self.steps):
                self._one_step(self._static, t)
        for t, old in zip(tensors, before, strict=True):
            t.copy_(old)
        self._grad.zero()
        return graph

    # --- random numbers --------------------------------------------------------------------------

    def _randn(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._random, device=self.device)

    def _randint(self, high: int, shape: tuple[int, ...]) -> Tensor:
        dtype = self._edges.dtype
        return torch.randint(high, shape, generator=self._random, device=self.device, dtype=dtype)

    def _randperm(self, size: int) -> Tensor:
        """So many different edges, in random order."""
        every = len(self._edges)
        return torch.randperm(every, generator=self._random, device=self.device)[:size]

    # --- checkpoints -----------------------------------------------------------------------------

    @property
    def _checkpoint(self) -> Path | None:
        return None if self.folder is None else self.folder / "checkpoint.safetensors"

    @property
    def _path(self) -> Path:
        assert self._checkpoint is not None
        return self._checkpoint

    def save(self) -> None:
        """Writes the checkpoint whole or not at all, and only of finite numbers."""
        self._require_finite()
        tensors = {
            "h": self.h,
            "log_scale": self.log_scale,
            "random": self._random.get_state(),
            **{f"optimiser.{name}": t for name, t in self.optimiser.state.items()},
        }
        about = {"epoch": str(self.epoch), "step": str(self.step), "training": self._identity}
        write_tensors(self._path, tensors, about)

    def _resume(self) -> None:
        again = "Remove it to start anew."
        tensors, about = read_tensors(self._path, "the checkpoint of an embedding", again)
        if about.get("training") != self._identity:
            raise UserError(
                f"Expected {self._path} to be of this training, {self._identity}; it is of "
                f"{about.get('training', 'something else')}. Choose another folder, or the same "
                "edges and options."
            )
        self.h.copy_(tensors["h"])
        self.log_scale.copy_(tensors["log_scale"])
        for name, t in self.optimiser.state.items():
            t.copy_(tensors[f"optimiser.{name}"])
        self._random.set_state(tensors["random"])
        self.epoch, self.step = int(about["epoch"]), int(about["step"])

    def _require_finite(self) -> None:
        tensors = (self.h, self.log_scale, *self.optimiser.state.values())
        if not all(bool(torch.isfinite(t).all()) for t in tensors):
            raise DivergedError(
                f"Expected finite parameters; epoch {self.epoch} left NaN or inf.",
                self._checkpoint,
            )


def _identity(
    edges: Tensor,
    weights: Tensor | None,
    nodes: int,
    dim: int,
    kind: Kind,
    recipe: Recipe,
    more: dict[str, Any],
) -> str:
    """What a checkpoint has to agree in, as text."""
    digest = hashlib.sha256(edges.cpu().contiguous().numpy().tobytes())
    if weights is not None:
        digest.update(weights.cpu().contiguous().numpy().tobytes())
    settings = {
        "edges": f"{len(edges)} edges of {nodes} nodes ({digest.hexdigest()[:12]})",
        "dim": dim,
        **asdict(kind),
        **asdict(recipe),
        **more,
    }
    return json.dumps(settings)
