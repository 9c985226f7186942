"""Hierarchies without training, in any dimension: hyperbolic and Euclidean Gaussians, and points.

MAP and rank of all ancestors of a node among all other nodes. A file of edges serves as well as a
name; of a large hierarchy a sample of nodes is judged.

    python benchmarks/constructions.py wordnet wordnet-mammals --json constructions.json
    python benchmarks/constructions.py ncbi.tsv --dims 2 --sources 500 --draws 4
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hyperwrap.embedding.evaluate import evaluate
from hyperwrap.embedding.layout import layout
from hyperwrap.embedding.nodes import Covariance, Geometry, node_type
from hyperwrap.graphs import graph
from hyperwrap.graphs.hierarchy import Hierarchy
from hyperwrap.graphs.relatives import Relatives
from hyperwrap.training import finished

KINDS: list[tuple[Geometry, Covariance]] = [
    ("hyperbolic", "scalar"),
    ("euclidean", "scalar"),
    ("hyperbolic", "none"),
]


def pairs(h: Hierarchy, nodes: list[int]) -> torch.Tensor:
    """The nodes with each of their ancestors."""
    relatives = Relatives(h)
    above = [(node, other) for node in nodes for other in relatives.above(node) if other != node]
    return torch.tensor(above)


def measure(h: Hierarchy, edges: torch.Tensor, dim: int, kind: Any, draws: int) -> dict[str, Any]:
    start = time.perf_counter()
    tangent, scale = layout(h, dim, kind)
    seconds = time.perf_counter() - start
    found = finished(evaluate(tangent, scale.log(), kind, edges, draws=draws))
    return {
        "n": dim,
        "kind": str(kind),
        "MAP": round(found.mean_average_precision, 4),
        "rank": round(found.mean_rank, 3),
        "sources": found.sources,
        "largest_radius": round(tangent.norm(dim=1).max().item(), 1),
        "seconds_construction": round(seconds, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 3, 5, 10, 20])
    parser.add_argument("--sources", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    for name in given.graphs:
        h, random = graph(name).direct, np.random.default_rng(0)
        sources = random.permutation(len(h))[: given.sources]
        edges = pairs(h, np.sort(sources).tolist())
        for dim in given.dims:
            for geometry, covariance in KINDS:
                row = measure(h, edges, dim, node_type(geometry, covariance), given.draws)
                rows.append({"graph": Path(name).stem, "nodes": len(h), **row})
                print(rows[-1], flush=True)
    if given.json:
        given.json.write_text(json.dumps({"draws": given.draws, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
