"""Leaves that are left out and then added: do they find their ancestors? Are probabilities right?

A tenth of the leaves is left out. The rest is embedded; then some of those left out are added with
`Embedding.add_all`, without training. Printed are the MAP of their ancestors beside that of leaves
that were there from the start, and how far `Embedding.probability` is from the truth: for pairs it
has not seen, and for pairs whose child was left out. Half of the pairs are true. The calibration
error is the mean gap, over ten bins, between the probability given and the share that is true.

    python benchmarks/left_out_leaves.py wordnet-nouns --json leaves.json
    python benchmarks/left_out_leaves.py icd-10-cm --epochs 20
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hyperwrap as hw
from hyperwrap.embedding.evaluate import evaluate
from hyperwrap.graphs import Hierarchy, graph, ontologies, wordnet
from hyperwrap.graphs.relatives import Relatives
from hyperwrap.training import finished

GRAPHS = {
    "wordnet-nouns": wordnet.nouns,
    "wordnet-mammals": wordnet.mammals,
    "icd-10-cm": ontologies.icd10cm,
    "gene-ontology": ontologies.gene_ontology,
}
BINS = 10


def parents_of(h: Hierarchy, nodes: np.ndarray) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {h.names[node]: [] for node in nodes}
    for child, parent in h.edges[np.isin(h.edges[:, 0], nodes)]:
        found[h.names[child]].append(h.names[parent])
    return found


def precision(e: hw.Embedding, closure: Hierarchy, nodes: np.ndarray) -> dict[str, Any]:
    tensors = e.tangent, e.scale.log(), e.kind, torch.from_numpy(closure.edges)
    result = finished(evaluate(*tensors, sources=torch.from_numpy(np.sort(nodes)), draws=8))
    return {
        "MAP": round(result.mean_average_precision, 4),
        "rank": round(result.mean_rank, 3),
        "sources": result.sources,
    }


def calibration(e: hw.Embedding, ends: np.ndarray, below: np.ndarray, weight: np.ndarray) -> Any:
    """The error, and for each bin the probability given, the share that is true, and the weight."""
    names = [[e.names[node] for node in end] for end in ends.T]
    given, weight = e.probability(*names).numpy(), weight.copy()
    for truth in (True, False):
        weight[below == truth] /= 2 * weight[below == truth].sum()
    part = np.minimum((given * BINS).astype(int), BINS - 1)
    sums = [np.bincount(part, x, BINS) for x in (weight, weight * given, weight * below)]
    curve = [
        {"given": round(p / w, 4), "true": round(t / w, 4), "weight": round(w, 4)}
        for w, p, t in zip(*sums, strict=True)
        if w
    ]
    right = (weight * ((given > 0.5) == below)).sum()
    error = np.abs(sums[1] - sums[2]).sum()
    return {
        "pairs": len(ends),
        "calibration_error": round(float(error), 4),
        "accuracy": round(float(right), 4),
        "curve": curve,
    }


def known(e: hw.Embedding) -> Hierarchy:
    assert e.hierarchy is not None
    return e.hierarchy


def measure(name: str, dim: int, epochs: int, most: int, seed: int) -> dict[str, Any]:
    whole, rng = GRAPHS[name]().direct, np.random.default_rng(seed)
    leaves = Relatives(whole).leaves()
    leaves = leaves[np.isin(leaves, whole.edges[:, 0])]
    out = rng.choice(leaves, len(leaves) // 10, replace=False)
    keep = np.ones(len(whole), bool)
    keep[out] = False
    start = time.perf_counter()
    e = hw.embed(graph(whole.subset(keep), closure=epochs > 0), dim, epochs=epochs)
    embedded, start = time.perf_counter() - start, time.perf_counter()
    e.probability(e.names[0], e.names[1])
    fitted, before = time.perf_counter() - start, len(e)
    seen = {tuple(pair) for pair in Relatives(known(e)).sample(1500).ends.tolist()}
    added = parents_of(whole, rng.choice(out, min(most, len(out)), replace=False))
    start = time.perf_counter()
    e.add_all(added)
    adding = time.perf_counter() - start

    grown = known(e)
    closure, relatives = grown.closure(), Relatives(grown)
    new = np.arange(before, len(e))
    old = relatives.leaves(np.arange(before))
    old = old[np.isin(old, grown.edges[:, 0])]
    some = rng.choice(old, min(len(new), len(old)), replace=False)
    pairs = relatives.sample(20000, seed=1 + seed)
    unseen = np.array([tuple(pair) not in seen for pair in pairs.ends.tolist()])
    of_new = pairs.ends[:, 0] >= before
    result = {
        "graph": name,
        "nodes": len(whole),
        "n": dim,
        "epochs": epochs,
        "left_out": len(out),
        "added": len(added),
        "seconds_embedding": round(embedded, 2),
        "seconds_fitting_probabilities": round(fitted, 2),
        "seconds_per_leaf": round(adding / len(added), 4),
        "added_leaves": precision(e, closure, new),
        "leaves_that_were_there": precision(e, closure, some),
        "held_out_pairs": calibration(e, *(x[unseen & ~of_new] for x in pairs)),
        "pairs_of_added_leaves": calibration(e, *(x[of_new] for x in pairs)),
    }
    there = result["leaves_that_were_there"]["MAP"]
    return {**result, "ratio": round(result["added_leaves"]["MAP"] / there, 4)}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """The share that is true against the probability given, for each graph and kind of pair."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    for axes, kind in zip(
        figure.subplots(1, 2, sharey=True), ("held_out_pairs", "pairs_of_added_leaves"), strict=True
    ):
        axes.plot([0, 1], [0, 1], color="0.8", zorder=0)
        for row in rows:
            curve = row[kind]["curve"]
            given, true, weight = ([x[name] for x in curve] for name in ("given", "true", "weight"))
            label = f"{row['graph']}, error {row[kind]['calibration_error']:.3f}"
            sizes = [6 + 300 * x for x in weight]
            axes.scatter(given, true, sizes, alpha=0.7, linewidths=0, label=label)
        axes.set(title=kind.replace("_", " "), xlabel="probability given", aspect="equal")
        axes.legend(frameon=False, fontsize="x-small", loc=(0.02, 0.7), markerscale=0.4)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("share that is true")
    figure.savefig(path, dpi=160)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("graphs", nargs="+", choices=GRAPHS)
    parser.add_argument("--dim", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--most", type=int, default=1500, help="leaves to add")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path, help="where to draw the reliability curves")
    given = parser.parse_args()
    rows = []
    for name in given.graphs:
        rows.append(measure(name, given.dim, given.epochs, given.most, given.seed))
        print(json.dumps(rows[-1], indent=1), flush=True)
    if given.figure:
        draw(rows, given.figure)
    if given.json:
        given.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
