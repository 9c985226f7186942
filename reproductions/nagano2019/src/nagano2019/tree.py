r"""Table 1, Figure 1 and Appendix C.1: a binary tree, seen through noise, in two dimensions.

The data are the 255 nodes of a tree of depth 8 (`data.tree`), each coordinate flipped with
probability ``p = 0.1``, drawn again at every step; the clean vectors are never trained on. Models:
the β-VAE with latents in the plane, ``β = 0.1, 1, 2, 3, 4``, and the hyperbolic VAE, ``β = 1``.
Encoder and decoder have one hidden layer of 100 and tanh, the posterior a diagonal ``Σ``; Adam
1e-3, all nodes in each batch, 1200 steps, one sample.

With latents ``z_i``, the centres of ``q(z|x_i)``, the number in the table is Pearson's correlation
between the Hamming distances of the clean ``x_i, x_j`` and the latent distances ``d(z_i, z_j)``
over all 32,385 pairs. *With noise*, each ``z_i`` comes from one noisy draw of its node.

All seeds of one model train stacked in one program on one thread. The models are shared
among processes, one per core: matrices this small gain little from a second thread, and lose a lot
when another program wants the core. Every model sees the same noise, that of its seed.
"""

import os
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hyperwrap import charts
from hyperwrap.runs import Row, Run
from hyperwrap.threads import one_thread
from hyperwrap.training import Progress, seeded
from hyperwrap.vae import VAE, EuclideanLatent, HyperbolicLatent, mlp
from hyperwrap.vae.train import Training, trainer
from nagano2019.data import tree
from nagano2019.figures import Array, Figure, TreePanel, trees
from nagano2019.grid import Cell, Outcome, Result, finish, row, run_cells
from nagano2019.metrics import distance_correlation

__all__ = [
    "MODELS",
    "PROTOCOL",
    "REMARK",
    "Model",
    "Protocol",
    "config",
    "correlations",
    "figures",
    "panel",
    "reproducing",
]

REMARK = """\
- correlation: Pearson, over all pairs of nodes, between the Hamming
  distance of the clean vectors and the distance of the latents
- with noise: the same with the latents of one noisy draw of each node
- mean ± standard deviation over seeds; in brackets the paper's mean,
  and by how much ours differs"""


@dataclass(frozen=True)
class Model:
    """One row of the table, with the paper's means."""

    name: str
    hyperbolic: bool
    beta: float
    paper: tuple[float, float]

    def latent(self) -> HyperbolicLatent | EuclideanLatent:
        return HyperbolicLatent(2) if self.hyperbolic else EuclideanLatent(2)


MODELS = (
    Model("vanilla β=0.1", hyperbolic=False, beta=0.1, paper=(0.665, 0.470)),
    Model("vanilla β=1", hyperbolic=False, beta=1.0, paper=(0.644, 0.550)),
    Model("vanilla β=2", hyperbolic=False, beta=2.0, paper=(0.644, 0.537)),
    Model("vanilla β=3", hyperbolic=False, beta=3.0, paper=(0.638, 0.501)),
    Model("vanilla β=4", hyperbolic=False, beta=4.0, paper=(0.217, 0.002)),
    Model("hyperbolic", hyperbolic=True, beta=1.0, paper=(0.768, 0.590)),
)
_COLUMNS = {"correlation": "clean", "correlation with noise": "noisy"}
_FIGURE_1 = ("vanilla β=1", "hyperbolic")
_FIGURE_C1 = ("vanilla β=0.1", "vanilla β=1", "vanilla β=2", "vanilla β=3", "hyperbolic")


@dataclass(frozen=True)
class Protocol:
    """The paper's protocol, unless a test is in a hurry."""

    depth: int = 8
    hidden: int = 100
    flips: float = 0.1
    steps: int = 1200
    learning_rate: float = 1e-3
    seeds: int = 5


PROTOCOL = Protocol()


def config(seed: int, protocol: Protocol = PROTOCOL) -> dict[str, Any]:
    """The settings that decide a run."""
    return {"seed": seed, **asdict(protocol)}


def reproducing(
    run: Run, protocol: Protocol = PROTOCOL, *, processes: int | None = None
) -> Generator[Progress, None, Result]:
    """Trains, measures and draws into the folder of the run, which has the `config` of the same
    protocol.
    """
    cells = [_Cell(model, protocol, run.config["seed"]) for model in MODELS]
    with one_thread():
        found = yield from run_cells(run, cells, processes=processes or os.cpu_count() or 1)
        rows = [each for cell, outcome in found.items() for each in _rows(cell.model, outcome)]
        first = {
            cell.name: {name: z[0] for name, z in outcome.tensors.items()}
            for cell, outcome in found.items()
        }
        return finish(run, rows, REMARK, figures(first, protocol.depth), found.values())


def _rows(model: Model, outcome: Outcome) -> list[Row]:
    return [
        row(model.name, column, outcome.scores[column], paper)
        for column, paper in zip(_COLUMNS, model.paper, strict=True)
    ]


# --- one model, all seeds stacked ----------------------------------------------------------------


@dataclass(frozen=True)
class _Cell(Cell):
    model: Model
    protocol: Protocol
    seed: int

    @property
    def name(self) -> str:
        return self.model.name

    def settings(self) -> dict[str, Any]:
        return {"model": asdict(self.model)}

    def measure(self, folder: Path) -> Generator[Progress, None, Outcome]:
        """Latents of a trained model: clean, and with the noise that comes next after training."""
        p, vae = self.protocol, self._vae()
        x = tree.nodes(p.depth).expand(p.seeds, -1, -1)
        training = Training(p.steps, p.learning_rate, seed=self.seed)
        loop = trainer(
            vae, lambda step: tree.flipped(x, p.flips), training, folder, report_every=20
        )
        yield from loop.run()
        with torch.no_grad(), loop.stream:
            latents = {"clean": vae.embed(x), "noisy": vae.embed(tree.flipped(x, p.flips))}
        scores = {
            column: correlations(self.model, latents[kind], p.depth).tolist()
            for column, kind in _COLUMNS.items()
        }
        return Outcome(scores, latents)

    def _vae(self) -> VAE:
        p, latent = self.protocol, self.model.latent()
        size, stack = 2**p.depth - 1, (p.seeds,)
        with seeded(self.seed):
            encoder = mlp([size, p.hidden, latent.encoder_outputs], stack=stack)
            decoder = mlp([latent.decoder_inputs, p.hidden, size], stack=stack)
        return VAE(encoder, decoder, latent, beta=self.model.beta)


def correlations(model: Model, z: Tensor, depth: int) -> Tensor:
    """Correlations of latent distances with those in the tree, ``(seeds, nodes, d) → (seeds,)``."""
    distances = model.latent().distance(z.unsqueeze(-2), z.unsqueeze(-3))
    return distance_correlation(distances, tree.hamming(tree.nodes(depth)))


# --- figures -----------------------------------------------------------------------------------


def figures(latents: Mapping[str, Mapping[str, Tensor]], depth: int) -> dict[str, Figure]:
    """Figures 1 and C.1 by name, from the latents ``(nodes, d)`` of one seed of each model, clean
    and noisy.
    """
    panels = {
        model.name: panel(model, **latents[model.name], depth=depth)
        for model in MODELS
        if model.name in _FIGURE_C1
    }
    return {
        "figure1": trees([panels[name] for name in _FIGURE_1], columns=2),
        "figure_c1": trees([panels[name] for name in _FIGURE_C1], columns=3),
    }


def panel(model: Model, clean: Tensor, noisy: Tensor, depth: int) -> TreePanel:
    """A tree as it is drawn, with geodesics as edges."""
    parents, t = tree.parents(depth), torch.linspace(0, 1, 33)
    edges = model.latent().geodesic(clean[parents, None], clean[1:, None], t)
    return TreePanel(
        title="hyperbolic" if model.hyperbolic else rf"vanilla, $\beta = {model.beta:g}$",
        clean=_drawn(model, clean),
        noisy=_drawn(model, noisy),
        edges=_drawn(model, edges),
        depths=tree.depths(depth).numpy(),
        disc=model.hyperbolic,
    )


def _drawn(model: Model, z: Tensor) -> Array:
    """Latents as points of the page: on the Poincaré disc, or as they are."""
    y = charts.to_poincare(z) if model.hyperbolic else z
    return y.numpy().astype(np.float64)
