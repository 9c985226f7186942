"""How long until the ancestors rank as well as gensim's Poincaré embedding ever ranks them?

gensim's PoincareModel (Nickel & Kiela's method) trains on the closure within a budget, and is
evaluated after every few epochs: all true ancestors of a node against all other nodes, by distance.
Beside it `hw.embed` with ``epochs=0``, reading the edges included, judged in the same way by KL.
Seconds are those of the processor, so that other work on the machine does not count.

    python benchmarks/time_to_map.py wordnet-mammals --budget 90
    python benchmarks/time_to_map.py wordnet --budget 180 --dims 5
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gensim.models.poincare import PoincareModel  # pyright: ignore[reportMissingImports]

import hyperwrap as hw
from hyperwrap import charts, lorentz
from hyperwrap.graphs import graph
from hyperwrap.graphs.hierarchy import Hierarchy

SOURCES = 1000
# of the settings that its authors and others use for mammals; for the nouns there is no time
BURN_IN, NEGATIVES = 10, 10


def gensim(closure: Hierarchy, dim: int, budget: float, seed: int) -> Iterator[dict[str, Any]]:
    """What it has reached after 1, 2, 4 … epochs, until the time is up."""
    names = closure.names
    pairs = [(names[a], names[c]) for a, c in closure.edges.tolist()]
    start = time.process_time()
    burn_in = BURN_IN if len(pairs) < 1e5 else 0
    model = PoincareModel(pairs, size=dim, negative=NEGATIVES, burn_in=burn_in, seed=seed)
    seconds, epochs, step = time.process_time() - start, 0, 1
    while seconds < budget:
        start = time.process_time()
        model.train(epochs=step, print_every=10**9)
        last = time.process_time() - start
        seconds, epochs = seconds + last, epochs + step
        yield {
            "n": dim,
            "epochs": epochs,
            "seconds": round(seconds, 1),
            "MAP": precision(points(model, names), closure),
        }
        if last * 2 + seconds > budget and step == 1:
            break
        step = max(1, min(2 * step, int((budget - seconds) / last * step)))
    return


def points(model: Any, names: list[str]) -> hw.Embedding:
    ball = torch.from_numpy(np.stack([model.kv[name] for name in names])).double()
    h = lorentz.log0(charts.from_poincare(ball))
    return hw.Embedding(names, h, torch.zeros(len(names), 1), "hyperbolic", "none")


def precision(e: hw.Embedding, closure: Hierarchy) -> float:
    result = e.evaluate(closure, sources=SOURCES, draws=20, device="cpu")
    return round(result.mean_average_precision, 4)


def ours(name: str, closure: Hierarchy, dim: int) -> dict[str, Any]:
    start = time.process_time()
    e = hw.embed(graph(name).direct, dim, epochs=0)
    seconds = time.process_time() - start
    return {"n": dim, "epochs": 0, "seconds": round(seconds, 2), "MAP": precision(e, closure)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("graph", choices=["wordnet-mammals", "wordnet"])
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 5])
    parser.add_argument("--budget", type=float, default=90.0, help="seconds for each dimension")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    closure = graph(given.graph)
    mine = ours(given.graph, closure, 2)
    print("hyperwrap", mine, flush=True)
    found = []
    for dim in given.dims:
        for row in gensim(closure, dim, given.budget, given.seed):
            print("gensim", row, flush=True)
            found.append(row)
    best = max(found, key=lambda row: row["MAP"])
    first = min(row["seconds"] for row in found if row["MAP"] == best["MAP"])
    ratio = round(first / mine["seconds"]) if mine["MAP"] >= best["MAP"] else None
    print(f"gensim's best is {best['MAP']} after {first} s; hyperwrap is {ratio} times as fast.")
    if given.json:
        rows = {"graph": given.graph, "hyperwrap": mine, "gensim": found, "times_as_fast": ratio}
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
