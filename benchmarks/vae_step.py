"""What a training step of the hyperbolic VAE costs over the vanilla one: MNIST networks, same run.

python benchmarks/vae_step.py
python benchmarks/vae_step.py --device cuda
"""

import argparse
import time

import torch

import hyperwrap as hw
from hyperwrap.vae import mlp
from hyperwrap.vae.train import Trainer, Training


def steps(latent: hw.Euclidean | hw.Hyperbolic, device: str, seeds: int) -> Trainer:
    stack = (seeds,)
    encoder = mlp([784, 500, latent.encoder_outputs], stack=stack)
    decoder = mlp([latent.decoder_inputs, 500, 784], stack=stack)
    vae = hw.VAE(encoder, decoder, latent).to(device)
    x = (torch.rand(seeds, 100, 784, device=device) < 0.2).float()
    return Trainer(vae, lambda step: x, Training(steps=10**9))


def seconds(trainer: Trainer, count: int) -> float:
    """Of one step, over ``count`` of them."""
    run = trainer.run(report_every=count, save_every=10**9)
    start = time.perf_counter()
    next(run)
    return (time.perf_counter() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    count = 1000 if options.device == "cuda" else 50
    print(f"torch {torch.__version__}, {options.device}, {options.seeds} stacked seeds, batch 100")
    print(f"{'n':>4}{'vanilla ms':>12}{'hyperbolic ms':>15}{'ratio':>8}")
    for n in (2, 5, 10, 20):
        pair = [
            steps(space(n), options.device, options.seeds)
            for space in (hw.Euclidean, hw.Hyperbolic)
        ]
        times = [[seconds(t, count) for t in pair] for _ in range(6)][1:]
        vanilla, hyperbolic = (sorted(t)[2] for t in zip(*times, strict=True))
        print(f"{n:4}{1e3 * vanilla:12.3f}{1e3 * hyperbolic:15.3f}{hyperbolic / vanilla:8.2f}")


if __name__ == "__main__":
    main()
