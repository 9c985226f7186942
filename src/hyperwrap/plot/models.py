"""What a model learned: its training curves, and what lies between two of its latents."""

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from hyperwrap.errors import UserError
from hyperwrap.plot.style import FAMILIES, style, the_axes
from hyperwrap.vae import VAE

__all__ = ["interpolation", "training"]


def training(
    run: str | PathLike[str], ax: Axes | None = None, *, metrics: Sequence[str] | None = None
) -> Axes:
    """Draws what a run reported while it trained, over its steps.

    Args:
        run: the folder of a run, with its ``metrics.jsonl``.
        ax: axes to draw on; new ones by default.
        metrics: which numbers; by default the first two it has. The second has its own axis at
            the right.
    """
    reports = _reports(Path(run) / "metrics.jsonl")
    named = dict.fromkeys(k for r in reports for k in r if k != "step")
    chosen = list(metrics) if metrics is not None else list(named)[:2]
    if unknown := [name for name in chosen if name not in named]:
        raise UserError(
            f"Expected metrics that the run has ({', '.join(named)}); got {unknown[0]!r}."
        )
    with style():
        ax = the_axes(ax, 5.0, 3.0)
        for i, name in enumerate(chosen):
            each = ax if i == 0 else ax.twinx()
            steps = [r["step"] for r in reports if name in r]
            values = np.array([np.mean(r[name]) for r in reports if name in r])
            colour, marker = FAMILIES[i % len(FAMILIES)]
            shown = marker if len(steps) < 30 else None
            each.plot(steps, values, color=colour, marker=shown, linewidth=1.1)
            each.set_ylabel(name, color=colour)
            each.spines["top"].set_visible(False)
        ax.set_xlabel("step")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return ax


def _reports(path: Path) -> list[dict]:
    if not path.exists():
        raise UserError(
            f"Expected the folder of a training run, with a metrics.jsonl; {path.parent} has none."
        )
    return [json.loads(line) for line in path.read_text().splitlines()]


@torch.no_grad()
def interpolation(
    vae: VAE,
    a: Tensor,
    b: Tensor,
    ax: Axes | None = None,
    *,
    steps: int = 9,
    shape: tuple[int, int] | None = None,
) -> Axes:
    """Draws what a VAE generates along the geodesic between the latents of two examples.

    Images stand side by side; other data are rows of a heat map, from ``a`` on top to ``b``.

    Args:
        vae: a trained model.
        a: an example, of the shape that the encoder takes.
        b: another.
        ax: axes to draw on; new ones by default.
        steps: how many places, both ends included.
        shape: height and width, where a row of numbers is an image.
    """
    ends = vae.embed(torch.stack([a, b]))
    made = vae.generate(vae.interpolate(ends[:1], ends[1:], steps)).flatten(0, 1).cpu()
    image = made.reshape(steps, *shape) if shape else made.squeeze(1)
    with style():
        if image.dim() == 3:
            ax = the_axes(ax, 0.7 * steps, 0.8)
            tall, wide = image.shape[1:]
            shown = image.permute(1, 0, 2).reshape(tall, steps * wide)
            ax.imshow(shown.numpy(), cmap="gray_r", interpolation="nearest")
            ax.set_axis_off()
        else:
            ax = the_axes(ax, 5.0, 2.2)
            ax.imshow(
                image.flatten(1).numpy(), cmap="viridis", aspect="auto", interpolation="nearest"
            )
            ax.set(xlabel="column", ylabel="step")
    return ax
