"""The explorer: embeddings, latents and points of hyperbolic space, to look at and move about in.

The room is called like a function: ``hw.view(embedding)``.
"""

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from hyperwrap.view.pack import pack
from hyperwrap.view.server import Server, serving
from hyperwrap.view.sources import coloured, source
from hyperwrap.view.widget import Explorer

__all__ = ["Explorer", "Server", "serving", "view"]


def view(
    what: Any,
    *,
    colour: Any = None,
    names: Sequence[str] | None = None,
    title: str | None = None,
) -> Explorer:
    """The explorer of an embedding, a VAE's latents, cells or points.

    What has more than two dimensions is shown in the plane, a hierarchy by its constructed layout
    and anything else by horospherical PCA; the page says how much that changes distances.

    Args:
        what: an `hw.Embedding`; the folder that ``hyperwrap embed`` or ``hyperwrap vae`` wrote; an
            AnnData with places in ``obsm["X_hyperbolic"]``, or its ``.h5ad`` file; or points of the
            hyperboloid, ``(N, n+1)``.
        colour: what nodes are coloured by at first: ``branch``, ``depth``, ``entropy``, ``radius``
            or a column of ``obs``; a table ``FILE`` or ``FILE:COLUMN`` with names in its first
            column; columns by title, as a mapping or a data frame; values by name, as a mapping or
            a series; or one value per node.
        names: of points.
        title: what stands above it.

    >>> pets = hw.embed({"puppy": "dog", "dog": "animal", "cat": "animal"}, dim=2, epochs=0)
    >>> hw.view(pets, colour="depth", title="Pets")
    Explorer('Pets')
    """
    found = coloured(source(what, names, title), colour)
    return Explorer(pack(found), found.about["title"])


class _Room(ModuleType):
    __call__ = staticmethod(view)


sys.modules[__name__].__class__ = _Room
