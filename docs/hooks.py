"""Doctests in docstrings as code. Markdown would read ``>>>`` as a quotation in a quotation."""

from typing import Any

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor


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
