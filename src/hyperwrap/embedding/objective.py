r"""What an embedding is trained to do.

``f_c`` is how node ``c`` scores a draw ``z`` from another (`nodes.NodeType.scores`). For an edge
from ``a`` (the descendant) to ``b``, and negatives ``c``, there are two objectives:

- *softmax*: ``−log exp f_b / (exp f_b + Σ_c exp f_c)``, the ranking loss of Nickel & Kiela (2017)
  with energies for distances. The edges of a group share their negatives, and a negative that is
  another parent of the edge's child does not count.
- *hinge* (§4.2): ``relu(margin + f_c − f_b)`` for every draw, with one negative.

On a GPU `hyperwrap.kernels.triton_embedding` fuses drawing, scoring and their derivatives, and the
update of all nodes; it is tested against what is here.
"""

import torch
from torch import Tensor

from hyperwrap.embedding.known import Known
from hyperwrap.embedding.nodes import Nodes, NodeType

__all__ = ["hinge", "softmax"]


def softmax(
    kind: NodeType,
    nodes: Nodes,
    edges: Tensor,
    negatives: Tensor,
    noise: Tensor,
    known: Known | None = None,
) -> Tensor:
    """The losses ``(g, e)``.

    Args:
        kind: what a node is.
        nodes: all nodes.
        edges: ``(2, g, e)``, child then parent, in groups that share negatives.
        negatives: ``(g, k)``. One that is the child itself or, as far as ``known`` tells, another
            of its parents does not count.
        noise: ``(n, g, e)``.
        known: which pairs are edges.
    """
    child, parent = (side.unsqueeze(-1) for side in edges)
    negatives = negatives.unsqueeze(-2)
    ends = (nodes.at(some) for some in (parent, negatives))
    right, wrong = kind.scores(nodes.at(child), noise.unsqueeze(-1), *ends)
    clash = (negatives == child) | (negatives == parent)
    if known is not None:
        clash |= known(child, negatives)
    logits = torch.cat([right, wrong.masked_fill(clash, -torch.inf)], -1)
    return -torch.log_softmax(logits, -1)[..., 0]


def hinge(
    kind: NodeType, nodes: Nodes, edges: Tensor, negatives: Tensor, noise: Tensor, margin: float
) -> Tensor:
    """The losses ``(e,)``, means over draws.

    Args:
        kind: what a node is.
        nodes: all nodes.
        edges: ``(2, e)``, child then parent.
        negatives: ``(e,)``.
        noise: ``(n, s, e)``.
        margin: by how much a parent should score more than a negative.
    """
    ends = (nodes.at(some) for some in (edges[1:], negatives.unsqueeze(0)))
    right, wrong = kind.scores(nodes.at(edges[:1]), noise, *ends)
    return torch.relu(margin + wrong - right).mean(0)
