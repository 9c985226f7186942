"""What a training step of the hyperbolic VAE costs over the vanilla one: MNIST networks, same run.

The networks of MNIST (§5.2), 784-500-2n and back, batches of 100, Adam: a training step of one
model and of five stacked in one program. The two geometries take turns, a few steps each, so that
both see the same machine. The models are rebuilt several times, since where their memory happens to
lie is worth a few per cent. All numbers are medians.

    python benchmarks/vae_step.py                  # one CPU thread
    python benchmarks/vae_step.py --device cuda
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

import torch

from hyperwrap.vae import VAE, EuclideanLatent, HyperbolicLatent, Latent, mlp
from hyperwrap.vae.train import Trainer, Training

BATCH, STACKED, MODELS = 100, 5, 4


class Row(NamedTuple):
    """Milliseconds a step, and how many times the vanilla one the hyperbolic one takes."""

    n: int
    seeds: int
    """How many models train in one program; 1 is a plain model, not a stack of one."""
    vanilla_ms: float
    hyperbolic_ms: float
    ratio: float
    """The median over the turns, each with its own ratio."""


def vae_steps(
    device: str = "cpu", dims: Sequence[int] = (2, 5, 10, 20), *, turns: int = 10
) -> Iterator[Row]:
    """A row for each dimension and number of stacked models, as soon as it is measured."""
    for n in dims:
        for seeds in (1, STACKED):
            yield _row(n, seeds, device, turns)


def _row(n: int, seeds: int, device: str, turns: int) -> Row:
    pairs = [pair for _ in range(MODELS) for pair in _turns(n, seeds, device, turns)]
    vanilla, hyperbolic = (1e3 * median(times) for times in zip(*pairs, strict=True))
    return Row(n, seeds, vanilla, hyperbolic, median(h / v for v, h in pairs))


def _turns(n: int, seeds: int, device: str, turns: int) -> list[tuple[float, float]]:
    """Seconds of a vanilla and a hyperbolic step, turn by turn, of one pair of models."""
    vanilla, hyperbolic = (
        _trainer(space(n), seeds, device) for space in (EuclideanLatent, HyperbolicLatent)
    )
    steps = 200 if device == "cuda" else 5
    pairs = [(_seconds(vanilla, steps), _seconds(hyperbolic, steps)) for _ in range(turns + 1)]
    return pairs[1:]  # the first allocates and, on a GPU, compiles and records


def _trainer(latent: Latent, seeds: int, device: str) -> Trainer:
    stack = () if seeds == 1 else (seeds,)
    encoder = mlp([784, 500, latent.encoder_outputs], stack=stack)
    decoder = mlp([latent.decoder_inputs, 500, 784], stack=stack)
    vae = VAE(encoder, decoder, latent).to(device)
    x = (torch.rand(*stack, BATCH, 784, device=device) < 0.2).float()
    return Trainer(vae, lambda step: x, Training(steps=10**9))


def _seconds(trainer: Trainer, steps: int) -> float:
    """Of one step, over so many of them."""
    run = trainer.run(report_every=steps, save_every=10**9)
    start = time.perf_counter()
    next(run)  # gives numbers, so a GPU has finished
    return (time.perf_counter() - start) / steps


def cells(row: Row) -> str:
    return f"{row.vanilla_ms:12.3f}{row.hyperbolic_ms:15.3f}{row.ratio:8.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")  # as when the models are trained
    print(f"torch {torch.__version__}, {device}, {torch.get_num_threads()} threads, batch 100")
    print(f"{'':4}{'one model':>35}{'five stacked':>35}")
    print(f"{'n':>4}" + 2 * f"{'vanilla ms':>12}{'hyperbolic ms':>15}{'ratio':>8}")
    rows = vae_steps(device)
    for one, stacked in zip(rows, rows, strict=True):
        print(f"{one.n:4}{cells(one)}{cells(stacked)}", flush=True)


if __name__ == "__main__":
    main()
