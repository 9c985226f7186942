"""What the site is built with besides Markdown: doctests as code, and the explorer of the nouns.

Markdown would read ``>>>`` as a quotation in a quotation.
"""

from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor
from mkdocs.structure.files import File, Files

import hyperwrap as hw


class _Doctests(Preprocessor):
    """Puts a fence around every paragraph that begins with ``>>>``."""

    def run(self, lines: list[str]) -> list[str]:
        fenced: list[str] = []
        inside = False
        for line in [*lines, ""]:
            if not inside and line.startswith(">>> "):
                fenced += ["", "```pycon"]
                inside = True
            elif inside and not line.strip():
                fenced.append("```")
                inside = False
            fenced.append(line)
        return fenced


class _DoctestExtension(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.preprocessors.register(_Doctests(md), "doctests", 40)  # before fences are read


def on_config(config: Any) -> Any:
    config.markdown_extensions.append(_DoctestExtension())
    return config


_built: list[Path] = []  # once, however often `mkdocs serve` builds the site


def on_files(files: Files, config: Any) -> Files:
    """The explorer on the front page: all nouns of WordNet, placed in the plane."""
    if not _built:
        _built.append(Path(mkdtemp()) / "nouns.html")
        nouns = hw.embed("wordnet", dim=2, epochs=0)
        hw.view(nouns, title="The nouns of WordNet").save(_built[0])
    files.append(File.generated(config, "explorer/nouns.html", abs_src_path=str(_built[0])))
    return files
