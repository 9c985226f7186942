"""Draws the pictures of docs/gallery.md: each block of code, into the image that follows it."""

import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```\n+!\[[^]]*\]\(([^)]*)\)", re.S | re.M)

if __name__ == "__main__":
    namespace: dict[str, object] = {}
    for code, image in BLOCK.findall((DOCS / "gallery.md").read_text()):
        exec(compile(code, "gallery.md", "exec"), namespace)
        path = DOCS / image
        path.parent.mkdir(parents=True, exist_ok=True)
        plt.gcf().savefig(path, dpi=130)
        plt.close("all")
        print(path)
