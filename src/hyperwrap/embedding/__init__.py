"""Nodes of a graph, words of a hierarchy: each a distribution in hyperbolic space (§4.2)."""

from hyperwrap.embedding.evaluate import Evaluation
from hyperwrap.embedding.fit import embed
from hyperwrap.embedding.model import Edge, Embedding, Match
from hyperwrap.embedding.recipe import PAPER, Recipe

__all__ = ["PAPER", "Edge", "Embedding", "Evaluation", "Match", "Recipe", "embed"]
