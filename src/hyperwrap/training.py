r"""The one training loop: reports, checkpoints, exact resume, the best model kept.

What is trained is a `Task`. A `Loop` lets it advance from report to report, and does the rest:

- **Random numbers.** The loop has a `Stream` of its own. It stands in for torch's default
  generators while the task works, and only then: training neither reads nor changes the random
  numbers of the program around it.
- **Checkpoints.** Everything that the next step depends on, the stream included, goes into one
  file, which is replaced whole. On a CPU a resumed run ends with the same bits as one that was
  never stopped, and with the same lines in ``metrics.jsonl``: a line is written before the
  checkpoint that covers it, and lines after the checkpoint are dropped on resume.
- **The best.** Where a report has a `score`, the tensors that the task wants kept are kept as they
  were at the best score, one choice per model of a stack. They are part of the checkpoint.
- **Finite or not at all.** A number that is not finite ends training with a `DivergedError`,
  and never reaches a checkpoint.
"""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from hyperwrap.errors import DivergedError, UserError
from hyperwrap.files import Metrics, read_tensors, write_tensors
from hyperwrap.runs import require_same

__all__ = [
    "Loop",
    "Progress",
    "Stream",
    "Task",
    "adam",
    "finished",
    "optimizer_state",
    "recorded",
    "seeded",
    "the_device",
]

_SAVE_EVERY = 20.0  # seconds
_TIMES_AS_LONG = 50  # as a checkpoint takes to write, at least, until the next
T = TypeVar("T")


@dataclass(frozen=True)
class Progress:
    """How a piece of work stands. All long-running work in hyperwrap is a generator of these.

    Attributes:
        done: how much of ``total`` is done, in steps, epochs or sources.
        numbers: what to show, and what `Loop` writes to ``metrics.jsonl``; a list has one number
            for each model of a stack.
        score: the higher, the better, one for each model; None where nothing was measured.
        name: which piece of work, where there are several.
    """

    done: int
    total: int
    numbers: Mapping[str, Any] = field(default_factory=dict)
    score: Sequence[float] | None = None
    name: str = ""


def finished(
    work: Generator[Any, None, T], watch: Callable[[Any], object] = lambda progress: None
) -> T:
    """Runs a generator of progress to its end, calls ``watch``, and returns its result.

    Ctrl-C in ``watch`` reaches the generator, as any other does.
    """
    go_on: Callable[[], Any] = partial(next, work)
    while True:
        try:
            progress = go_on()
        except StopIteration as end:
            return end.value
        go_on = partial(next, work)
        try:
            watch(progress)
        except KeyboardInterrupt as stopped:
            go_on = partial(work.throw, stopped)


class Task(ABC):
    """Something that is trained step by step."""

    step: int = 0
    """How many steps are behind us."""
    models: int = 1
    """How many models train stacked; a score has one number for each."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """How many steps there are in all."""

    @abstractmethod
    def identity(self) -> Mapping[str, Any]:
        """What a checkpoint must agree with, as JSON can hold it."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """The tensors that the next step depends on: read to save, filled in place to resume."""

    def kept(self) -> dict[str, Tensor]:
        """Those of them that are kept at the best score."""
        return {}

    @abstractmethod
    def advance(self) -> Progress:
        """Trains until a report is due, and returns it."""


# --- the loop ------------------------------------------------------------------------------------


K = TypeVar("K", bound=Task)


class Loop(Generic[K]):
    """Trains a task to its end; with a folder, a run that was killed continues from there.

    Args:
        task: what to train.
        seed: random seed of the stream.
        device: where the task works; on a GPU the stream has a generator there, too.
        folder: where ``checkpoint.safetensors`` and ``metrics.jsonl`` go. Without a folder none
            are written. A checkpoint that is already there is resumed.
    """

    def __init__(
        self,
        task: K,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        folder: str | PathLike[str] | None = None,
    ) -> None:
        self.task, self.stream = task, Stream(seed, torch.device(device))
        self.folder = None if folder is None else Path(folder)
        self.best = _Best(task.kept(), task.models)
        if self._checkpoint is not None and self._checkpoint.exists():
            self._resume(self._checkpoint)

    def run(self, save_every: float = _SAVE_EVERY) -> Iterator[Progress]:
        """Trains to the end, yielding each report; checkpoints at least ``save_every`` seconds
        apart, at the end, and on Ctrl-C between two reports.
        """
        task, metrics = self.task, self._metrics
        if metrics is not None:
            metrics.rewind(task.step)
        due = time.monotonic() + save_every
        while task.step < task.steps:
            with self.stream:
                progress = task.advance()
            self._require_finite(progress)
            if progress.score is not None:
                self.best.offer(progress.score, task.step)
            if metrics is not None:
                metrics.append({"step": task.step, **progress.numbers})
            if task.step >= task.steps or time.monotonic() >= due:
                due = max(due, self.save()) + save_every
            try:
                yield progress
            except KeyboardInterrupt:
                self.save()
                raise

    def _require_finite(self, progress: Progress) -> None:
        for name, value in progress.numbers.items():
            numbers = [x for x in (value if isinstance(value, list) else [value]) if x is not None]
            if not np.isfinite(numbers).all():
                raise DivergedError(
                    f"Expected finite numbers; by step {self.task.step} `{name}` is {value}.",
                    self._checkpoint,
                )

    # --- checkpoints -----------------------------------------------------------------------------

    @property
    def _checkpoint(self) -> Path | None:
        return None if self.folder is None else self.folder / "checkpoint.safetensors"

    @property
    def _metrics(self) -> Metrics | None:
        return None if self.folder is None else Metrics(self.folder / "metrics.jsonl")

    def _tensors(self) -> dict[str, Tensor]:
        return self.task.state() | self.best.state() | self.stream.state()

    def save(self) -> float:
        """Writes the checkpoint, if there is a folder; returns when the next one may be written."""
        start, tensors = time.monotonic(), self._tensors()
        for name, t in self.task.state().items():
            if t.is_floating_point() and not torch.isfinite(t).all():
                raise DivergedError(
                    f"Expected finite parameters; by step {self.task.step} `{name}` is not.",
                    self._checkpoint,
                )
        if self._checkpoint is not None:
            # one text: of several, safetensors does not keep the order
            about = json.dumps({"step": self.task.step, "identity": self.task.identity()})
            write_tensors(self._checkpoint, tensors, {"training": about})
        now = time.monotonic()
        return now + _TIMES_AS_LONG * (now - start)

    def _resume(self, path: Path) -> None:
        found, texts = read_tensors(path, "a checkpoint", "Remove it to start over.")
        about = json.loads(texts.get("training", '{"identity": {}}'))
        own = json.loads(json.dumps(self.task.identity()))
        require_same(path.parent, about["identity"], own)
        tensors = self._tensors()
        if {n: t.shape for n, t in found.items()} != {n: t.shape for n, t in tensors.items()}:
            raise UserError(
                f"Expected a checkpoint of this training in {path}; its tensors have other names "
                "or shapes. Choose another folder."
            )
        with torch.no_grad():
            for name, t in tensors.items():
                t.copy_(found[name])
        self.stream.load(found)
        self.task.step = about["step"]


class _Best:
    """Tensors as they were at the best score of each model, and at which step that was.

    With several models the first dimension of a tensor tells them apart.
    """

    def __init__(self, tensors: dict[str, Tensor], models: int) -> None:
        self._own = tensors
        self._kept = {name: t.detach().clone() for name, t in tensors.items()}
        self.scores = torch.full((models,), -torch.inf, dtype=torch.float64)
        self.steps = torch.zeros(models, dtype=torch.long)

    def offer(self, scores: Sequence[float], step: int) -> None:
        """Keeps the tensors of those models whose score is higher than any before."""
        new = torch.tensor(scores, dtype=self.scores.dtype)
        better = new > self.scores
        self.scores = torch.where(better, new, self.scores)
        self.steps = torch.where(better, step, self.steps)
        for name, t in self._own.items():
            mask = better.to(t.device)
            mask = mask.view(-1, *[1] * (t.dim() - 1)) if len(scores) > 1 else mask.squeeze()
            self._kept[name].copy_(torch.where(mask, t.detach(), self._kept[name]))

    @torch.no_grad()
    def restore(self) -> None:
        """Puts what was kept back, if any score was ever offered."""
        if self.scores.isfinite().any():
            for name, t in self._own.items():
                t.copy_(self._kept[name])

    def state(self) -> dict[str, Tensor]:
        if not self._own:
            return {}
        kept = {f"best.{name}": t for name, t in self._kept.items()}
        return kept | {"best_scores": self.scores, "best_steps": self.steps}


# --- random numbers ------------------------------------------------------------------------------


class Stream:
    """Random numbers of their own: inside ``with stream:`` torch's default generators draw from
    it; outside, it is as if nothing had happened.

    >>> stream, before = Stream(0), torch.get_rng_state()
    >>> with stream:
    ...     x = torch.rand(3)
    >>> torch.equal(torch.get_rng_state(), before)
    True
    """

    def __init__(self, seed: int, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        # Mixed, so that the stream does not repeat the one that may have made the weights.
        mixed = int(np.random.SeedSequence((seed, 1)).generate_state(1, np.uint32)[0])
        self._random = {"random": torch.Generator().manual_seed(mixed).get_state()}
        if self.device.type == "cuda":
            on_gpu = torch.Generator(self.device).manual_seed(mixed)
            self._random["random_cuda"] = on_gpu.get_state()

    def __enter__(self) -> None:
        self._outside = self._current()
        self._install(self._random)

    def __exit__(self, *_: object) -> None:
        self._random = self._current()
        self._install(self._outside)

    def _current(self) -> dict[str, Tensor]:
        found = {"random": torch.get_rng_state()}
        if self.device.type == "cuda":
            found["random_cuda"] = torch.cuda.get_rng_state(self.device)
        return found

    def _install(self, states: dict[str, Tensor]) -> None:
        torch.set_rng_state(states["random"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(states["random_cuda"], self.device)

    def state(self) -> dict[str, Tensor]:
        return dict(self._random)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self._random = {name: tensors[name].clone() for name in self._random}


@contextmanager
def seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Random numbers from this seed inside; outside, it is as if nothing had been drawn."""
    device = torch.device(device)
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng([device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed seeds every GPU, too
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def the_device(device: torch.device | str | None) -> torch.device:
    """The device given; without one, a GPU if there is any."""
    found = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if found.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"Expected a GPU for device {str(found)!r}; torch finds none. Use 'cpu'.")
    return found


# --- optimisers and CUDA graphs ------------------------------------------------------------------


def adam(parameters: Iterable[Tensor], rate: Tensor, **options: Any) -> torch.optim.Adam:
    """Adam whose whole state exists before the first step; on a GPU it can be recorded.

    Args:
        parameters: what to train.
        rate: the learning rate, on the device of the parameters. On a GPU the optimiser holds this
            very tensor, and fills of it change the rate; on a CPU set ``param_groups[0]["lr"]``.
        options: whatever else `torch.optim.Adam` takes.
    """
    on_gpu = rate.is_cuda
    made = torch.optim.Adam(
        parameters,
        lr=torch.zeros_like(rate) if on_gpu else 0.0,
        fused=True,
        capturable=on_gpu,
        **options,
    )
    for p in made.param_groups[0]["params"]:
        p.grad = torch.zeros_like(p)
    made.step()  # at rate 0 it moves nothing
    made.zero_grad(set_to_none=True)
    for state in made.state.values():
        state["step"].zero_()
    made.param_groups[0]["lr"] = rate if on_gpu else rate.item()
    return made


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All tensors of an optimiser, by the position of their parameter."""
    parameters = optimizer.param_groups[0]["params"]
    return {
        f"adam.{i}.{name}": t
        for i, p in enumerate(parameters)
        for name, t in optimizer.state[p].items()
    }


def recorded(work: Callable[[], None], tensors: Iterable[Tensor]) -> torch.cuda.CUDAGraph:
    """``work`` as a CUDA graph; the calls that recording takes leave no trace on the tensors."""
    tensors = list(tensors)
    before = [t.detach().clone() for t in tensors]
    random = torch.cuda.get_rng_state()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    with torch.no_grad():
        for t, old in zip(tensors, before, strict=True):
            t.copy_(old)
    torch.cuda.set_rng_state(random)
    return graph
