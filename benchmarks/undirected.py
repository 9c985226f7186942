"""Graphs without direction in two dimensions: are neighbours found, and are distances kept?

MAP ranks the neighbours of every node among all nodes. Distortion is the mean of ``|s·d/D - 1|``
over all pairs: ``d`` is the distance of the centres, ``D`` the number of edges between them, and
``s`` the scale that makes it least.

    python benchmarks/undirected.py karate miserables grid
"""

import argparse
import time

import networkx as nx
import numpy as np
import torch

import hyperwrap as hw

GRAPHS = {
    "karate": nx.karate_club_graph,
    "miserables": nx.les_miserables_graph,
    "grid": lambda: nx.convert_node_labels_to_integers(nx.grid_2d_graph(20, 20)),
}
KINDS = [
    ("hyperbolic", "diagonal", 0),
    ("hyperbolic", "diagonal", None),
    ("euclidean", "diagonal", None),
    ("hyperbolic", "none", None),
    ("euclidean", "none", None),
]


def distortion(e: hw.Embedding, graph: nx.Graph) -> float:
    steps = dict(nx.all_pairs_shortest_path_length(graph))
    a, b = np.triu_indices(len(e), 1)
    edges = np.array([steps[e.names[i]][e.names[j]] for i, j in zip(a, b, strict=True)])
    apart = e.index.distances(torch.from_numpy(a), torch.from_numpy(b)[:, None]).squeeze(1)
    ratio = np.sort(apart.numpy() / edges)
    scale = 1 / ratio[np.searchsorted(np.cumsum(ratio), ratio.sum() / 2)]  # a weighted median
    return np.abs(scale * ratio - 1).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("graphs", nargs="+", choices=GRAPHS)
    torch.set_num_threads(1)
    for name in parser.parse_args().graphs:
        graph = nx.Graph((str(a), str(b)) for a, b in GRAPHS[name]().edges())
        for geometry, covariance, epochs in KINDS:
            start = time.process_time()
            e = hw.embed(graph, 2, geometry, covariance, epochs=epochs)
            seconds = time.process_time() - start
            found = e.evaluate(graph).mean_average_precision
            kind = f"{e.kind}, {'trained' if epochs is None else 'not trained'}"
            row = f"MAP {found:.3f}   distortion {distortion(e, graph):.3f}   {seconds:.1f} s"
            print(f"{name:>12}   {kind:<36}   {row}", flush=True)


if __name__ == "__main__":
    main()
