"""Training that can be killed at any moment and resumed as if it had not been.

A `Trainer` owns a model, its optimiser and a source of batches. Everything that the next step
depends on, the state of the random number generator included, goes into one checkpoint, written
beside the old one and moved over it: there is always a whole one. On CPU a resumed run ends with
the same bits as one that was never stopped.

A stack of models (see `networks.Linear`) trains in one program: the loss is the sum over the
stack, so each model gets the gradient it would get alone, and Adam works element by element.
"""

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
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=self.training.learning_rate, foreach=True
        )
        if self.folder is not None and self._path.exists():
            self._resume()

    # --- the loop -------------------------------------------------------------------------------

    def run(self, report_every: int = 100, save_every: int = 1000) -> Iterator[Progress]:
        """Trains to the end, yielding a report every so often."""
        seen: list[Tensor] = []
        while self.step < self.training.steps:
            seen.append(self._one_step())
            self.step += 1
            last = self.step == self.training.steps
            if last or self.step % report_every == 0:
                yield self._report(seen)
                seen = []
            if last or self.step % save_every == 0:
                self.save()

    def _one_step(self) -> Tensor:
        bound = self.model.objective(
            self.batches(self.step), self.training.num_samples, beta=self._beta()
        )
        self.optimizer.zero_grad(set_to_none=True)
        (-bound.elbo.mean(-1).sum()).backward()
        self.optimizer.step()
        return _means(bound)

    def _beta(self) -> Tensor:
        t = self.training
        if self.step >= t.warm_up:
            return self.model.beta
        fraction = self.step / t.warm_up
        return t.warm_up_from + fraction * (self.model.beta - t.warm_up_from)

    def _report(self, seen: list[Tensor]) -> Progress:
        means = torch.stack(seen).mean(0)
        if not torch.isfinite(means).all():
            raise DivergedError(
                f"Expected a finite objective; step {self.step} gave reconstruction "
                f"{means[0].min().item():.4g} and KL {means[1].max().item():.4g}. "
                + (
                    f"The checkpoint in {self.folder} is from before that. "
                    if self.folder is not None and self._path.exists()
                    else ""
                )
                + "Try a smaller learning rate."
            )
        reconstruction, kl = means.flatten(1).tolist()
        elbo = [r - d for r, d in zip(reconstruction, kl, strict=True)]
        return Progress(self.step, elbo, reconstruction, kl)

    # --- checkpoints -----------------------------------------------------------------------------

    @property
    def _path(self) -> Path:
        assert self.folder is not None
        return self.folder / "checkpoint.safetensors"

    def save(self) -> None:
        """Writes the checkpoint whole or not at all."""
        if self.folder is None:
            return
        tensors = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{index}.{name}": t for name, t in state.items()}
        tensors["random"] = torch.get_rng_state()
        if not all(torch.isfinite(t).all() for name, t in tensors.items() if name != "random"):
            return  # the last good one stays; the next report says what happened
        metadata = {"step": str(self.step), "training": json.dumps(asdict(self.training))}
        content = save({n: t.detach().contiguous().cpu() for n, t in tensors.items()}, metadata)
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(content)
        os.replace(part, self._path)

    def _resume(self) -> None:
        tensors, metadata = _read(self._path)
        if metadata.get("training") != json.dumps(asdict(self.training)):
            raise UserError(
                f"Expected {self._path} to be of this training, {self.training}; it is of "
                f"{metadata.get('training')}. Choose another folder, or the same options."
            )
        own = self.model.state_dict()
        found = {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
        if {n: t.shape for n, t in found.items()} != {n: t.shape for n, t in own.items()}:
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
        self.step = int(metadata["step"])


def _means(bound: Bound) -> Tensor:
    """Reconstruction and KL, averaged over the batch, ``(2, *stack)``."""
    return torch.stack([bound.reconstruction, bound.kl]).detach().mean(-1)


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
