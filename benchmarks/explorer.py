"""The explorer beside hyper-scatter, and how exact it is: what docs/results/explorer.md says.

Both draw the same points in one Chromium, one after the other in turns, on a canvas of 800 × 800
pixels. A frame is a drag by a few pixels, the drawing of it, and the reading of a pixel, which
waits until the picture is there. Needs Chromium, chromedriver and ``npm install hyper-scatter``:

    python benchmarks/explorer.py frames -o explorer.json --hyper-scatter node_modules/hyper-scatter
    python benchmarks/explorer.py precision -o explorer.json
    python benchmarks/explorer.py nouns -o explorer.json
    python benchmarks/explorer.py axe -o explorer.json --axe node_modules/axe-core/axe.min.js
    python benchmarks/explorer.py large -o explorer.json --edges ncbi.tsv
"""

import argparse
import json
import os
import runpy
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
from hyperwrap.runs import commit
from hyperwrap.view import Explorer, serving
from hyperwrap.view.pack import pack
from hyperwrap.view.server import File
from hyperwrap.view.sources import Source

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
e.setModel("%(model)s");
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


def ours(tolerance: float, *, edges: bool, model: str) -> str:
    """A script that makes the explorer ready to be measured."""
    setting = {"size": SIZE, "tolerance": tolerance, "edges": str(edges).lower(), "model": model}
    return OURS % setting


def measure_ours(
    driver: webdriver.Chrome, explorer: Explorer, ways: dict[str, tuple[float, bool, str]]
) -> dict[str, dict[str, Any]]:
    with serving(explorer.files()) as server:
        driver.get(server.url)
        first = first_picture(driver, FIRST)
        found = {}
        for way, (tolerance, edges, model) in ways.items():
            driver.execute_script(ours(tolerance, edges=edges, model=model))
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

POINTS = {
    "every point": (0.0, False, "poincare"),
    "what can be seen": (0.75, False, "poincare"),
}
TREE = {
    "edges off": (0.75, False, "poincare"),
    "edges on": (0.75, True, "poincare"),
    "edges on, wide": (0.75, True, "wide"),
}


def compared(driver: webdriver.Chrome, package: Path, n: int) -> Iterator[dict[str, Any]]:
    h = cloud(n)
    own, rival = hw.view(hw.lorentz.exp0(h), title="Cloud"), theirs(package, h)
    taxonomy = tree(n)
    explorer, other = hw.view(taxonomy, title="Tree"), theirs(package, taxonomy.tangent)
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for _ in range(ROUNDS):
        for data, page_, way, files in (
            ("cloud", own, POINTS, rival),
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


def large(driver: webdriver.Chrome, edges: Path, folder: Path) -> dict[str, Any]:
    """A hierarchy of millions, as one page opened from disk."""
    start = time.perf_counter()
    embedding = hw.embed(edges, dim=2, epochs=0)
    embedded = time.perf_counter()
    written = hw.view(embedding, title=edges.stem).save(folder / "large.html")
    made = time.perf_counter()
    driver.get(written[0].as_uri())
    first = first_picture(driver, FIRST)
    found: dict[str, Any] = {
        "points": len(embedding),
        "embedded in": embedded - start,
        "page made in": made - embedded,
        "bytes": sum(path.stat().st_size for path in written),
        "files": len(written),
        "first picture": first,
    }
    for way, setting in TREE.items():
        tolerance, on, model = setting
        driver.execute_script(ours(tolerance, edges=on, model=model))
        found[f"frames per second, {way}"] = frames(driver)
    return found | {"search": searched(driver, ["homo sapiens", "coli", "zzzz"])}


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


PLACE = """
const [row] = arguments, e = explorer, s = e.scene, { gl } = s.painter;
const { width, height } = e.canvas;
const only = new Uint8Array(4 * e.data.count);
const pixels = new Uint8Array(4 * width * height);
const shades = (colour) => {
  only.set([0, 0, 0, colour], 4 * row);
  s.setColours(only);
  s.draw();
  gl.readPixels(0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
  return Float64Array.from({ length: width * height }, (_, i) => pixels[4 * i + 1]);
};
const without = shades(0), found = shades(255);
let mass = 0, x = 0, y = 0;
found.forEach((shade, i) => {
  const weight = without[i] - shade;
  mass += weight;
  x += weight * (i % width + 0.5);
  y += weight * (height - Math.floor(i / width) - 0.5);
});
return [x / mass, y / mass];
"""


def precision(driver: webdriver.Chrome, folder: Path) -> Iterator[dict[str, Any]]:
    """How many pixels the ten nearest of a centred point are from where they should be.

    Each is drawn alone, and the middle of its pixels is taken. The truth has 80 digits.
    """
    truth = runpy.run_path(str(Path(__file__).parents[1] / "tests/explorer.py"))
    for radius in (12, 20, 30, 40):
        h = truth["cloud"](radius)
        true = truth["seen_from"](h[0], h[1:])
        nearest = np.argsort(np.linalg.norm(true, axis=1))[:10]
        points = Explorer(pack(Source([str(i) for i in range(len(h))], h)), "Cloud")
        (page,) = points.save(folder / f"{radius}.html")
        driver.get(page.as_uri())
        first_picture(driver, FIRST)
        driver.execute_script(ours(0.0, edges=False, model="poincare"))
        driver.execute_script("explorer.scene.fly(explorer.data.row('0'), 0)")
        unit = driver.execute_script("return explorer.scene.unit")
        rows = [driver.execute_script(f"return explorer.data.row('{i + 1}')") for i in nearest]
        seen = np.array([driver.execute_script(PLACE, row) for row in rows])
        expected = SIZE / 2 + unit * true[nearest] * [1, -1]
        r = np.linalg.norm(h, axis=1, keepdims=True)
        ball = (np.tanh(r / 2) * h / r).astype(np.float32)
        near = ball[[0, *(nearest + 1)]]
        yield {
            "radius": radius,
            "largest error in pixels": np.linalg.norm(seen - expected, axis=1).max(),
            "distances on screen": np.linalg.norm(expected - SIZE / 2, axis=1).tolist(),
            "different places in the ball in float32, of 11": len(np.unique(near, axis=0)),
            "inside the ball in float32, of 11": int((np.linalg.norm(near, axis=1) < 1).sum()),
        }


def accessible(driver: webdriver.Chrome, axe: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """What axe-core finds wrong, in light and dark, wide and narrow, with and without a node."""
    mammals = hw.embed("wordnet-mammals", dim=2, epochs=0)
    (page,) = hw.view(mammals).save(folder / "mammals.html")
    for scheme in ("light", "dark"):
        for width in (1200, 400):
            media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
            size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            driver.get("about:blank")
            driver.get(page.as_uri())
            first_picture(driver, FIRST)
            driver.execute_script(axe.read_text())
            for state in ("", "explorer.select(explorer.data.row('dog.n.01'))"):
                driver.execute_script(state)
                time.sleep(1)
                answer = driver.execute_async_script("axe.run().then(arguments[0])")
                yield {
                    "scheme": scheme,
                    "width": width,
                    "a node selected": bool(state),
                    "faults": [[each["impact"], each["id"]] for each in answer["violations"]],
                    "rules passed": len(answer["passes"]),
                    "axe-core": answer["testEngine"]["version"],
                    "wider than the screen": driver.execute_script(
                        "return document.documentElement.scrollWidth > innerWidth"
                    ),
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


def measured(driver: webdriver.Chrome, args: argparse.Namespace, folder: Path) -> Any:
    match args.what:
        case "frames":
            package = json.loads((args.hyper_scatter / "package.json").read_text())
            sizes = [compared(driver, args.hyper_scatter, int(n)) for n in args.sizes]
            return {
                "hyper-scatter": package["version"],
                "rows": [row for of in sizes for row in of],
            }
        case "precision":
            return list(precision(driver, folder))
        case "nouns":
            return nouns(driver, folder)
        case "axe":
            return list(accessible(driver, args.axe, folder))
        case _:
            return large(driver, args.edges, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["frames", "precision", "nouns", "axe", "large"])
    parser.add_argument("--hyper-scatter", type=Path, help="Folder of the package from npm.")
    parser.add_argument("--sizes", type=float, nargs="*", default=[1e5, 1e6])
    parser.add_argument("--axe", type=Path, help="axe.min.js of the package axe-core from npm.")
    parser.add_argument("--edges", type=Path, help="A file of edges, for `large`.")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    found = json.loads(args.output.read_text()) if args.output.exists() else {}
    start = time.perf_counter()
    with browser() as driver, tempfile.TemporaryDirectory() as folder:
        capabilities = driver.capabilities
        found["browser"] = f"{capabilities['browserName']} {capabilities['browserVersion']}"
        found["hyperwrap"] = version("hyperwrap")
        found["machine"] = f"{os.cpu_count()} cores, drawing in software"
        found[args.what] = {"found": measured(driver, args, Path(folder))}
    found[args.what] |= {"seconds": time.perf_counter() - start, "commit": commit()}
    print(json.dumps(found[args.what], indent=1))
    write_whole(args.output, as_json(found))


if __name__ == "__main__":
    main()
