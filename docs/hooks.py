"""What the site is built with besides Markdown: doctests, notebooks, and the explorer of the nouns.

Markdown would read ``>>>`` as a quotation in a quotation. A notebook becomes a page, with the
outputs that are stored in it.
"""

import json
from base64 import b64decode
from collections.abc import Iterator
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
    found = sorted((Path(config.docs_dir) / "notebooks").glob("*.ipynb"))
    guides = next(part["Guides"] for part in config.nav if "Guides" in part)
    guides.append({"Notebooks": [f"notebooks/{path.stem}.md" for path in found]})
    return config


_built: list[Path] = []  # once, however often `mkdocs serve` builds the site


def on_files(files: Files, config: Any) -> Files:
    """Adds the notebooks as pages, and the explorer of the front page."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        stem = file.src_uri.removesuffix(".ipynb")
        pictures: list[bytes] = []
        text = "\n\n".join(_blocks(json.loads(file.content_string), Path(stem).name, pictures))
        files.append(File.generated(config, f"{stem}.md", content=text))
        for i, picture in enumerate(pictures):
            files.append(File.generated(config, f"{stem}-{i}.png", content=picture))
    _add_nouns(files, config)
    return files


def _blocks(notebook: dict[str, Any], stem: str, pictures: list[bytes]) -> Iterator[str]:
    """The cells in Markdown, with what they gave; pictures are put into the list."""
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        yield source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                yield f"![{stem}]({stem}-{len(pictures)}.png)"
                pictures.append(b64decode("".join(data["image/png"])))
            elif "text/html" in data:
                yield "".join(data["text/html"])
            elif text := "".join(data.get("text/plain", output.get("text", ""))):
                yield f"```text\n{text.rstrip()}\n```"
    yield f"[Download this notebook]({stem}.ipynb)"


def _add_nouns(files: Files, config: Any) -> None:
    """The explorer on the front page: all nouns of WordNet, placed in the plane."""
    if not _built:
        _built.append(Path(mkdtemp()) / "nouns.html")
        nouns = hw.embed("wordnet", dim=2, epochs=0)
        hw.view(nouns, title="The nouns of WordNet").save(_built[0])
    files.append(File.generated(config, "explorer/nouns.html", abs_src_path=str(_built[0])))
