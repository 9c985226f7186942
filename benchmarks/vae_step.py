"""What a training step of the hyperbolic VAE costs over the vanilla one: MNIST networks, same run.

One model, and five stacked in one program; `hyperwrap bench vae` prints the same.

python benchmarks/vae_step.py
python benchmarks/vae_step.py --device cuda
"""

import argparse

import torch

from hyperwrap.experiments.bench import Row, vae_steps


def cells(row: Row) -> str:
    return f"{row.vanilla_ms:12.3f}{row.hyperbolic_ms:15.3f}{row.ratio:8.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    torch.set_float32_matmul_precision("high")  # as when the models are trained
    print(f"torch {torch.__version__}, {device}, {torch.get_num_threads()} threads, batch 100")
    print(f"{'':4}{'one model':>35}{'five stacked':>35}")
    print(f"{'n':>4}" + 2 * f"{'vanilla ms':>12}{'hyperbolic ms':>15}{'ratio':>8}")
    rows = vae_steps(device)
    for one, stacked in zip(rows, rows, strict=True):
        print(f"{one.n:4}{cells(one)}{cells(stacked)}", flush=True)


if __name__ == "__main__":
    main()
