r"""Table 1, Figure 1 and Appendix C.1: a binary tree, seen through noise, in two dimensions.

The data are the 255 nodes of a tree of depth 8 (`data.tree`), each coordinate flipped with
probability ``p = 0.1``, drawn afresh at every step; the clean vectors are never trained on. Models:
the β-VAE with latents in the plane, ``β = 0.1, 1, 2, 3, 4``, and the hyperbolic VAE, ``β = 1``.
Encoder and decoder have one hidden layer of 100 and tanh, the posterior a diagonal ``Σ``; Adam
1e-3, all nodes in each batch, 1200 steps, one sample.

With latents ``z_i``, the centres of ``q(z|x_i)``, the number in the table is Pearson's correlation
between the Hamming distances of the clean ``x_i, x_j`` and the latent distances ``d(z_i, z_j)``
over all 32,385 pairs. *With noise*, each ``z_i`` comes from one noisy draw of its node.

All seeds of one model train stacked in one program on one thread. The models are shared out
among processes, one a core: matrices this small gain little from a second thread, and lose a lot
where another program wants the core. Every model sees the same noise, that of its seed.
"""

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from hyperwrap import charts
from hyperwrap.runs import Row, Run
from hyperwrap.threads import one_thread
from hyperwrap.vae import VAE, EuclideanLatent, HyperbolicLatent, mlp
from hyperwrap.vae.train import Progress, Trainer, Training
from nagano2019.data import tree
from nagano2019.figures import Array, Figure, TreePanel, rendered, trees
from nagano2019.metrics import distance_correlation

__all__ = [
    "MODELS",
    "PROTOCOL",
    "REMARK",
    "Latents",
    "Model",
    "Protocol",
    "figures",
    "reproduce",
    "table",
]

REMARK = """\
- correlation: Pearson, over all pairs of nodes, between the Hamming
  distance of the clean vectors and the distance of the latents
- with noise: the same with the latents of one noisy draw of each node
- mean ± standard deviation over seeds; in brackets the paper's mean,
  and by how much ours differs"""

Watch = Callable[[str, Progress], None]


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
_FIGURE_1 = ("vanilla β=1", "hyperbolic")
_FIGURE_C1 = ("vanilla β=0.1", "vanilla β=1", "vanilla β=2", "vanilla β=3", "hyperbolic")


@dataclass(frozen=True)
class Protocol:
    """The paper's, unless a test is in a hurry."""

    depth: int = 8
    hidden: int = 100
    flips: float = 0.1
    steps: int = 1200
    learning_rate: float = 1e-3
    seeds: int = 5


PROTOCOL = Protocol()


@dataclass(frozen=True)
class Latents:
    """Centres of the posterior, ``(seeds, nodes, d)``, of the clean nodes and of noisy draws."""

    clean: Tensor
    noisy: Tensor


def reproduce(
    run: Run,
    watch: Watch = lambda name, progress: None,
    *,
    protocol: Protocol = PROTOCOL,
    processes: int | None = None,
) -> tuple[list[Row], list[Path]]:
    """Trains, measures and draws into the folder of the run; returns the numbers and the pictures.

    What is killed resumes where its last checkpoint was: those lie in ``checkpoints``, until the
    results do. ``watch`` is called with the name of a model and how it stands.
    """
    checkpoints = run.folder / "checkpoints"
    jobs = [_Job(model, protocol, run.seed, checkpoints / _slug(model)) for model in MODELS]
    _train(jobs, watch, min(processes or os.cpu_count() or 1, len(jobs)))
    with one_thread():
        found = {job.model.name: _latents(job) for job in jobs}
        rows = table(found, protocol.depth)
        drawn = figures({name: _first_seed(each) for name, each in found.items()}, protocol.depth)
    files = {
        f"{name}.{form}": rendered(figure, form)
        for name, figure in drawn.items()
        for form in ("png", "pdf")
    }
    paths = [run.write(name, content) for name, content in files.items()]
    run.write("latents.safetensors", save(_tensors(found)))
    run.finish(rows, REMARK)
    shutil.rmtree(checkpoints)
    return rows, paths


# --- the table -----------------------------------------------------------------------------------


def table(latents: dict[str, Latents], depth: int) -> list[Row]:
    """Both correlations of every model, mean and standard deviation over the seeds."""
    return [
        _row(model, column, correlation, paper)
        for model in MODELS
        for column, correlation, paper in zip(
            ("correlation", "correlation with noise"),
            _correlations(model, latents[model.name], depth),
            model.paper,
            strict=True,
        )
    ]


def _correlations(model: Model, latents: Latents, depth: int) -> tuple[Tensor, Tensor]:
    """Clean and with noise, ``(seeds,)`` each."""
    hamming, distance = tree.hamming(tree.nodes(depth)), model.latent().distance
    clean, noisy = (
        distance_correlation(distance(z.unsqueeze(-2), z.unsqueeze(-3)), hamming)
        for z in (latents.clean, latents.noisy)
    )
    return clean, noisy


def _row(model: Model, column: str, values: Tensor, paper: float) -> Row:
    sd = values.std().item() if len(values) > 1 else None
    return Row(model.name, column, values.mean().item(), sd, len(values), paper)


# --- one model, all seeds stacked ----------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    model: Model
    protocol: Protocol
    seed: int
    folder: Path

    def trainer(self) -> Trainer:
        """At the last checkpoint, if there is one."""
        torch.manual_seed(self.seed)
        p = self.protocol
        x = tree.nodes(p.depth).expand(p.seeds, -1, -1)
        training = Training(p.steps, p.learning_rate, seed=self.seed)
        return Trainer(self._vae(), lambda step: tree.flipped(x, p.flips), training, self.folder)

    def _vae(self) -> VAE:
        p, latent = self.protocol, self.model.latent()
        size, stack = 2**p.depth - 1, (p.seeds,)
        encoder = mlp([size, p.hidden, latent.encoder_outputs], stack=stack)
        decoder = mlp([latent.decoder_inputs, p.hidden, size], stack=stack)
        return VAE(encoder, decoder, latent, beta=self.model.beta)

    def train(self) -> Iterator[Progress]:
        """From the last checkpoint to the end; a hundred steps are a second."""
        return self.trainer().run(report_every=20, save_every=200)


@torch.no_grad()
def _latents(job: _Job) -> Latents:
    """Of a trained model; the noise goes on where training left off."""
    vae, protocol = job.trainer().model, job.protocol
    x = tree.nodes(protocol.depth).expand(protocol.seeds, -1, -1)
    return Latents(vae.embed(x), vae.embed(tree.flipped(x, protocol.flips)))


def _slug(model: Model) -> str:
    return model.name.replace(" β=", "-")


def _tensors(latents: dict[str, Latents]) -> dict[str, Tensor]:
    return {
        f"{name}.{kind}": z.contiguous()
        for name, each in latents.items()
        for kind, z in (("clean", each.clean), ("noisy", each.noisy))
    }


# --- several models at a time --------------------------------------------------------------------


def _train(jobs: Sequence[_Job], watch: Watch, processes: int) -> None:
    """Trains all, shared out among processes; an error in one of them is raised here."""
    if processes > 1:
        _train_in_processes([jobs[i::processes] for i in range(processes)], watch)
        return
    with one_thread():
        for job in jobs:
            for progress in job.train():
                watch(job.model.name, progress)


def _train_in_processes(shares: Sequence[Sequence[_Job]], watch: Watch) -> None:
    workers = [_start(share) for share in shares]
    open_ends: list[Any] = [ours for ours, _ in workers]
    try:
        while open_ends:
            for ours in wait(open_ends):
                if _receive(ours, watch):
                    open_ends.remove(ours)
    finally:
        for ours, process in workers:
            ours.close()
            process.terminate()
            process.join()


def _start(share: Sequence[_Job]) -> tuple[Any, BaseProcess]:
    context = get_context("spawn")  # a fork would inherit torch's threads in an unknown state
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(share, theirs), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _receive(ours: Any, watch: Watch) -> bool:
    """Passes one message on; whether it was the last."""
    try:
        message = ours.recv()
    except EOFError:
        raise RuntimeError("Expected a trained model; the process that trained it died.") from None
    if isinstance(message, Exception):
        raise message
    if message is not None:
        watch(*message)
    return message is None


def _work(share: Sequence[_Job], theirs: Any) -> None:
    """What a process does. If nobody is left to report to, it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # that is for the one who started us
    torch.set_num_threads(1)
    try:
        for job in share:
            for progress in job.train():
                theirs.send((job.model.name, progress))
        theirs.send(None)
    except BrokenPipeError:
        pass
    except Exception as error:
        theirs.send(error)


# --- figures -----------------------------------------------------------------------------------


def figures(latents: dict[str, Latents], depth: int) -> dict[str, Figure]:
    """Figures 1 and C.1 by name, from latents ``(nodes, d)`` of one seed."""
    panels = {
        model.name: _panel(model, latents[model.name], depth)
        for model in MODELS
        if model.name in _FIGURE_C1
    }
    return {
        "figure1": trees([panels[name] for name in _FIGURE_1], columns=2),
        "figure_c1": trees([panels[name] for name in _FIGURE_C1], columns=3),
    }


def _first_seed(latents: Latents) -> Latents:
    return Latents(latents.clean[0], latents.noisy[0])


def _panel(model: Model, latents: Latents, depth: int) -> TreePanel:
    parents, t = tree.parents(depth), torch.linspace(0, 1, 33)
    child, parent = latents.clean[1:, None], latents.clean[parents, None]
    edges = model.latent().geodesic(parent, child, t)
    return TreePanel(
        title=_title(model),
        clean=_drawn(model, latents.clean),
        noisy=_drawn(model, latents.noisy),
        edges=_drawn(model, edges),
        depths=tree.depths(depth).numpy(),
        disc=model.hyperbolic,
    )


def _title(model: Model) -> str:
    return "hyperbolic" if model.hyperbolic else rf"vanilla, $\beta = {model.beta:g}$"


def _drawn(model: Model, z: Tensor) -> Array:
    """Latents as points of the page: on the Poincaré disc, or as they are."""
    y = charts.to_poincare(z) if model.hyperbolic else z
    return y.numpy().astype(np.float64)
