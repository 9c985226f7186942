"""How to train an embedding: what was found to work best, and what the paper did.

The values of `Recipe`, of `EUCLIDEAN` and of `POINT` were found by coordinate descent on the nouns
of WordNet: 100 epochs, n = 5, judged by the MAP of 3,000 random nodes, with the same effort for
each kind of node. `hw.embed` and the tables of the reproduction train with them.
"""

from dataclasses import dataclass, replace
from math import log, log1p
from typing import Any, Literal

from hyperwrap.errors import UserError

__all__ = ["EUCLIDEAN", "PAPER", "POINT", "Recipe"]


@dataclass(frozen=True)
class Recipe:
    """All that decides the training except the graph, the dimension, the kind of node and the seed.

    The defaults are for Gaussians in hyperbolic space.
    """

    objective: Literal["softmax", "tempered", "hinge"] = "softmax"
    """Rank the parent first among negatives, by the loss or by log(1 + loss), which is moved less
    by what is far off; or keep it ahead of one negative by a margin, as the paper does."""
    epochs: int = 300
    batch: int = 4096
    """Edges per step; a graph with few edges gets smaller batches."""
    negatives: int = 256
    """For the softmax, shared by the edges of a group. The hinge has one per edge."""
    parent_negatives: float = 0.8
    """The share of negatives drawn among nodes that are parents; the rest among all nodes."""
    group: int = 32
    draws: int = 1
    """Samples of each child, for the hinge."""
    learning_rate: float = 0.1
    scale_learning_rate: float = 0.03
    """The learning rate for log σ."""
    betas: tuple[float, float] = (0.5, 0.95)
    """Adam's decay rates."""
    eps: float = 0.001
    """Adam's ε, in units of the gradient of one edge: smaller gradients make smaller steps."""
    burn_in: int = 10
    """Epochs at the start with the rate times ``burn_in_factor``."""
    burn_in_factor: float = 0.1
    decay: bool = True
    """Whether the rate falls linearly to 0."""
    margin: float = 0.0
    radius: float | None = None
    """The largest distance of a centre from the origin; in hyperbolic space never more than 40.
    That is as far as float32 serves, and long training in the plane would move outward forever."""
    scale_bounds: tuple[float, float] = (0.01, 10.0)
    """The least and the largest ``σ``: a node without parents would grow without end."""
    initial_spread: float = 0.01
    """Standard deviation of the coordinates of ``h`` at the start."""
    initial_scale: float = 0.03

    def __post_init__(self) -> None:
        if self.objective not in ("softmax", "tempered", "hinge"):
            raise UserError(
                f"Expected `objective` softmax, tempered or hinge; got {self.objective!r}."
            )
        for name in ("batch", "negatives", "group", "draws"):
            if getattr(self, name) < 1:
                raise UserError(f"Expected `{name}` ≥ 1; got {getattr(self, name)}.")

    def lasting(self, epochs: int) -> "Recipe":
        """The same for this many epochs; short training has a short burn-in.

        >>> Recipe().lasting(50).burn_in
        5
        """
        return self.but(epochs=epochs, burn_in=min(self.burn_in, -(-epochs // 10)))

    def but(self, **changes: Any) -> "Recipe":
        """The same with some fields changed."""
        return replace(self, **changes)


EUCLIDEAN = Recipe(batch=8192, learning_rate=0.2, scale_learning_rate=0.1, eps=0.01)
"""For Gaussians in Euclidean space."""
POINT = Recipe(batch=8192, learning_rate=0.035, eps=0.01, betas=(0.9, 0.99), burn_in=20)
"""For points."""
PAPER = Recipe(
    objective="hinge",
    epochs=1001,
    batch=1000,
    group=8,
    draws=50,
    learning_rate=0.6,
    burn_in=50,
    burn_in_factor=1 / 38,
    decay=False,
    margin=37.0,
    radius=4.3,
    scale_bounds=(log1p(0.13), log1p(1.55)),
    initial_scale=log(2),
    parent_negatives=0.0,
)
"""The paper's: a hinge on KL energies and AdaGrad; for WordNet 744,000 steps of 1000 edges."""
