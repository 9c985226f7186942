"""Every Python block of the pages that teach runs, in order, in one namespace a page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")  # Dynamo's own
@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/index.md",
        "docs/guide/hierarchy.md",
        pytest.param("docs/guide/cells.md", marks=pytest.mark.slow),
        pytest.param("docs/guide/distributions.md", marks=pytest.mark.slow),
        pytest.param("docs/guide/statistics.md", marks=pytest.mark.slow),
        "docs/guide/vae.md",
        pytest.param("docs/gallery.md", marks=pytest.mark.slow),
    ],
)
def test_code_on_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.S | re.M)
    assert blocks
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), namespace)
