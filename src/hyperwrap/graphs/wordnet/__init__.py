"""The nouns of WordNet 3.0 and their hypernyms, shipped with the package (§5.4).

All nouns: 82,115 synsets, 84,427 edges to a hypernym, of a kind or of an instance alike; one root,
``entity.n.01``. Closure: 743,241 edges; at most 34 ancestors, 9.05 per synset on average.
Mammals: 1,180 synsets; closure: 6,540 edges.

Names are those of NLTK: first lemma, ``n``, position of the synset among the senses of the lemma.
``nouns.tsv.gz`` is an ordinary edge list; ``tools/build_wordnet.py`` makes it from the files of
Princeton University, whose notice is in ``LICENSE``.
"""

from pathlib import Path

from hyperwrap.graphs.edges import read_edges
from hyperwrap.graphs.hierarchy import Hierarchy

__all__ = ["mammals", "nouns"]

_FILE = Path(__file__).parent / "nouns.tsv.gz"
# Left out by those who published results on the mammals; nothing is below them.
_NO_MAMMALS = ("tusker.n.01", "female_mammal.n.01")


def nouns() -> Hierarchy:
    """All nouns, with their direct hypernyms.

    >>> nouns()
    Hierarchy(82,115 nodes, 84,427 edges)
    """
    return read_edges(_FILE)


def mammals() -> Hierarchy:
    """``mammal.n.01`` and its hyponyms, without ``tusker.n.01`` and ``female_mammal.n.01``.

    >>> mammals()
    Hierarchy(1,180 nodes, 1,180 edges)
    >>> mammals().closure()
    Hierarchy(1,180 nodes, 6,540 edges)
    """
    return nouns().below("mammal.n.01").without(_NO_MAMMALS)
