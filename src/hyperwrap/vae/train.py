"""Training that can be killed at any moment and resumed as if it had not been.

A `Trainer` owns a model, its optimiser and a source of batches. Everything that the next step
depends on, the state of the random number generator included, goes into one checkpoint, written
beside the old one and moved over it: there is always a whole one. On CPU a resumed run ends with
the same bits as one that was never stopped.

A stack of models (see `networks.Linear`) trains in one program: the loss is the sum over the
stack, so each model gets the gradient it would get alone, and Adam works element by element.
"""

import copy
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from hyperwrap.errors import UserError
from hyperwrap.vae.model import VAE, Bound

__all__ = ["DivergedError", "Progress", "Trainer", "Training"]

Batches = Callable[[int], Tensor]


@dataclass(frozen=True)
class Training:
    """How to train; all of it is part of what a checkpoint belongs to."""

    steps: int
    learning_rate: float = 1e-3
    decay: bool = False
    """Whether the learning rate, constant for the first half, then falls linearly to 0."""
    num_samples: int = 1
    warm_up: int = 0
    """Steps over which β rises linearly from ``warm_up_from`` to its value."""
    warm_up_from: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Progress:
    """Means over the steps since the last report, one number a model of the stack."""

    step: int
    elbo: list[float]
    reconstruction: list[float]
    kl: list[float]


class DivergedError(UserError):
    """A number that should be finite is not."""


@dataclass
class Trainer:
    """Trains ``model`` on ``batches(step)``, data shaped ``(*stack, batch, *event)``.

    ``folder`` is where checkpoints go; without one there are none.
    """

    model: VAE
    batches: Batches
    training: Training
    folder: Path | None = None
    step: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        device = self.model.beta.device
        self._rate = torch.tensor(self.training.learning_rate, device=device)
        self._beta = self.model.beta.clone()
        self._sums = torch.zeros(())  # of reconstruction and KL, since the last report
        self._graph: torch.cuda.CUDAGraph | None = None
        on_gpu = device.type == "cuda"
        self.optimizer = torch.optim.Adam(
            self.model.parameters(),
            lr=self._rate if on_gpu else self.training.learning_rate,
            fused=True,
            capturable=on_gpu,
        )
        if self.folder is not None and self._path.exists():
            self._resume()
        else:
            # A GPU's generator takes 64 bits of seed: there the noise does not repeat the stream
            # that may have made the weights. The CPU's takes 32, and does; it does no harm.
            torch.manual_seed(self.training.seed + 2**32)

    # --- the loop -------------------------------------------------------------------------------

    def run(self, report_every: int = 100, save_every: int = 1000) -> Iterator[Progress]:
        """Trains to the end, yielding a report every so often."""
        since = 0
        while self.step < self.training.steps:
            self._schedule()
            x = self.batches(self.step)
            if self.step == 0:
                self._require_data(x)
            self._advance(x)
            self.step, since = self.step + 1, since + 1
            last = self.step == self.training.steps
            if last or self.step % report_every == 0:
                yield self._report(since)
                self._sums.zero_()
                since = 0
            if last or self.step % save_every == 0:
                self._require_finite_parameters()
                self.save()

    def _schedule(self) -> None:
        """Sets β and the learning rate of the coming step."""
        t = self.training
        if self.step <= t.warm_up and t.warm_up:
            rise = min(self.step / t.warm_up, 1.0)
            self._beta.copy_(t.warm_up_from + rise * (self.model.beta - t.warm_up_from))
        if t.decay:
            rate = t.learning_rate * min(1.0, 2 * (1 - self.step / t.steps))
            self._rate.fill_(rate)
            if not self._rate.is_cuda:
                self.optimizer.param_groups[0]["lr"] = rate

    def _advance(self, x: Tensor) -> None:
        """One step, on a GPU as the replay of a graph captured at the first."""
        if not x.is_cuda:
            return self._one_step(x)
        if self._graph is None:
            self._capture(x)
        assert self._graph is not None
        self._x.copy_(x)
        self._graph.replay()
        return None

    def _one_step(self, x: Tensor) -> None:
        bound = self.model.objective(x, self.training.num_samples, beta=self._beta)
        self.optimizer.zero_grad(set_to_none=True)
        (-bound.elbo.mean(-1).sum()).backward()
        self.optimizer.step()
        means = _means(bound)
        if self._sums.dim() == 0:
            self._sums = torch.zeros_like(means)
        self._sums += means

    def _capture(self, x: Tensor) -> None:
        """Records a step as a CUDA graph; the warm-up that this takes leaves no trace."""
        self._x = x.clone()
        tensors = [*self.model.parameters(), *self.model.buffers()]
        before = [t.detach().clone() for t in tensors]
        moments = copy.deepcopy(self.optimizer.state_dict()["state"])
        random = torch.cuda.get_rng_state(x.device)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._one_step(self._x)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._one_step(self._x)
        with torch.no_grad():
            for t, old in zip(tensors, before, strict=True):
                t.copy_(old)
            for index, state in self.optimizer.state_dict()["state"].items():
                for name, t in state.items():
                    t.copy_(moments[index][name]) if index in moments else t.zero_()
        self._sums.zero_()
        torch.cuda.set_rng_state(random, x.device)

    def _report(self, since: int) -> Progress:
        means = self._sums / since
        if not torch.isfinite(means).all():
            raise DivergedError(
                f"Expected a finite objective; step {self.step} gave reconstruction "
                f"{means[0].min().item():.4g} and KL {means[1].max().item():.4g}. {self._advice()}"
            )
        reconstruction, kl = means.reshape(2, -1).tolist()
        elbo = [r - d for r, d in zip(reconstruction, kl, strict=True)]
        return Progress(self.step, elbo, reconstruction, kl)

    def _require_data(self, x: Tensor) -> None:
        """Raises a `UserError` if the first batch cannot be data of the model."""
        if not x.numel():
            raise UserError(f"Expected data; got a batch of shape {tuple(x.shape)}.")
        if not torch.isfinite(x).all():
            raise UserError("Expected finite data; got NaN or inf.")
        if self.model.likelihood == "bernoulli" and (x.min() < 0 or x.max() > 1):
            raise UserError(
                "Expected values in [0, 1], as the likelihood is bernoulli; "
                f"got {x.min().item():.4g} to {x.max().item():.4g}."
            )

    def _require_finite_parameters(self) -> None:
        moments = [t for state in self.optimizer.state.values() for t in state.values()]
        if not all(torch.isfinite(t).all() for t in (*self.model.parameters(), *moments)):
            raise DivergedError(
                f"Expected finite parameters; step {self.step} left NaN or inf. {self._advice()}"
            )

    def _advice(self) -> str:
        before = self.folder is not None and self._path.exists()
        kept = f"The checkpoint in {self.folder} is from before that. " if before else ""
        return f"{kept}Try a smaller learning rate."

    # --- checkpoints -----------------------------------------------------------------------------

    @property
    def _path(self) -> Path:
        assert self.folder is not None
        return self.folder / "checkpoint.safetensors"

    def _identity(self) -> dict[str, str]:
        """What a checkpoint has to agree in, besides names and shapes of the parameters."""
        m = self.model
        model = f"{m.latent!r}, {m.likelihood}, beta={m.beta.tolist()}"
        return {"model": model, "training": json.dumps(asdict(self.training))}

    def save(self) -> None:
        """Writes the checkpoint whole or not at all."""
        if self.folder is None:
            return
        tensors = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{index}.{name}": t for name, t in state.items()}
        tensors["random"] = torch.get_rng_state()
        if self._rate.is_cuda:
            tensors["random_cuda"] = torch.cuda.get_rng_state(self._rate.device)
        metadata = {"step": str(self.step), **self._identity()}
        content = save({n: t.detach().contiguous().cpu() for n, t in tensors.items()}, metadata)
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(content)
        os.replace(part, self._path)

    def _resume(self) -> None:
        tensors, metadata = _read(self._path)
        for what, own in self._identity().items():
            found = metadata.get(what, "something else")
            if found != own:
                raise UserError(
                    f"Expected {self._path} to be of this {what}, {_shown(own)}; it is of "
                    f"{_shown(found)}. Choose another folder, or the same options."
                )
        own = self.model.state_dict()
        found = {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
        same = {n: t.shape for n, t in found.items()} == {n: t.shape for n, t in own.items()}
        if not same or "random" not in tensors:
            raise UserError(
                f"Expected {self._path} to be of this model; its parameters have other names or "
                "shapes. Choose another folder."
            )
        self.model.load_state_dict(found)
        state: dict[int, dict[str, Tensor]] = {}
        for name, t in tensors.items():
            if name.startswith("adam."):
                _, index, key = name.split(".")
                state.setdefault(int(index), {})[key] = t
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        torch.set_rng_state(tensors["random"])
        if self._rate.is_cuda and "random_cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random_cuda"], self._rate.device)
        self.step = int(metadata["step"])


def _means(bound: Bound) -> Tensor:
    """Reconstruction and KL, averaged over the batch, ``(2, *stack)``."""
    return torch.stack([bound.reconstruction, bound.kl]).detach().mean(-1)


def _shown(identity: str) -> str:
    """A training as it is written in Python, anything else as it is."""
    try:
        return repr(Training(**json.loads(identity)))
    except (ValueError, TypeError):
        return identity


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    from safetensors import safe_open

    try:
        with safe_open(path, "pt") as file:
            return load_file(path), file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"Expected a checkpoint in {path}; it cannot be read ({error}). "
            "Remove it to start anew."
        ) from None
