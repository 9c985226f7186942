r"""Training an embedding: batches and the schedule.

An epoch is a permutation of the edges, cut into batches, and batches into groups that share their
negatives. Several *copies* of the graph train in one program, each with its own start, order and
noise: they are one graph of disconnected parts, whose negatives are drawn from their own part.

A few dozen steps make a *block*: its random numbers are drawn at once, and on a GPU its kernels are
one recorded graph, replayed.
"""

import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hyperwrap.embedding import objective
from hyperwrap.embedding.known import Known
from hyperwrap.embedding.layout import Layout
from hyperwrap.embedding.nodes import Nodes, NodeType, node_type
from hyperwrap.embedding.optimisers import AdaGrad, Adam, Gradient
from hyperwrap.embedding.recipe import Recipe
from hyperwrap.errors import UserError
from hyperwrap.threads import one_thread
from hyperwrap.training import Loop, Progress, Task, recorded, seeded

__all__ = ["EmbeddingTask", "trainer"]

_BLOCK = 32  # steps
_LEAST_STEPS = 6  # of an epoch: a small graph gets smaller batches
_LEAST_NODES, _LEAST_NEGATIVES = 16, 16  # nodes for each negative: a small graph gets fewer
_TILE = 2**19  # coordinates worked on at once on a CPU: what its caches hold, and no less
_FOR_TWO_THREADS = 2**20  # coordinates in a step: with fewer a second thread gains nothing


def trainer(
    edges: Tensor,
    nodes: int,
    dim: int,
    kind: NodeType = node_type(),  # noqa: B008
    recipe: Recipe = Recipe(),  # noqa: B008
    *,
    weights: Tensor | None = None,
    seed: int = 0,
    start: Layout | None = None,
    copies: int = 1,
    device: torch.device | str = "cpu",
    folder: Path | None = None,
) -> "Loop[EmbeddingTask]":
    """The loop that trains the nodes of a graph; its task is an `EmbeddingTask`.

    Args:
        edges: ``(E, 2)``, child and parent.
        nodes: how many there are.
        dim: the dimension ``n`` of the space.
        kind: what a node is.
        recipe: how to train.
        weights: ``(E,)``, how much each edge counts.
        seed: random seed.
        start: where the nodes start; near the origin, if not given.
        copies: how many graphs to train side by side.
        device: where to train.
        folder: for a checkpoint, from which earlier training with the same settings continues.

    >>> loop = trainer(torch.tensor([[1, 0], [2, 0]]), nodes=3, dim=2, recipe=Recipe(epochs=2))
    >>> [progress.done for progress in loop.run()]
    [1, 2]
    >>> loop.task.h.shape
    torch.Size([3, 2])
    """
    settings: dict[str, Any] = {"weights": weights, "start": start, "seed": seed, "copies": copies}
    task = EmbeddingTask(edges, nodes, dim, kind, recipe, device=device, **settings)
    return Loop(task, seed=seed, device=device, folder=folder)


class _Block(NamedTuple):
    """The batches of some steps, one per row."""

    edges: Tensor  # (T, 2, G, e)
    negatives: Tensor  # (T, G, k), or (T, G, e) for the hinge
    noise: Tensor  # (T, draws, n), draws = samples · G · e
    weight: Tensor  # (T, G, e)
    rates: Tensor  # (T, r)
    loss: Tensor  # (T, G, e), filled


class EmbeddingTask(Task):
    """What `trainer` trains; a step is an epoch.

    Attributes:
        h: ``(copies·nodes, n)``, the tangent vectors of the centres, in the dtype of the start: far
            out float32 is too coarse for a direction. All else is in float32.
        log_scale: ``(copies·nodes, n or 1)``.
        steps_in_epoch: batches.
        look: what to measure now and then, if anything; it adds numbers to the reports.
        look_every: epochs.
        score: which of these numbers decides the epoch whose nodes are kept, if any.
    """

    look: Callable[[], Mapping[str, float]] | None = None
    look_every = 1
    score: str | None = None

    def __init__(
        self,
        edges: Tensor,
        nodes: int,
        dim: int,
        kind: NodeType,
        recipe: Recipe,
        *,
        weights: Tensor | None = None,
        start: Layout | None = None,
        seed: int = 0,
        copies: int = 1,
        device: torch.device | str = "cpu",
    ) -> None:
        if len(edges) < 1 or dim < 1:
            raise UserError(f"Expected edges and `dim` ≥ 1; got {len(edges)} edges, dim {dim}.")
        self.kind, self.recipe, self.nodes, self.dim, self.copies = kind, recipe, nodes, dim, copies
        self.device = torch.device(device)
        more = {"nodes": nodes, "seed": seed, "copies": copies, "device": self.device.type}
        more["laid_out"] = start is not None
        self._identity = {"graph": _digest(edges, weights), "dim": dim, **more}
        self._identity |= {**asdict(kind), "recipe": asdict(recipe)}
        self._plan(len(edges))
        self._edges = edges.to(self.device, torch.int32 if self._on_gpu else torch.int64)
        self._parents = self._edges[:, 1].unique()
        self._known = Known(self._edges, nodes)
        self._weights = None if weights is None else weights.to(self.device, torch.float32)
        with seeded(seed, self.device):
            self._start(start)
        like_h = torch.zeros_like(self.h, dtype=torch.float32)
        self._grad = Gradient(like_h, torch.zeros_like(self.log_scale))
        self.optimiser = self._optimiser()
        self.optimiser.hold(self.h)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._room: Any = None

    @property
    def _on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def _plan(self, edges: int) -> None:
        """How an epoch is cut: blocks of steps of groups, ``groups`` for each copy."""
        r = self.recipe
        batch = max(1, min(r.batch, edges // _LEAST_STEPS))
        self.group = 2 ** min(r.group, batch).bit_length() // 2  # a power of 2, for the kernels
        self.groups = batch // self.group
        self.negatives = min(r.negatives, max(_LEAST_NEGATIVES, self.nodes // _LEAST_NODES))
        steps = max(1, edges // (self.groups * self.group))
        lengths = range(min(steps, _BLOCK // 2), min(steps, 2 * _BLOCK) + 1)
        self._in_block = max(lengths, key=lambda length: steps // length * length)
        self._blocks = steps // self._in_block
        self.steps_in_epoch = self._blocks * self._in_block

    def _start(self, start: Layout | None) -> None:
        r, shape = self.recipe, (self.copies * self.nodes, self.dim)
        if start is None:
            h = r.initial_spread * torch.randn(shape, device=self.device)
            start = Layout(h, torch.full_like(h[:, :1], r.initial_scale))
        h, scale = start.tangent.to(self.device), start.scale.to(self.device, torch.float32)
        copies = shape[0] // len(h)
        columns = scale.clamp(*r.scale_bounds).expand(-1, self.kind.columns(self.dim))
        self.h, self.log_scale = h.repeat(copies, 1), columns.repeat(copies, 1).log()

    def _optimiser(self) -> Adam | AdaGrad:
        which = AdaGrad if self.recipe.objective == "hinge" else Adam
        return which(self.kind, self.h, self.log_scale, self.recipe)

    # --- what the loop asks for ------------------------------------------------------------------

    @property
    def steps(self) -> int:
        return self.recipe.epochs

    def identity(self) -> Mapping[str, Any]:
        return self._identity

    def state(self) -> dict[str, Tensor]:
        remembered = {f"optimiser.{name}": t for name, t in self.optimiser.state.items()}
        return {"h": self.h, "log_scale": self.log_scale, **remembered}

    def kept(self) -> dict[str, Tensor]:
        return {} if self.score is None else {"h": self.h, "log_scale": self.log_scale}

    def advance(self) -> Progress:
        with self._threads():
            loss = self._one_epoch().tolist()
        self.step += 1
        numbers: dict[str, Any] = {"loss": loss[0] if self.copies == 1 else loss}
        if self.look is not None and (
            self.step % self.look_every == 0 or self.step == self.recipe.epochs
        ):
            numbers |= self.look()
        score = [numbers[self.score]] if self.score in numbers else None
        return Progress(self.step, self.recipe.epochs, numbers, score)

    def seconds(self) -> float:
        """About how long an epoch takes; the task is of no use afterwards."""
        size = self._in_block * self.groups * self.group
        order = torch.randint(len(self._edges), (self.copies, size), device=self.device)
        shape = (self.copies, self._in_block, self.groups, self.group)
        taken = []
        for _ in range(2):  # the first time kernels are compiled
            start = time.perf_counter()
            with self._threads():
                self._run(self._block(order.view(shape), 1)).tolist()
            taken.append(time.perf_counter() - start)
        return self._blocks * min(taken)

    def _threads(self) -> AbstractContextManager[None]:
        candidates = max(self.negatives, self.recipe.draws)
        coordinates = self.copies * self.groups * self.group * candidates * self.dim
        return one_thread() if coordinates < _FOR_TWO_THREADS else nullcontext()

    # --- an epoch --------------------------------------------------------------------------------

    def _one_epoch(self) -> Tensor:
        """The mean loss of each copy."""
        size, every = self.steps_in_epoch * self.groups * self.group, len(self._edges)
        shuffled = [torch.randperm(every, device=self.device)[:size] for _ in range(self.copies)]
        shape = (self.copies, self._blocks, self._in_block, self.groups, self.group)
        order = torch.stack(shuffled).view(shape)
        first = self.step * self.steps_in_epoch + 1
        return torch.stack(
            [
                self._run(self._block(order[:, b], first + b * self._in_block))
                for b in range(self._blocks)
            ]
        ).mean(0)

    def _block(self, order: Tensor, first: int) -> _Block:
        """The batches of a block from positions ``(copies, T, groups, group)`` of edges."""
        r, n = self.recipe, self.dim
        order = order.movedim(0, 1)  # (T, copies, groups, group)
        steps, total = self._in_block, self.copies * self.groups
        own = self.nodes * torch.arange(self.copies, device=self.device).view(1, -1, 1, 1)
        own = own.to(self._edges.dtype)
        edges = self._edges[order].movedim(-1, 1) + own.unsqueeze(1)
        each = self.group if r.objective == "hinge" else self.negatives
        negatives = self._negatives((steps, self.copies, self.groups), each) + own
        draws = r.draws if r.objective == "hinge" else 1
        noise = torch.randn(steps, draws * total * self.group, n, device=self.device)
        ones = torch.ones(order.shape, device=self.device)
        weight = ones if self._weights is None else self._weights[order]
        rates = [self.rates(first + t) for t in range(steps)]
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
        like: dict[str, Any] = {"device": self.device, "dtype": self._edges.dtype}
        parents = round(self.recipe.parent_negatives * each)
        hard = self._parents[torch.randint(len(self._parents), (*shape, parents), **like).long()]
        return torch.cat([hard, torch.randint(self.nodes, (*shape, each - parents), **like)], -1)

    def rates(self, step: int) -> list[float]:
        """What the optimiser is told about a step, counted from 1."""
        r = self.recipe
        all_steps = r.epochs * self.steps_in_epoch
        fraction = 1 - (step - 1) / all_steps if r.decay else 1.0
        if step <= r.burn_in * self.steps_in_epoch:
            fraction *= r.burn_in_factor
        return self.optimiser.rates(step, fraction)

    def _run(self, block: _Block) -> Tensor:
        """The steps of a block; the mean loss of each copy."""
        if self._on_gpu:
            block = self._replayed(block)
        else:
            self._all_steps(block)
        return block.loss.view(self._in_block, self.copies, -1).mean((0, 2))

    def _replayed(self, block: _Block) -> _Block:
        """The recorded steps, on these batches."""
        if self._graph is None:
            self._static = _Block(*(x.clone() for x in block))
            self._graph = recorded(lambda: self._all_steps(self._static), self.state().values())
        for static, x in zip(self._static, block, strict=True):
            static.copy_(x)
        self._graph.replay()
        return self._static

    def _all_steps(self, block: _Block) -> None:
        for t in range(self._in_block):
            self._one_step(block, t)

    # --- a step ----------------------------------------------------------------------------------

    def _one_step(self, block: _Block, t: int) -> None:
        inputs = (block.edges[t], block.negatives[t], block.noise[t], block.weight[t])
        if self._on_gpu:
            self._gpu_gradient(*inputs, block.loss[t])
        else:
            block.loss[t] = self._gradient(*inputs)
        self.optimiser.update(self.h, self.log_scale, self._grad, block.rates[t])

    def _gradient(self, edges: Tensor, negatives: Tensor, noise: Tensor, weight: Tensor) -> Tensor:
        """The losses; adds to the gradient that of their weighted sum, tile by tile."""
        h, scale = self.h.T.contiguous(), self.log_scale.exp().T.contiguous()
        nodes = Nodes(h.requires_grad_(), scale.requires_grad_())
        noise = noise.T.unflatten(1, (-1, *weight.shape))
        losses = []
        for part in self._tiles(edges, negatives, noise, weight):
            loss = self._losses(nodes, *part[:-1])
            aim = loss.log1p() if self.recipe.objective == "tempered" else loss
            (part[-1] * aim).sum().backward()
            losses.append(loss.detach())
        assert h.grad is not None
        self._grad.centre.add_(h.grad.T)
        if scale.grad is not None:  # points have no use for theirs
            self._grad.log_scale.add_((scale.grad * scale.detach()).T)
        return torch.cat(losses)

    def _tiles(
        self, edges: Tensor, negatives: Tensor, noise: Tensor, weight: Tensor
    ) -> "zip[tuple[Tensor, ...]]":
        some = max(1, _TILE // (self.group * self.negatives * self.dim))
        parts = edges.split(some, 1), negatives.split(some), noise.split(some, 2)
        return zip(*parts, weight.split(some), strict=True)

    def _losses(self, nodes: Nodes, edges: Tensor, negatives: Tensor, noise: Tensor) -> Tensor:
        if self.recipe.objective != "hinge":
            noise = noise[:, 0].contiguous()
            return objective.softmax(self.kind, nodes, edges, negatives, noise, self._known)
        flat = edges.flatten(1), negatives.flatten(), noise.flatten(2)
        return objective.hinge(self.kind, nodes, *flat, self.recipe.margin).view_as(edges[0])

    def _gpu_gradient(
        self, edges: Tensor, negatives: Tensor, noise: Tensor, weight: Tensor, loss: Tensor
    ) -> None:
        """The same by kernels; fills in the losses."""
        from hyperwrap.kernels import triton_embedding as triton

        softmax = self.recipe.objective != "hinge"
        if self._room is None:
            candidates = negatives.shape[1] + 1 if softmax else 1
            self._room = triton.scratch(len(noise), candidates, self.dim, self.device)
        inputs = (self.kind, self.h, self.log_scale, edges, negatives, noise, weight)
        outputs = (self._grad, loss, self._room)
        if softmax:
            tempered = self.recipe.objective == "tempered"
            return triton.softmax_step(*inputs, self._known, *outputs, tempered=tempered)
        return triton.hinge_step(*inputs, self.recipe.margin, *outputs)


def _digest(edges: Tensor, weights: Tensor | None) -> str:
    """A text that tells one graph from another."""
    digest = hashlib.sha256(edges.cpu().contiguous().numpy().tobytes())
    if weights is not None:
        digest.update(weights.cpu().contiguous().numpy().tobytes())
    return f"{len(edges)} edges ({digest.hexdigest()[:12]})"
