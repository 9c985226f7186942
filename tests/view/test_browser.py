"""The page in a browser: search, click, drag, keys, touch, links, files, colours, and what is safe.

Chromium draws in software here. Nothing is said on its console, where a violated policy would show.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import hyperwrap as hw

pytest.importorskip("selenium")
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="Chromium is not installed"),
]
FLAGS = """
    --headless --no-sandbox --disable-gpu --use-angle=swiftshader --enable-unsafe-swiftshader
    --disable-quic --no-first-run --disable-background-networking --disable-component-update
    --disable-sync --window-size=1200,800
"""
MARKUP = "<script>document.title='broken'</script><b>bold</b>"
ARABIC = "كلب صغير"
PARENTS = {
    "puppy": "dog",
    "poodle": "dog",
    "dog": "animal",
    "cat": "animal",
    "animal": "thing",
    "stone": "thing",
    MARKUP: "stone",
    ARABIC: "dog",
    'quartz, "rose"': "stone",
    "=1+1": "stone",
}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=Service(str(DRIVER))) as driver:
        yield driver


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    hw.view(hw.embed(PARENTS, dim=2, epochs=0), title="Things <i>&").save(path)
    return path


class Tab:
    """A page that is open."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        self.driver = driver
        driver.get("about:blank")
        driver.get_log("browser")
        driver.get(address)
        self.until(lambda: self.run("return !!window.explorer?.data"))

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, what: Callable[[], Any], seconds: float = 10) -> Any:
        end = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < end, what
            time.sleep(0.02)
        return found

    def find(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        return [each.text for each in self.driver.find_elements(By.CSS_SELECTOR, selector)]

    @property
    def selected(self) -> str | None:
        return self.run(
            "const e = explorer; return e.selected < 0 ? null : e.data.name(e.selected)"
        )

    def place(self, name: str) -> tuple[float, float]:
        """Where a node is in the window."""
        return tuple(
            self.run(
                "const e = explorer, b = e.canvas.getBoundingClientRect();"
                "const at = e.scene.project(e.data.row(arguments[0]));"
                "return [b.left + at.x, b.top + at.y]",
                name,
            )
        )

    def settle(self) -> None:
        self.until(lambda: self.run("return !explorer.scene.dirty && !explorer.frame"))

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()
        self.settle()

    def quiet(self) -> None:
        """Nothing was said, but for what the driver of the graphics has to say of itself."""
        said = [line["message"] for line in self.driver.get_log("browser")]
        assert [line for line in said if "GL Driver Message" not in line] == []


@pytest.fixture
def tab(driver: webdriver.Chrome, page: Path) -> Iterator[Tab]:
    tab = Tab(driver, page.as_uri())
    yield tab
    tab.quiet()


def at(tab: Tab, x: float, y: float) -> ActionChains:
    chain = ActionChains(tab.driver, duration=0)
    chain.w3c_actions.pointer_action.move_to_location(round(x), round(y))
    return chain


# --- what is shown -------------------------------------------------------------------------------


def test_something_is_drawn(tab: Tab):
    colours = tab.run(
        "explorer.draw(); const gl = explorer.scene.painter.gl, n = 400;"
        "const p = new Uint8Array(4 * n * n);"
        "gl.readPixels(200, 200, n, n, gl.RGBA, gl.UNSIGNED_BYTE, p);"
        "return new Set(new Uint32Array(p.buffer)).size"
    )
    assert colours > 10


def test_the_title_is_text(tab: Tab):
    assert tab.driver.title == "Things <i>&"
    assert tab.texts("h1") == ["Things <i>&"]


def test_a_click_selects(tab: Tab):
    at(tab, *tab.place("dog")).click().perform()
    assert tab.selected == "dog"
    assert tab.texts(".hw-panel h2") == ["dog"]
    assert tab.texts(".hw-crumbs button") == ["thing", "animal", "dog"]
    titles = tab.until(lambda: len(t := tab.texts(".hw-part h3")) == 3 and t)
    assert [title.split("\n")[0] for title in titles] == ["3 children", "Ancestors", "Neighbours"]


def test_the_breadcrumb_leads_back(tab: Tab):
    tab.run("explorer.go(explorer.data.row('dog'))")
    tab.driver.find_elements(By.CSS_SELECTOR, ".hw-crumbs button")[1].click()
    tab.settle()
    assert tab.selected == "animal"


def test_a_double_click_centres(tab: Tab):
    at(tab, *tab.place("cat")).double_click().perform()
    tab.settle()
    x, y = tab.place("cat")
    middle = tab.run(
        "const b = explorer.canvas.getBoundingClientRect();"
        "return [b.left + b.width / 2, b.top + b.height / 2]"
    )
    assert (x, y) == pytest.approx(middle, abs=0.01)


def test_the_divergences_are_those_of_the_library(tab: Tab):
    embedding = hw.embed(PARENTS, dim=2, epochs=0)
    tab.run("explorer.select(explorer.data.row('puppy'))")
    row = tab.until(lambda: tab.texts(".hw-part:nth-of-type(1) + * li, .hw-part li"))
    shown = dict(text.split("\n") for text in row)
    true = embedding.kl("puppy", "dog", num_samples=2**16).estimate.item()
    assert float(shown["dog"]) == pytest.approx(true, rel=0.02)


# --- moving --------------------------------------------------------------------------------------


def test_a_drag_moves_what_is_under_the_pointer(tab: Tab):
    x, y = tab.place("thing")
    at(tab, x, y).click_and_hold().perform()
    at(tab, x + 60, y - 40).release().perform()
    tab.settle()
    assert tab.place("thing") == pytest.approx((x + 60, y - 40), abs=1)
    assert tab.selected is None


def test_the_wheel_goes_deeper_and_back(tab: Tab):
    def radius() -> float:
        return tab.run("return explorer.scene.camera.pose.a + explorer.scene.camera.pose.step[2]")

    x, y = tab.place("puppy")
    turn = (
        "const [clientX, clientY, deltaY] = arguments;"
        "const made = {clientX, clientY, deltaY, cancelable: true};"
        "explorer.canvas.dispatchEvent(new WheelEvent('wheel', made))"
    )
    tab.run(turn, x, y, -120)
    assert radius() > 0.1
    for _ in range(9):
        tab.run(turn, x, y, 120)
    assert (
        tab.run(
            "const s = explorer.scene; s.draw(); return Math.hypot(...s.camera.pose.step.slice(2))"
        )
        < 1e-6
    )


def test_keys(tab: Tab):
    tab.find(".hw-scene").click()
    x, y = tab.place("thing")
    tab.press(Keys.ARROW_LEFT)
    assert tab.place("thing")[0] == pytest.approx(x + 70, abs=1)
    tab.press("0")
    assert tab.place("thing") == pytest.approx((x, y), abs=0.1)
    tab.run("explorer.select(explorer.data.row('animal'))")
    chain = ActionChains(tab.driver).key_down(Keys.SHIFT).send_keys(Keys.ARROW_UP)
    chain.key_up(Keys.SHIFT).perform()
    tab.settle()
    assert tab.selected == "thing"
    for key, model in [("m", "klein"), ("m", "band"), ("m", "wide"), ("m", "poincare")]:
        tab.press(key)
        assert tab.run("return explorer.model") == model
        assert (
            tab.run("const s = explorer.scene, at = s.project(0); return s.pick(at.x, at.y)") == 0
        )
    tab.press("e")
    assert tab.run("return explorer.edges") is False
    tab.press("?")
    assert tab.find("dialog").is_displayed()
    tab.press(Keys.ESCAPE)
    assert not tab.find("dialog").is_displayed()


def test_a_deep_hierarchy_opens_wide(driver: webdriver.Chrome, tmp_path: Path):
    hw.view(hw.embed("wordnet-mammals", dim=2, epochs=0)).save(tmp_path / "mammals.html")
    tab = Tab(driver, (tmp_path / "mammals.html").as_uri())
    tab.settle()
    assert tab.run("return explorer.model") == "wide"
    assert tab.run("return explorer.link()") == "#"
    tab.find(".hw-scene").click()
    far = "const s = explorer.scene, at = s.project(explorer.data.row('dog.n.01')); return at.scale"
    wide = tab.run(far)
    tab.press("m")
    assert tab.run("return explorer.model") == "poincare"
    assert tab.run(far) < 0.2 * wide
    tab.quiet()


def test_touch(tab: Tab):
    def touch(kind: str, *points: tuple[float, float]) -> None:
        places = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)]
        tab.driver.execute_cdp_cmd(
            "Input.dispatchTouchEvent", {"type": kind, "touchPoints": places}
        )

    x, y = tab.place("dog")
    touch("touchStart", (x, y))
    touch("touchEnd")
    assert tab.until(lambda: tab.selected) == "dog"
    touch("touchStart", (x, y))
    touch("touchMove", (x + 30, y))
    touch("touchMove", (x + 50, y + 10))
    touch("touchEnd")
    tab.settle()
    assert tab.place("dog") != pytest.approx((x, y), abs=5)
    x, y = tab.place("thing")
    touch("touchStart", (x - 50, y), (x + 50, y))
    for far in range(60, 160, 10):
        touch("touchMove", (x - far, y), (x + far, y))
    touch("touchEnd")
    assert tab.run("return explorer.scene.magnification") > 2


def test_less_motion(driver: webdriver.Chrome, page: Path):
    reduce = {"name": "prefers-reduced-motion", "value": "reduce"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [reduce]})
    tab = Tab(driver, page.as_uri())
    tab.run("explorer.centre(explorer.data.row('cat'))")
    assert tab.run("return explorer.scene.dirty") is False
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


# --- search --------------------------------------------------------------------------------------


def test_search_completes(tab: Tab):
    tab.press("/")
    tab.find("input").send_keys("PO")
    assert tab.until(lambda: tab.texts(".hw-found li .hw-name")) == ["poodle"]
    tab.find("input").send_keys("o", Keys.ENTER)
    tab.settle()
    assert tab.selected == "poodle"


def test_search_without_an_answer(tab: Tab):
    tab.find("input").send_keys("zzz")
    assert tab.until(lambda: tab.find(".hw-none").text) == "No name contains this."


def test_search_goes_to_the_one_chosen(tab: Tab):
    tab.find("input").send_keys("o")
    names = tab.until(lambda: tab.texts(".hw-found li .hw-name"))
    assert len(names) > 3
    tab.find("input").send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    tab.settle()
    assert tab.selected == names[2]


@pytest.mark.parametrize("name", [MARKUP, ARABIC])
def test_a_name_is_text_and_never_markup(tab: Tab, name: str):
    tab.find("input").send_keys(name[:6])
    assert tab.until(lambda: tab.texts(".hw-found li .hw-name")) == [name]
    tab.find("input").send_keys(Keys.ENTER)
    tab.settle()
    assert tab.texts(".hw-panel h2") == [name]
    assert tab.run("return document.querySelectorAll('h2 b, h2 script, .hw-crumbs b').length") == 0
    assert tab.driver.title == "Things <i>&"


# --- links and files -----------------------------------------------------------------------------


def test_a_link_holds_the_view(tab: Tab, driver: webdriver.Chrome, page: Path):
    tab.run("explorer.go(explorer.data.row('dog'))")
    tab.settle()
    tab.run("explorer.setDepth(1); explorer.setModel('klein'); explorer.choose('entropy')")
    link = tab.run("return explorer.link()")
    assert link == "#node=dog&depth=1&model=klein&colour=entropy"
    tab.until(lambda: driver.current_url.endswith(link))
    tab.run("explorer.pan(50, 20)")
    link = tab.run("return explorer.link()")
    before = tab.place("cat")
    other = Tab(driver, page.as_uri() + link)
    other.settle()
    assert other.selected == "dog"
    assert other.place("cat") == pytest.approx(before, abs=0.01)
    assert other.run("return [explorer.depth, explorer.colouring.id]") == [1, "entropy"]


def test_a_link_to_nobody(driver: webdriver.Chrome, page: Path):
    tab = Tab(driver, page.as_uri() + "#node=<b>nobody</b>&view=rubbish&model=none&depth=-3")
    assert tab.selected is None
    assert "There is no node <b>nobody</b>." in tab.texts(".hw-status")
    tab.quiet()


def test_pictures(tab: Tab):
    tab.run("explorer.select(explorer.data.row('dog'))")
    size, kind = tab.driver.execute_async_script(
        "const done = arguments[0]; explorer.png().then((blob) => done([blob.size, blob.type]))"
    )
    assert kind == "image/png"
    assert size > 5000
    text = tab.driver.execute_async_script(
        "const done = arguments[0]; explorer.svg().text().then(done)"
    )
    assert text.startswith("<svg")
    for part in (">dog<", ">puppy<", "<path", "<circle"):
        assert part in text
    assert "<b>" not in text


def test_a_table_of_the_selection(tab: Tab):
    def table() -> list[str]:
        return tab.driver.execute_async_script(
            "const done = arguments[0]; explorer.csv().text().then(done)"
        ).splitlines()

    assert len(table()) == 1 + len({*PARENTS, *PARENTS.values()})
    tab.run("explorer.select(explorer.data.row('stone'))")
    head, *rows = table()
    assert head == "name,parent,level,subtree,radius,entropy,scale_1,scale_2"
    assert any(row.startswith('"quartz, ""rose""",stone,2,1,') for row in rows)
    assert any(row.startswith("'=1+1,stone,") for row in rows)


def test_a_file_is_saved(tab: Tab, tmp_path: Path):
    tab.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    tab.find(".hw-menu summary").click()
    tab.driver.find_elements(By.CSS_SELECTOR, ".hw-menu button")[2].click()
    tab.until(lambda: (tmp_path / "selection.csv").exists())


# --- colours -------------------------------------------------------------------------------------


def test_light_and_dark(driver: webdriver.Chrome, page: Path):
    for scheme, other in [("light", "dark"), ("dark", "light")]:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        tab = Tab(driver, page.as_uri())
        assert tab.run("return explorer.root.dataset.theme") == scheme
        tab.find(".hw-scene").click()
        tab.press("t")
        assert tab.run("return explorer.root.dataset.theme") == other
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_columns_and_a_legend_that_hides(driver: webdriver.Chrome, tmp_path: Path):
    points = hw.lorentz.exp0(torch.randn(60, 2, generator=torch.Generator().manual_seed(0)))
    columns = {"kind": [["a", "b", "c"][i % 3] for i in range(60)], "size": list(range(60))}
    hw.view(points, colour=columns).save(tmp_path / "points.html")
    tab = Tab(driver, (tmp_path / "points.html").as_uri())
    assert tab.texts(".hw-kind") == ["a", "b", "c"]
    tab.find(".hw-kind").click()
    hidden = "return [...explorer.colours].filter((x, i) => i % 4 === 3 && x === 0).length"
    assert tab.run(hidden) == 20
    tab.run("explorer.choose('size')")
    assert tab.texts(".hw-ends span") == ["0", "59"]
    tab.quiet()


def test_data_beside_the_page(driver: webdriver.Chrome, page: Path):
    from hyperwrap.view import serving

    with serving(hw.view(hw.embed(PARENTS, dim=2, epochs=0)).files()) as server:
        tab = Tab(driver, server.url)
        assert tab.run("return explorer.data.count") == 11
        tab.quiet()


# --- anybody can use it --------------------------------------------------------------------------


def test_a_narrow_screen(driver: webdriver.Chrome, page: Path):
    metrics = {"width": 400, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    tab = Tab(driver, page.as_uri())
    assert tab.run("return document.documentElement.scrollWidth") == 400
    at(tab, *tab.place("dog")).click().perform()
    tab.settle()
    assert tab.selected == "dog"
    panel, scene = (tab.find(each).rect for each in (".hw-panel", ".hw-view"))
    assert scene["height"] > 200
    assert panel["x"] >= 0
    assert panel["width"] <= 400
    tab.quiet()
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_everything_has_a_name(tab: Tab):
    unnamed = tab.run(
        "return [...document.querySelectorAll('button, input, select, summary, canvas[role]')]"
        ".filter(e => !(e.textContent.trim() || e.ariaLabel || e.labels?.length))"
        ".map(e => e.outerHTML)"
    )
    assert unnamed == []


def test_it_says_why_it_cannot_be_shown(driver: webdriver.Chrome, tmp_path: Path):
    from hyperwrap.view.page import page as written

    (tmp_path / "beside.html").write_text(written("beside.data", "Beside"))
    driver.get((tmp_path / "beside.html").as_uri())
    end = time.monotonic() + 5
    while not (found := driver.find_elements(By.CSS_SELECTOR, "[role=alert]")):
        assert time.monotonic() < end
    assert found[0].text.startswith("A browser does not let a page read a file beside it.")
    assert json.dumps(found[0].text).count("beside.data") == 1
