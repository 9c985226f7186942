"""What training from a construction reaches on a GPU, and in how many seconds.

Writes a line of JSON after each step, so that nothing is lost if it is stopped: the kernels against
the CPU's formulas, the nouns of WordNet in 2, 5 and 3 dimensions, the evaluation of all sources,
the recipe that starts near the origin, and a tree of 2.6 million nodes.

    python benchmarks/embedding_gpu.py -o results.jsonl
    python benchmarks/embedding_gpu.py --device cpu --graph wordnet-mammals --share 0.02
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hyperwrap.embedding.evaluate import energies, evaluate
from hyperwrap.embedding.layout import Layout, layout
from hyperwrap.embedding.model import sample_of_sources
from hyperwrap.embedding.nodes import NodeType, node_type
from hyperwrap.embedding.recipe import Recipe
from hyperwrap.embedding.train import EmbeddingTask, trainer
from hyperwrap.graphs.catalogue import graph
from hyperwrap.graphs.hierarchy import Hierarchy
from hyperwrap.training import finished

_LARGE = Recipe(batch=16384, burn_in=0)
_SOURCES, _DRAWS = 4000, 12
_TAXA = 2_600_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = Path(os.environ.get("OUT", ".")) / "embedding_gpu.jsonl"
    parser.add_argument("-o", "--output", type=Path, default=default)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--graph", default="wordnet")
    parser.add_argument("--share", type=float, default=1.0, help="Of the epochs and the taxa.")
    parser.add_argument("--seconds", type=float, default=270, help="No step begins after these.")
    Bench(parser.parse_args()).run()


class Bench:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.device = given, torch.device(given.device)
        self.begun = time.perf_counter()
        self.nouns = graph(given.graph)
        self.last: EmbeddingTask | None = None

    def run(self) -> None:
        self.step("kernels", self.kernels)
        tempered, trained = _LARGE.but(objective="tempered"), self.trained
        self.step("n=2, softmax", lambda: trained(2, _LARGE, 1000))
        self.step("all sources", self.all_sources)
        self.step("n=2, tempered", lambda: trained(2, tempered, 1000))
        self.step("n=5, layout with noise", lambda: trained(5, _LARGE, 300, start="noise"))
        self.step("n=3, layout with noise", lambda: trained(3, _LARGE, 300, start="noise"))
        self.step("n=5, layout", lambda: trained(5, _LARGE, 300))
        self.step("n=5, origin", lambda: trained(5, Recipe(), 300, start=None))
        self.step("n=3, layout", lambda: trained(3, _LARGE, 300))
        self.step("n=2, tempered, radial", lambda: trained(2, tempered, 500, "radial"))
        self.step("taxa", self.taxa)

    def step(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        """Runs it if there is time, and writes what came out."""
        start = time.perf_counter()
        if start - self.begun > self.given.seconds:
            found: dict[str, Any] = {"skipped": True}
        else:
            try:
                found = work()
            except Exception as error:  # a step that fails should not take the others with it
                found = {"error": f"{type(error).__name__}: {error}"[:500]}
        seconds = {"step_seconds": round(time.perf_counter() - start, 2)}
        since = {"since_start": round(time.perf_counter() - self.begun, 1)}
        line = json.dumps({"step": name, **found, **seconds, **since})
        print(line, flush=True)
        self.given.output.parent.mkdir(parents=True, exist_ok=True)
        with self.given.output.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def wait(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    # --- steps -----------------------------------------------------------------------------------

    def trained(
        self,
        dim: int,
        recipe: Recipe,
        epochs: int,
        covariance: Any = "diagonal",
        start: str | None = "layout",
    ) -> dict[str, Any]:
        begun = self.wait()
        epochs = max(2, round(epochs * self.given.share))
        kind, edges = node_type("hyperbolic", covariance), torch.tensor(self.nouns.edges)
        laid_out = self.start(dim, kind, start)
        loop = trainer(
            edges, len(self.nouns), dim, kind, recipe.but(epochs=epochs), start=laid_out,
            device=self.device,
        )  # fmt: skip
        ready, first, losses = self.wait(), 0.0, []
        for progress in loop.run():
            losses.append(progress.numbers["loss"])
            first = first or self.wait() - ready
        seconds = self.wait() - begun
        self.last = loop.task
        radius = float(loop.task.h.norm(dim=1).max())
        return {
            "epochs": epochs,
            "seconds": round(seconds, 2),
            "first_epoch": round(first, 2),
            "loss": losses[-1],
            "radius": round(radius, 1),
            **self.judged(loop.task, edges),
        }

    def start(self, dim: int, kind: NodeType, which: str | None) -> Layout | None:
        """The construction, which lies in a plane; or that with noise off it."""
        if which is None:
            return None
        h, scale = layout(self.nouns.direct, dim)
        if which == "noise":
            noise = torch.randn(len(h), dim, generator=torch.Generator().manual_seed(0)).double()
            noise[:, :2] = 0
            h = kind.move(h, scale * noise)
        return Layout(h, scale.expand(-1, 2) if kind.covariance == "radial" else scale)

    def judged(
        self,
        task: EmbeddingTask,
        edges: Tensor,
        sources: int | None = _SOURCES,
        draws: int = _DRAWS,
    ) -> dict[str, Any]:
        begun, edges = self.wait(), edges.to(self.device)
        some = None if sources is None else sample_of_sources(edges.cpu(), sources, seed=0)
        found = finished(
            evaluate(task.h, task.log_scale, task.kind, edges, sources=some, draws=draws)
        )
        return {
            "MAP": round(found.mean_average_precision, 4),
            "rank": round(found.mean_rank, 3),
            "evaluated_in": round(self.wait() - begun, 2),
        }

    def all_sources(self) -> dict[str, Any]:
        assert self.last is not None
        edges = torch.tensor(self.nouns.edges)
        few = self.judged(self.last, edges, 100, 50)  # compiles for the number of draws
        return {"warm_up": few["evaluated_in"], **self.judged(self.last, edges, None, 50)}

    def taxa(self) -> dict[str, Any]:
        """A random tree in which few nodes are parents, as in a taxonomy; direct edges only."""
        nodes = round(_TAXA * self.given.share)
        child = np.arange(1, nodes)
        parent = (0.2 * child * np.random.default_rng(0).random(len(child))).astype(int)
        tree = Hierarchy(map(str, range(nodes)), np.stack([child, parent], 1))
        edges, begun = torch.tensor(tree.edges), self.wait()
        start = layout(tree, 2)
        laid_out = self.wait() - begun
        recipe = _LARGE.but(epochs=5)
        task_of = {"start": start, "device": self.device}
        loop = trainer(edges, nodes, 2, node_type(), recipe, **task_of)
        before = self.judged(loop.task, edges, 1000)
        begun = self.wait()
        losses = [progress.numbers["loss"] for progress in loop.run()]
        seconds = {"layout": round(laid_out, 2), "training": round(self.wait() - begun, 2)}
        return {"before": before, **seconds, "loss": losses, **self.judged(loop.task, edges, 1000)}

    def kernels(self) -> dict[str, Any]:
        """How far the gradients and energies are from those of the CPU in float64, relatively."""
        if self.device.type != "cuda":
            return {"skipped": True}
        found = {}
        for covariance, dim, objective in (
            ("diagonal", 2, "softmax"),
            ("diagonal", 2, "tempered"),
            ("radial", 2, "tempered"),
        ):
            apart = _apart_from_cpu(covariance, dim, objective)
            found[f"{covariance}, n={dim}, {objective}"] = apart
        worst = max(x for each in found.values() for x in each.values())
        return {"agree": worst < 1e-3, "apart": found}


def _apart_from_cpu(covariance: Any, dim: int, objective: Any) -> dict[str, float]:
    nodes, kind = 400, node_type("hyperbolic", covariance)
    generator = torch.Generator().manual_seed(0)
    parent = torch.randint(200, (3000,), generator=generator)
    edges = torch.stack([200 + torch.randint(200, (3000,), generator=generator), parent], 1)
    h = torch.randn(nodes, dim, dtype=torch.float64, generator=generator)
    h *= 16 * torch.rand(nodes, 1, generator=generator) / h.norm(dim=1, keepdim=True)
    scale = 0.2 + torch.rand(nodes, kind.columns(dim), generator=generator)
    recipe = Recipe(epochs=2, batch=512, negatives=64, objective=objective)
    here, there = (
        EmbeddingTask(edges, nodes, dim, kind, recipe, start=Layout(h, scale), device=device)
        for device in ("cpu", "cuda")
    )
    size = here._in_block * here.groups * here.group
    order = torch.randperm(len(edges), generator=generator)[:size]
    block = here._block(order.view(1, here._in_block, here.groups, here.group), 1)
    inputs = block.edges[0], block.negatives[0], block.noise[0], block.weight[0]
    ends, negatives = block.edges[0].int().cuda(), block.negatives[0].int().cuda()
    here.log_scale = here.log_scale.double()
    here._grad = type(here._grad)(torch.zeros_like(here.h), torch.zeros_like(here.log_scale))
    loss = torch.zeros_like(block.loss[0]).cuda()
    exact = (*inputs[:2], inputs[2].double(), inputs[3].double())
    expected = here._gradient(*exact)
    there._gpu_gradient(ends, negatives, inputs[2].cuda(), inputs[3].cuda(), loss)
    noise = torch.randn(5, 12, dim, generator=generator)
    some = torch.arange(200, 205)
    right = energies(here.h, here.log_scale, kind, some, noise.double())
    left = energies(there.h, there.log_scale, kind, some.cuda(), noise.cuda())
    return {
        "loss": _apart(loss, expected),
        "centre": _apart(there._grad.centre, here._grad.centre),
        "log_scale": _apart(there._grad.log_scale, here._grad.log_scale),
        "energies": _apart(left, right),
    }


def _apart(found: Tensor, expected: Tensor) -> float:
    expected = expected.double()
    return float((found.double().cpu() - expected).norm() / expected.norm())


if __name__ == "__main__":
    main()
