"""The explorer beside hyper-scatter: frames per second while dragging, time to the first picture.

Both draw the same points in one Chromium, one after the other in turns, on a canvas of 800 × 800
pixels. A frame is a drag by a few pixels, the drawing of it, and the reading of a pixel, which
waits until the picture is there. Needs Chromium, chromedriver and ``npm install hyper-scatter``:

    python benchmarks/explorer.py --hyper-scatter node_modules/hyper-scatter -o explorer.json
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

import hyperwrap as hw
from hyperwrap.embedding.layout import layout
from hyperwrap.files import as_json, write_whole
from hyperwrap.graphs.hierarchy import Hierarchy
from hyperwrap.view import Explorer, serving
from hyperwrap.view.server import File

SIZE = 800
ROUNDS = 3
FLAGS = """
    --headless --no-sandbox --disable-gpu --use-angle=swiftshader --enable-unsafe-swiftshader
    --disable-quic --no-first-run --disable-background-networking --disable-component-update
    --disable-sync
"""

# --- data ----------------------------------------------------------------------------------------


def cloud(n: int) -> torch.Tensor:
    """Twenty wrapped normal clusters within radius 6, where float32 is good enough for both."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(20, 2, dtype=torch.float64, generator=generator)
    centres *= 5 * torch.rand(20, 1, generator=generator) / centres.norm(dim=1, keepdim=True)
    which = torch.randint(20, (n,), generator=generator)
    v = 0.4 * torch.randn(n, 2, dtype=torch.float64, generator=generator)
    return hw.lorentz.log0(hw.lorentz.wrap(hw.lorentz.exp0(centres[which]), v))


def tree(n: int) -> hw.Embedding:
    """A taxonomy: one node in ten has children."""
    rng = np.random.default_rng(0)
    inner = n // 10
    parent = np.empty(n, np.int64)
    parent[:inner] = np.arange(inner) * rng.random(inner) ** 1.5
    parent[inner:] = rng.integers(inner // 8, inner, n - inner)
    names = [f"{'abcdefghij'[i % 10]}-{i}" for i in range(n)]
    h = Hierarchy(names, np.stack([np.arange(1, n), parent[1:]], 1))
    laid = layout(h)
    return hw.Embedding(names, laid.tangent, laid.scale, covariance="scalar", hierarchy=h)


# --- pages ---------------------------------------------------------------------------------------

THEIRS = """<!doctype html><title>hyper-scatter</title><style>body { margin: 0 }</style>
<canvas id="c" style="width: %(size)dpx; height: %(size)dpx; display: block"></canvas>
<script type="module">
import { createDatasetFromColumns, createScatterPlot } from "/theirs/index.js";
const xy = new Float32Array(await (await fetch("/xy")).arrayBuffer()), n = xy.length / 2;
const x = new Float32Array(n), y = new Float32Array(n), canvas = document.getElementById("c");
for (let i = 0; i < n; i++) [x[i], y[i]] = [xy[2 * i], xy[2 * i + 1]];
const plot = createScatterPlot(canvas, { geometry: "poincare", width: %(size)d, height: %(size)d,
  devicePixelRatio: 1, pointRadius: 1, backgroundColor: "#ffffff", colors: ["#0072b2"],
  dataset: createDatasetFromColumns("poincare", x, y, new Uint16Array(n)) });
const gl = canvas.getContext("webgl2"), pixel = new Uint8Array(4);
const none = { shift: false, ctrl: false, alt: false, meta: false };
const wait = () => gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel);
plot.render();
wait();
window.first = performance.now();
plot.startPan(400, 400);
window.frame = (dx, dy) => { plot.pan(dx, dy, none); plot.render(); wait(); };
</script>"""

OURS = """
const e = explorer, s = e.scene, gl = s.painter.gl, pixel = new Uint8Array(4);
Object.assign(e.root.style, { width: "%(size)dpx", height: "%(size)dpx" });

Object.assign(e.view.style, { position: "fixed", inset: "0", zIndex: "9" });
Object.assign(e.view.style, { width: "%(size)dpx", height: "%(size)dpx" });
s.setSize(%(size)d, %(size)d, 1);
e.overlay.setSize(%(size)d, %(size)d, 1);
s.tolerance = %(tolerance)s;
s.edges = %(edges)s;
const wait = () => gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, pixel);
let x = 400, y = 400;
window.frame = (dx, dy) => {
  s.drag(x, y, x + dx, y + dy);
  [x, y] = [x + dx, y + dy];
  e.draw();
  wait();
};
"""

MEASURE = """
const done = arguments[0];
for (let i = 0; i < 3; i++) frame(3, 2);
const times = [], start = performance.now();
for (let i = 0; i < 200 && performance.now() - start < 4000; i++) {
  const angle = i / 6, before = performance.now();
  frame(9 * Math.cos(angle), 9 * Math.sin(angle));
  times.push(performance.now() - before);
}
done(times);
"""


def theirs(package: Path, h: torch.Tensor) -> dict[str, File]:
    y = hw.charts.to_poincare(hw.lorentz.exp0(h)).float().numpy()
    home = package / "dist-lib"
    modules = {
        f"/theirs/{path.relative_to(home)}": File(path.read_bytes(), "text/javascript")
        for path in home.rglob("*.js")
    }
    text = THEIRS % {"size": SIZE}
    return modules | {"/": File(text.encode(), "text/html"), "/xy": File(y.tobytes())}


def first_picture(driver: webdriver.Chrome, what: str) -> float:
    end = time.monotonic() + 120
    while (found := driver.execute_script(f"return {what}")) is None:
        assert time.monotonic() < end, driver.get_log("browser")
        time.sleep(0.02)
    return found / 1000


def frames(driver: webdriver.Chrome) -> float:
    """Frames per second, from the median."""
    return 1000 / statistics.median(driver.execute_async_script(MEASURE))


FIRST = "(performance.getEntriesByName('first picture')[0] ?? {}).startTime ?? null"


def measure_ours(
    driver: webdriver.Chrome, explorer: Explorer, ways: dict[str, tuple[float, bool]]
) -> dict[str, dict[str, Any]]:
    with serving(explorer.files()) as server:
        driver.get(server.url)
        first = first_picture(driver, FIRST)
        found = {}
        for way, (tolerance, edges) in ways.items():
            setting = {"size": SIZE, "tolerance": tolerance, "edges": str(edges).lower()}
            driver.execute_script(OURS % setting)
            speed = frames(driver)
            drawn = driver.execute_script("return explorer.scene.drawn")
            found[way] = {"frames per second": speed, "first picture": first, "drawn": drawn}
        return found


def measure_theirs(driver: webdriver.Chrome, files: dict[str, File], n: int) -> dict[str, Any]:
    with serving(files) as server:
        driver.get(server.url)
        first = first_picture(driver, "window.first ?? null")
        return {
            "frames per second": frames(driver),
            "first picture": first,
            "drawn": {"points": n, "edges": 0},
        }


# --- the runs ------------------------------------------------------------------------------------

POINTS = {"every point": (0.0, False), "what can be seen": (0.75, False)}
TREE = {"edges off": (0.75, False), "edges on": (0.75, True)}


def compared(driver: webdriver.Chrome, package: Path, n: int) -> Iterator[dict[str, Any]]:
    h = cloud(n)
    ours, rival = hw.view(hw.lorentz.exp0(h), title="Cloud"), theirs(package, h)
    taxonomy = tree(n)
    explorer, other = hw.view(taxonomy, title="Tree"), theirs(package, taxonomy.tangent)
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for _ in range(ROUNDS):
        for data, page_, way, files in (
            ("cloud", ours, POINTS, rival),
            ("tree", explorer, TREE, other),
        ):
            for name, one in measure_ours(driver, page_, way).items():
                runs.setdefault((data, f"hyperwrap, {name}"), []).append(one)
            runs.setdefault((data, "hyper-scatter"), []).append(measure_theirs(driver, files, n))
    for (data, name), many in runs.items():
        yield {
            "points": n,
            "data": data,
            "explorer": name,
            "frames per second": statistics.median(one["frames per second"] for one in many),
            "first picture": statistics.median(one["first picture"] for one in many),
            "drawn": many[-1]["drawn"],
            "rounds": many,
        }


def large(driver: webdriver.Chrome, n: int, folder: Path) -> dict[str, Any]:
    """A tree of the size of NCBI's taxonomy, as one page opened from disk."""
    start = time.perf_counter()
    explorer = hw.view(tree(n), title="Large")
    written = explorer.save(folder / "large.html")
    seconds = time.perf_counter() - start
    driver.get(written[0].as_uri())
    first = first_picture(driver, FIRST)
    driver.execute_script(OURS % {"size": SIZE, "tolerance": 0.75, "edges": "true"})
    return {
        "points": n,
        "page made in": seconds,
        "bytes": sum(path.stat().st_size for path in written),
        "files": len(written),
        "first picture": first,
        "frames per second": frames(driver),
        "search": searched(driver, ["a-1", "77", "f-99999"]),
    }


SEARCH = """
const [text, done] = arguments, { finder } = explorer.search, start = performance.now();
let first = null;
for await (const rows of finder.find(text, new AbortController().signal))
  if (rows.length) first ??= performance.now() - start;
done([first, performance.now() - start]);
"""


def searched(driver: webdriver.Chrome, texts: list[str]) -> dict[str, list[float]]:
    """Milliseconds to the first answer, and until all names were looked through."""
    script = f"(async (...arguments) => {{ {SEARCH} }})(...arguments)"
    return {text: driver.execute_async_script(script, text) for text in texts}


def nouns(driver: webdriver.Chrome, folder: Path) -> dict[str, Any]:
    embedding = hw.embed("wordnet", dim=2, epochs=0)
    written = hw.view(embedding).save(folder / "nouns.html")
    driver.get(written[0].as_uri())
    return {
        "points": len(embedding),
        "bytes": written[0].stat().st_size,
        "first picture": first_picture(driver, FIRST),
        "search": searched(driver, ["dog", "e", "ical", "domestic cat", "zzzz"]),
    }


def browser() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in [*FLAGS.split(), f"--user-data-dir={tempfile.mkdtemp()}", "--window-size=1200,900"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    driver.set_script_timeout(120)
    return driver


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hyper-scatter", type=Path, required=True)
    parser.add_argument("--sizes", type=float, nargs="*", default=[1e5, 1e6])
    parser.add_argument("--large", type=float, default=2.6e6)
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    found: dict[str, Any] = {"rows": []}
    if args.output.exists():
        found = json.loads(args.output.read_text())
    with browser() as driver, tempfile.TemporaryDirectory() as folder:
        capabilities = driver.capabilities
        found["browser"] = f"{capabilities['browserName']} {capabilities['browserVersion']}"
        package = json.loads((args.hyper_scatter / "package.json").read_text())
        found["hyper-scatter"] = package["version"]
        found["hyperwrap"] = version("hyperwrap")
        for n in args.sizes:
            found["rows"] = [row for row in found["rows"] if row["points"] != int(n)]
            for row in compared(driver, args.hyper_scatter, int(n)):
                found["rows"].append(row)
                print({key: row[key] for key in row if key != "rounds"}, flush=True)
        if not args.sizes:
            found["nouns"] = nouns(driver, Path(folder))
            print(found["nouns"], flush=True)
            if args.large:
                found["large"] = large(driver, int(args.large), Path(folder))
                print(found["large"], flush=True)
    write_whole(args.output, as_json(found))


if __name__ == "__main__":
    main()
