"""Nodes of a graph, words of a hierarchy: each a distribution in hyperbolic space (§4.2)."""

from hyperwrap.embedding.evaluate import Evaluation
from hyperwrap.embedding.fit import embed
from hyperwrap.embedding.model import Embedding, Match
from hyperwrap.embedding.recipe import PAPER, Recipe

__all__ = ["PAPER", "Embedding", "Evaluation", "Match", "Recipe", "embed"]
