r"""The norm sweep (§5.3, App. C.3): what a model makes of ``a·ṽ/|ṽ|``, the further out the larger.

Directions are those of ``ṽ ~ N(0, I)``. A hyperbolic model is given the point ``exp₀(a·ṽ/|ṽ|)``, at
distance ``a`` from the origin, a vanilla one the vector itself. The same seed gives the same
directions for both.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hyperwrap.vae import VAE
from nagano2019.breakout import screen

__all__ = [
    "GRID_NORMS",
    "ROW_NORMS",
    "columns",
    "directions",
    "images",
    "measure",
    "norms",
]

ROW_NORMS: list[float] = np.geomspace(1, 10, 10).tolist()
"""Of the rows of the figure in §5.3."""
GRID_NORMS: list[float] = [0.0, 1.0, 2.0, 3.0, 5.0, 10.0]
"""Of the grids of App. C.3."""
_FURTHER = [20.0, 50.0, 100.0, 200.0]
_AT_ONCE = 500  # images


def norms(geometry: str) -> list[float]:
    """Where the remaining-block ratio is measured: to 10, vanilla models to 200 as in the paper."""
    return [0.0, *ROW_NORMS, *(_FURTHER if geometry == "vanilla" else [])]


def directions(count: int, n: int, seed: int) -> Tensor:
    """Unit vectors ``(count, n)``."""
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(count, n, generator=generator), dim=1)


@torch.no_grad()
def images(vae: VAE, v: Tensor) -> Tensor:
    """Grey screens that the model makes of tangent vectors at the origin, ``(m, n) → (m, 80, 80)``.

    Means of ``p(x|z)``; not cut to 0 to 255.
    """
    parts = v.to(vae.beta.device).split(_AT_ONCE)
    made = [vae.generate(vae.latent.centre(part)).squeeze(1) for part in parts]
    return screen.grey(torch.cat(made))


def measure(vae: VAE, norms: Sequence[float], count: int, seed: int) -> dict[str, Tensor]:
    """What the model's screens show at each norm in each direction, ``(norms, count)``, on the CPU.

    ``blocks`` is the remaining-block ratio, and ``field`` the ratio of the field, at least .99 on a
    screen of the game.
    """
    v = directions(count, vae.latent.n, seed)
    made = (images(vae, a * v) for a in norms)
    ratios = [torch.stack([screen.block_ratio(x), screen.field_ratio(x)]).cpu() for x in made]
    blocks, field = torch.stack(ratios, 1)
    return {"blocks": blocks, "field": field}


def columns(norms: Sequence[float], blocks: Tensor) -> dict[str, float | None]:
    """What the tables say of these ratios, ``(norms, count)``: their means at two norms, and by how
    much the mean rises most from one norm to the next, up to 10.
    """
    mean = dict(zip(norms, blocks.double().mean(1).tolist(), strict=True))
    to_ten = torch.tensor([ratio for a, ratio in mean.items() if a <= 10])
    return {
        "blocks at 10": mean.get(10.0),
        "blocks at 200": mean.get(200.0),
        "largest rise": max(0.0, to_ten.diff().max().item()),
    }
