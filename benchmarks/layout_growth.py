"""How the time of laying out a hierarchy grows with its size: seconds, memory and the exponent.

Random recursive trees (each node below one drawn at random among those before it) and balanced
trees of ten children per node. The time is the best of three, without that of making the names and
edges; the exponent is the slope of log time over log nodes. Memory is the peak of the whole
process, names and edges included.

    python benchmarks/layout_growth.py                              # 10⁴ to 10⁶ nodes
    python benchmarks/layout_growth.py --sizes 1e4 1e5 1e6 1e7
"""

import argparse
import resource
import time
from math import log

import numpy as np

from hyperwrap.embedding.layout import layout
from hyperwrap.graphs.hierarchy import Hierarchy

TREES = {
    "random recursive": lambda child: np.random.default_rng(0).integers(child),
    "balanced": lambda child: (child - 1) // 10,
}


def tree(kind: str, nodes: int) -> Hierarchy:
    child = np.arange(1, nodes)
    return Hierarchy(map(str, range(nodes)), np.stack([child, TREES[kind](child)], 1))


def seconds(graph: Hierarchy, dim: int) -> float:
    def once() -> float:
        start = time.perf_counter()
        layout(graph, dim)
        return time.perf_counter() - start

    return min(once() for _ in range(3))


def gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e4, 1e5, 1e6])
    parser.add_argument("--dim", type=int, default=2)
    given = parser.parse_args()
    sizes = [round(size) for size in given.sizes]
    for kind in TREES:
        taken = []
        for nodes in sizes:
            taken.append(seconds(tree(kind, nodes), given.dim))
            memory = f"{gigabytes():.2f} GB at most so far"
            print(f"{kind:>18} {nodes:>12,} nodes {taken[-1]:10.3f} s   {memory}", flush=True)
        if len(sizes) > 1:
            slope = np.polyfit([log(n) for n in sizes], [log(t) for t in taken], 1)[0]
            print(f"{kind:>18} exponent {slope:.2f}", flush=True)


if __name__ == "__main__":
    main()
