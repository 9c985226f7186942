"""How to train an embedding: what was measured to work best, and what the paper did."""

from dataclasses import dataclass, replace
from math import log, log1p
from typing import Any, Literal

from hyperwrap.errors import UserError

__all__ = ["PAPER", "Recipe"]


@dataclass(frozen=True)
class Recipe:
    """All that decides a training but the graph, the dimension, the kind of node and the seed."""

    objective: Literal["softmax", "hinge"] = "softmax"
    """Rank the parent first among negatives, or keep it ahead of one by a margin (the paper)."""
    epochs: int = 300
    batch: int = 4096
    """Edges a step; a graph with few edges is given smaller batches."""
    negatives: int = 256
    """For the softmax; shared by the edges of a group. The hinge has one an edge."""
    parent_negatives: float = 0.8
    """The share of negatives drawn among nodes that are parents; the rest among all nodes."""
    group: int = 32
    draws: int = 1
    """Samples of an anchor, for the hinge."""
    learning_rate: float = 0.05
    scale_learning_rate: float = 0.03
    """Of log σ."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Of Adam."""
    eps: float = 0.01
    """Of Adam, in units of the gradient of one edge: smaller gradients make smaller steps."""
    burn_in: int = 10
    """Epochs at the start with the rate times ``burn_in_factor``."""
    burn_in_factor: float = 0.1
    decay: bool = True
    """Whether the rate falls linearly to 0."""
    margin: float = 0.0
    radius: float = float("inf")
    """Largest distance of a centre from the origin; only the paper has one."""
    scale_bounds: tuple[float, float] = (0.01, 10.0)
    """Of ``σ``: a node without parents of its own would grow without end."""
    initial_spread: float = 0.01
    """Standard deviation of the coordinates of ``h`` at the start."""
    initial_scale: float = 0.1

    def __post_init__(self) -> None:
        if self.objective not in ("softmax", "hinge"):
            raise UserError(f"Expected `objective` softmax or hinge; got {self.objective!r}.")
        for name in ("batch", "negatives", "group", "draws"):
            if getattr(self, name) < 1:
                raise UserError(f"Expected `{name}` ≥ 1; got {getattr(self, name)}.")

    def lasting(self, epochs: int) -> "Recipe":
        """The same for so many epochs; a short training has a short burn-in.

        >>> Recipe().lasting(50).burn_in
        5
        """
        return self.but(epochs=epochs, burn_in=min(self.burn_in, -(-epochs // 10)))

    def but(self, **changes: Any) -> "Recipe":
        """The same with some fields changed."""
        return replace(self, **changes)


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
"""The paper's: a hinge on KL energies and AdaGrad, for WordNet 744,000 steps of 1000 edges."""
