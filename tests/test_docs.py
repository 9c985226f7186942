"""Every Python block of the pages that teach runs, in order, in one namespace per page."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted(path.relative_to(ROOT) for path in ROOT.glob("docs/notebooks/*.ipynb"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")  # Dynamo's own
@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/index.md",
        "docs/guide/hierarchy.md",
        pytest.param("docs/guide/cells.md", marks=pytest.mark.slow),
        pytest.param("docs/guide/distributions.md", marks=pytest.mark.slow),
        pytest.param("docs/guide/migration.md", marks=pytest.mark.slow),
        pytest.param("docs/guide/statistics.md", marks=pytest.mark.slow),
        pytest.param("docs/guide/posterior.md", marks=pytest.mark.slow),
        "docs/guide/vae.md",
        pytest.param("docs/gallery.md", marks=pytest.mark.slow),
        *(pytest.param(str(path), marks=pytest.mark.slow) for path in NOTEBOOKS),
    ],
)
def test_code_on_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = _code((ROOT / page).read_text(), notebook=page.endswith(".ipynb"))
    assert blocks
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), namespace)


def _code(text: str, *, notebook: bool) -> list[str]:
    """The blocks of a page, or the cells of a notebook: plain Python, without magics."""
    if not notebook:
        return re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    cells = json.loads(text)["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
