"""`Explorer`: what `hw.view` returns, for a notebook, a file or a browser."""

import gzip
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

from hyperwrap.errors import needs_extra
from hyperwrap.view.page import page, script, style, write_page
from hyperwrap.view.server import File

__all__ = ["Explorer"]

_EFFORT = 6  # of gzip, 1 … 9


class Explorer:
    """An embedding, a VAE's latents or points, to look at.

    As the last value of a notebook's cell it shows itself, by anywidget.

    Args:
        data: what `hyperwrap.view.pack` makes; here it is compressed.
        title: what stands above it.
    """

    height: ClassVar[int] = 620
    """Pixels in a notebook."""

    def __init__(self, data: bytes, title: str) -> None:
        self.data, self.title = gzip.compress(data, _EFFORT, mtime=0), title

    def __repr__(self) -> str:
        return f"Explorer({self.title!r})"

    def save(self, path: str | PathLike[str]) -> list[Path]:
        """Writes one page, and beside it its data if they are too large to go into it.

        >>> pets = hw.embed({"puppy": "dog", "dog": "animal", "cat": "animal"}, dim=2, epochs=0)
        >>> [path.name for path in hw.view(pets).save(getfixture("tmp_path") / "pets.html")]
        ['pets.html']
        """
        return write_page(Path(path), self.data, self.title)

    def files(self) -> dict[str, File]:
        """The page and its data, for a `Server`."""
        return {
            "/": File(page("page.data", self.title).encode(), "text/html; charset=utf-8"),
            "/page.data": File(self.data),
        }

    def widget(self) -> Any:
        """The widget of a notebook."""
        with needs_extra("view"):
            import anywidget  # pyright: ignore[reportMissingImports]
            import traitlets  # pyright: ignore[reportMissingImports]
        synced = {
            "data": traitlets.Bytes(self.data).tag(sync=True),
            "height": traitlets.Int(self.height).tag(sync=True),
        }
        made = type("Explorer", (anywidget.AnyWidget,), synced)
        return made(_esm=script(), _css=style())

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.widget()._repr_mimebundle_(**options)
