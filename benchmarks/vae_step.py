"""What a training step of the hyperbolic VAE costs: over the vanilla one, and over one's own loop.

The networks of MNIST (§5.2), 784-500-2n and back, batches of 100, Adam. Three ratios, each to
something measured in the same run:

- *step*: a training step of the hyperbolic VAE over one of the vanilla VAE, of one model and of
  five stacked in one program.
- *own step*: the hyperbolic step written by hand with `hw.WrappedNormal(tangent=...)`, its checks
  on, over that of `hw.VAE`, one model.
- *own latent*: the latent alone, from the encoder's output to its gradient, likewise.

All take turns, a few steps each, so that they see the same machine. The models are rebuilt several
times, since where their memory happens to lie is worth a few per cent. All numbers are medians.

    python benchmarks/vae_step.py                  # one CPU thread
    python benchmarks/vae_step.py --device cuda
"""

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from math import inf
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

import hyperwrap as hw
from hyperwrap.training import adam, optimizer_state, recorded
from hyperwrap.vae import Latent, mlp
from hyperwrap.vae.train import Training, trainer

BATCH, STACKED, RATE = 100, 5, 1e-3
Work = Callable[[], object]


def networks(latent: Latent, stack: Sequence[int], device: str) -> tuple[Any, Any]:
    encoder = mlp([784, 500, latent.encoder_outputs], stack=stack)
    return encoder.to(device), mlp([latent.decoder_inputs, 500, 784], stack=stack).to(device)


def data(stack: Sequence[int], device: str) -> Tensor:
    return (torch.rand(*stack, BATCH, 784, device=device) < 0.2).float()


def vae_steps(latent: Latent, stack: Sequence[int], device: str, steps: int) -> Work:
    """So many training steps of a `hw.VAE`."""
    vae, x = hw.VAE(*networks(latent, stack, device), latent).to(device), data(stack, device)
    training = Training(10**9, RATE)
    run = trainer(vae, lambda step: x, training, report_every=steps).run(inf)
    return lambda: next(run)  # gives numbers, so a GPU has finished


def own_steps(n: int, device: str, steps: int) -> Work:
    """The same, written by hand."""
    encoder, decoder = networks(hw.HyperbolicLatent(n), (), device)
    parameters, x = [*encoder.parameters(), *decoder.parameters()], data((), device)
    optimizer, prior = adam(parameters, torch.tensor(RATE, device=device)), own_prior(n, device)

    def step() -> None:
        z, kl = own_latent(encoder(x), prior)
        reconstruction = binary_cross_entropy_with_logits(decoder(z), x, reduction="none").sum(-1)
        optimizer.zero_grad(set_to_none=True)
        (reconstruction + kl).mean().backward()
        optimizer.step()

    tensors = [*parameters, *optimizer_state(optimizer).values()]
    return repeated(step, steps, device, tensors)


def own_prior(n: int, device: str) -> hw.WrappedNormal:
    return hw.WrappedNormal(tangent=torch.zeros(n, device=device), scale=1.0)


def own_latent(encoded: Tensor, prior: hw.WrappedNormal) -> tuple[Tensor, Tensor]:
    """A latent of each datum, and an estimate of the KL term."""
    h, s = encoded.chunk(2, -1)
    q = hw.WrappedNormal(tangent=h, scale=softplus(s))
    z, log_q, log_p = q.rsample_against(prior)
    return z, log_q - log_p


def latents(n: int, device: str, steps: int) -> tuple[Work, Work]:
    """The latent of `hw.VAE` and that written by hand, forwards and backwards."""
    latent, prior = hw.HyperbolicLatent(n).to(device), own_prior(n, device)
    encoded = torch.randn(BATCH, 2 * n, device=device).requires_grad_()

    def ours() -> None:
        z, log_q, log_p = latent.rsample(encoded, ())
        torch.autograd.grad(z.sum() + (log_q - log_p).sum(), encoded)

    def own() -> None:
        z, kl = own_latent(encoded, prior)
        torch.autograd.grad(z.sum() + kl.sum(), encoded)

    return repeated(ours, steps, device), repeated(own, steps, device)


def repeated(
    step: Callable[[], None], steps: int, device: str, tensors: Iterable[Tensor] = ()
) -> Work:
    """So many steps; on a GPU as replays of a CUDA graph, as `trainer` does it."""
    on_gpu = device == "cuda"
    one = recorded(step, tensors).replay if on_gpu else step

    def work(keep: object = step) -> None:  # a graph does not keep its tensors alive
        for _ in range(steps):
            one()
        if on_gpu:
            torch.cuda.synchronize()

    return work


def ratio(pair: Callable[[], tuple[Work, Work]], turns: int, models: int) -> tuple[float, float]:
    """Median seconds that the second takes, and how many times the first that is."""
    seconds = [turn for _ in range(models) for turn in _turns(*pair(), turns)]
    return median(b for _, b in seconds), median(b / a for a, b in seconds)


def _turns(a: Work, b: Work, turns: int) -> list[tuple[float, float]]:
    pairs = [(_seconds(a), _seconds(b)) for _ in range(turns + 1)]
    return pairs[1:]  # the first allocates and, on a GPU, compiles and records


def _seconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def row(n: int, device: str, turns: int, models: int) -> list[float]:
    """Milliseconds of a hyperbolic step, and the ratios."""
    steps, often = 200 if device == "cuda" else 5, (turns, models)
    curved, flat = hw.HyperbolicLatent(n), hw.EuclideanLatent(n)

    def vae(latent: Latent, stack: Sequence[int] = ()) -> Work:
        return vae_steps(latent, stack, device, steps)

    seconds, step = ratio(lambda: (vae(flat), vae(curved)), *often)
    stacked = ratio(lambda: (vae(flat, (STACKED,)), vae(curved, (STACKED,))), *often)[1]
    own = ratio(lambda: (vae(curved), own_steps(n, device, steps)), *often)[1]
    alone = ratio(lambda: latents(n, device, 10 * steps), *often)[1]
    return [1e3 * seconds / steps, step, stacked, own, alone]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 5, 10, 20])
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--models", type=int, default=4)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")  # as when the models are trained
    threads = torch.get_num_threads()
    print(f"torch {torch.__version__}, {given.device}, {threads} threads, batch {BATCH}")
    titles = ("ms per step", "step", "five stacked", "own step", "own latent")
    print(f"{'n':>4}" + "".join(f"{title:>14}" for title in titles))
    for n in given.dims:
        numbers = row(n, given.device, given.turns, given.models)
        print(f"{n:4}" + "".join(f"{x:14.3f}" for x in numbers), flush=True)


if __name__ == "__main__":
    main()
