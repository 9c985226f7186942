"""`HyperbolicVAE` on large sparse tables: time beside a plain PyTorch VAE, memory, growth.

The plain VAE has the same two hidden layers of 64 with dropout, the same negative binomial
likelihood and batches of 128 rows, a Euclidean latent of `torch.distributions`, and makes its
batches dense in the shortest way: ``table[rows].toarray()``. Seconds are those of the processor, on
one thread.

    python benchmarks/vae_rows.py [--rows 100000] [--growth 10000 30000 100000 300000]
"""

import argparse
import resource
import time
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

import hyperwrap as hw

COLUMNS, PER_ROW, BATCH = 2_000, 100, 128


def counts(rows: int, seed: int = 0) -> csr_matrix:
    """Counts in 100 places of each row, a few of which coincide and are added up."""
    draw = np.random.default_rng(seed)
    column = (COLUMNS * draw.beta(1, 3, size=(rows, PER_ROW))).astype(np.int32)
    column.sort(1)
    data = 1 + draw.poisson(1.0, size=rows * PER_ROW).astype(np.float32)
    table = csr_matrix(
        (data, column.ravel(), PER_ROW * np.arange(rows + 1, dtype=np.int32)),
        shape=(rows, COLUMNS),
    )
    table.sum_duplicates()
    return table


class Plain(nn.Module):
    """A VAE as one writes it."""

    def __init__(self) -> None:
        super().__init__()

        def net(*sizes: int) -> nn.Sequential:
            pairs = [
                layer
                for a, b in pairwise(sizes[:-1])
                for layer in (nn.Linear(a, b), nn.ReLU(), nn.Dropout(0.1))
            ]
            return nn.Sequential(*pairs, nn.Linear(sizes[-2], sizes[-1]))

        self.encoder, self.decoder = net(COLUMNS, 64, 64, 4), net(2, 64, 64, COLUMNS)
        self.log_dispersion = nn.Parameter(torch.zeros(COLUMNS))

    def loss(self, x: Tensor) -> Tensor:
        total = x.sum(1, keepdim=True)
        m, s = self.encoder(torch.log1p(1e4 * x / total)).chunk(2, -1)
        q = Normal(m, nn.functional.softplus(s))
        rate, r = total * self.decoder(q.rsample()).softmax(-1), self.log_dispersion.exp()
        log_p = (
            torch.lgamma(x + r)
            - torch.lgamma(r)
            - torch.lgamma(x + 1)
            + r * (r / (r + rate)).log()
            + x * (rate / (r + rate)).log()
        )
        return (kl_divergence(q, Normal(0.0, 1.0)).sum(-1) - log_p.sum(-1)).mean()


def plain_epoch(model: Plain, adam: torch.optim.Adam, table: Any) -> None:
    model.train()
    order = np.random.default_rng(0).permutation(table.shape[0])
    for rows in order[: len(order) // BATCH * BATCH].reshape(-1, BATCH):
        some: Any = table[rows]
        adam.zero_grad()
        model.loss(torch.from_numpy(some.toarray())).backward()
        adam.step()


def seconds(work: Any) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def peak() -> float:
    """GB that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def ours() -> hw.HyperbolicVAE:
    return hw.HyperbolicVAE(likelihood="negative binomial", batch_size=BATCH, random_state=0)


def beside_plain(rows: int, repeats: int = 3) -> None:
    table, plain = counts(rows), Plain()
    adam = torch.optim.Adam(plain.parameters(), 2e-3)
    vae = ours().partial_fit(table[:2000])
    plain_epoch(plain, adam, table[:2000])
    both = [
        (seconds(lambda: vae.partial_fit(table)), seconds(lambda: plain_epoch(plain, adam, table)))
        for _ in range(repeats)
    ]
    a, b = np.array(both).T
    print(f"epoch of {rows:,} × {COLUMNS:,}: ours {a.min():.2f} s, plain {b.min():.2f} s", end="")
    print(f", ratio {np.median(a / b):.2f} (from {(a / b).min():.2f} to {(a / b).max():.2f})")


def memory(rows: int) -> None:
    table = counts(rows)
    before, held = peak(), (table.data.nbytes + table.indices.nbytes) / 2**30
    start = time.process_time()
    vae = ours().set_params(max_iter=1).fit(table)
    print(f"fit of {rows:,} rows, one epoch: {time.process_time() - start:.1f} s;", end=" ")
    print(f"data {held:.2f} GB, peak {peak():.2f} GB, {peak() - before:.2f} GB above what was")
    some = table[:10_000]
    print(f"score of {some.shape[0]:,} rows: {seconds(lambda: vae.score(some)):.1f} s")


def growth(sizes: list[int]) -> None:
    whole, vae, found = counts(max(sizes)), ours(), []
    vae.partial_fit(whole[:2000])
    for rows in sizes:
        table = whole[:rows]
        found.append(seconds(lambda table=table: vae.partial_fit(table)))
        print(f"epoch of {rows:,}: {found[-1]:.2f} s", flush=True)
    print(f"growth exponent {np.polyfit(np.log(sizes), np.log(found), 1)[0]:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--growth", type=int, nargs="*", default=[10_000, 30_000, 100_000, 300_000])
    parser.add_argument("--only", choices=["beside", "memory", "growth"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.only in (None, "memory"):
        memory(options.rows)
    if options.only in (None, "beside"):
        beside_plain(min(options.rows, 20_000))
    if options.only in (None, "growth"):
        growth(options.growth)
