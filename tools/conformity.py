"""Runs the test suites of torch, Pyro and zuko, as they are, with our laws as their examples.

    make conformity                                # fetches what it can and prints the table
    python tools/conformity.py --output DIR        # also writes DIR/table.md and DIR/tests.txt
    python tools/conformity.py --pyro CHECKOUT     # a checkout in place of a package; so --torch

No test is edited. Each file is imported, told of our laws where it keeps its examples, and run by
pytest; only tests that use the examples count. torch's files come from Debian's source package,
zuko's from its source distribution; both are kept in `.conformity/`. No package has those of Pyro:
give a checkout, or they are left out. A failure is ours unless `NOT_APPLICABLE` says why not.
"""

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributions import Categorical, Independent, Laplace, TransformedDistribution

import hyperwrap as hw
from hyperwrap.constraints import ExpOrigin, Hyperboloid

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".conformity"
DEBIAN, ZUKO = "trixie", "1.6.0"

# test (a pattern), what its failure says (a pattern), why it does not apply
NOT_APPLICABLE = [
    (
        "test_distribution_expand",
        r"values for attribute 'shape' do not match: torch.Size\(\[\d?\]\) != ",
        "wants a variance for each coordinate; ours is the mean squared distance, a number",
    ),
    (
        r"TestJit_.*test_(entropy|log_prob|mean|variance)",
        r"size of tensor a \(2\) must match the size of tensor b \(3\)",
        "moves a point by a vector as long as its coordinates; tangent vectors are one shorter",
    ),
    (
        r"test_\w+\[.*ExpOrigin",
        "Unsupported domain: Hyperboloid",
        "knows no points of the hyperboloid to try",
    ),
    (
        r"test_jacobian\[ExpOrigin",
        "must be batches of square matrices",
        "takes the determinant of a square Jacobian; ours is between volumes of H^n and R^n",
    ),
    (
        r"test_infer_shapes\[WrappedNormalMixture",
        "event_dim cannot be determined statically",
        "its arguments are laws, which have no shape to infer from",
    ),
    (
        r"test_gof\[",
        "gof > TEST_FAILURE_RATE",
        "takes the density to be per volume of all coordinates; ours is per volume of H^n",
    ),
    (
        r"test_mean\[",
        "assert_close",
        "wants the mean of each coordinate; ours is the Fréchet mean, a point",
    ),
    (
        r"test_(gof|mean|variance)\[WrappedCauchy",
        "Expected samples within torch.float64",
        "draws so often that one sample is beyond radius 710, where float64 ends",
    ),
    (
        r"test_variance\[",
        "assert_close",
        "wants a variance for each coordinate; ours is the mean squared distance, a number",
    ),
    (
        r"test_distributions_of\[WrappedCauchy",
        r"0.9 <= p",
        "draws evenly from a box around all samples, too wide for tails like these",
    ),
]

# --- our laws -----------------------------------------------------------------------------------


def examples(rows: int | slice = slice(None)) -> dict[str, list[dict[str, Any]]]:
    """Arguments of each law with its centre as a point, and of each with it as a tangent vector.

    Three centres, or one of them. Tensors are leaves that want gradients, which some tests look at.
    """
    centres = torch.tensor([[0.5, -1.0], [0.0, 2.0], [0.3, 0.1]], dtype=torch.get_default_dtype())
    h = centres[rows]
    scale, size = _leaf(0.3 + 0.1 * h.abs()), _leaf(0.3 + 0.1 * h[..., 0].abs())
    low = _leaf(torch.diag_embed(scale) + 0.1 * torch.ones(2, 2).tril(-1))
    sigma = low @ low.mT
    laplace = Independent(Laplace(torch.zeros_like(h), 0.3), 1)
    by_sigma = [{"scale_tril": low}, {"scale": scale}]
    given: dict[str, list[dict[str, Any]]] = {
        "WrappedNormal": [
            *by_sigma,
            {"scale": 0.7},
            {"covariance_matrix": _leaf(sigma)},
            {"precision_matrix": _leaf(torch.linalg.inv(sigma))},
            {"scale": scale, "c": 2.0},
        ],
        "RiemannianNormal": [{"scale": 0.8}, {"scale": size}],
        "UniformBall": [{"radius": 0.8}, {"radius": size}],
        "WrappedLaplace": by_sigma,
        "WrappedStudentT": [{"df": 9.0, **arguments} for arguments in by_sigma],
        "WrappedCauchy": [{"scale": 0.01}],
        "Wrapped": [{"base": laplace}],
    }
    found = {}
    for law, rest in given.items():
        found[law] = [{"loc": _leaf(hw.lorentz.exp0(h, c=a.get("c", 1.0))), **a} for a in rest]
        found[f"{law}_tangent"] = [{"tangent": _leaf(h), **arguments} for arguments in rest]
    origin = hw.lorentz.origin(2, dtype=h.dtype)
    found["WrappedNormal"].insert(0, {"loc": origin, "scale": 1.0})
    found["WrappedNormalMixture"] = [
        {
            "mixture_distribution": Categorical(torch.ones_like(centres[:, 0])),
            "component_distribution": hw.WrappedNormal(tangent=centres, scale=0.5),
        }
    ]
    return found


def _law(name: str, module: Any = hw) -> Any:
    return getattr(module, name.removesuffix("_tangent"))


def _leaf(x: torch.Tensor) -> torch.Tensor:
    return x.detach().clone().requires_grad_()


# --- torch: examples by law, constraints, transforms --------------------------------------------


def torch_suite(folder: Path) -> list[str]:
    files = folder / "test/distributions"
    sys.path.insert(0, str(files))
    names = ["test_distributions", "test_constraints", "test_transforms"]
    laws, sets, maps = map(importlib.import_module, names)
    base = laws.DistributionsTestCase
    for name, case in list(vars(laws).items()):
        if isinstance(case, type) and issubclass(case, base):
            delattr(laws, name)
            for law in examples():
                setattr(laws, f"{name}_{law}", _of_one_law(laws, case, law))

    sets.EXAMPLES[:] = [(Hyperboloid(), x[0] == 1, [x]) for x in ([1.0, 0.0], [2.0, 0.0])]
    for test in (sets.test_biject_to, sets.test_transform_to):
        (constraints,) = (m.args[1] for m in test.pytestmark if "args" in m.args[0])
        constraints[:] = [(Hyperboloid(), ()), (Hyperboloid, (2.0,))]

    cached, plain = ([ExpOrigin(c, size) for c in (1.0, 2.0)] for size in (1, 0))
    maps.TRANSFORMS_CACHE_INACTIVE[:] = [*plain, *(f.inv for f in plain)]
    maps.ALL_TRANSFORMS[:] = [*cached, *plain, *(f.inv for f in (*cached, *plain))]
    return [str(files / f"{name}.py") for name in names]


def _of_one_law(module: Any, case: Any, law: str) -> type:
    """The tests of a class that go through ``_get_examples``, which then has this law only."""

    def set_up(self: Any) -> None:
        module._get_examples = lambda: [module.Example(_law(law), examples()[law])]
        super(case, self).setUp()

    others = [test for test in dir(case) if test.startswith("test") and not _is_generic(case, test)]
    return type(f"{case.__name__}_{law}", (case,), {"setUp": set_up, **dict.fromkeys(others)})


def _is_generic(case: Any, test: str) -> bool:
    f = getattr(case, test)
    names = set(getattr(f, "__wrapped__", f).__code__.co_names)
    # test_has_examples asks for one of each of torch's own laws
    return bool(names & {"_get_examples", "_examples"}) and test != "test_has_examples"


# --- Pyro: two fixtures ---------------------------------------------------------------------------


def pyro_suite(folder: Path) -> list[str]:
    sys.path.insert(0, str(folder))
    torch.set_default_dtype(torch.float64)
    module: Any = importlib.import_module("tests.distributions.test_distributions")
    fixture = importlib.import_module("tests.distributions.dist_fixture").Fixture
    laws = importlib.import_module("hyperwrap.pyro")
    ours = [
        fixture(pyro_dist=_law(name, laws), examples=[_with_data(name, e) for e in of_law])
        for name, of_law in examples().items()
    ]
    for name in ("dist", "continuous_dist"):
        make = pytest.fixture(name=name, params=ours, ids=list(examples()))
        setattr(module, f"our_{name}", make(lambda request: request.param))
    return [str(folder / "tests/distributions/test_distributions.py")]


def _with_data(name: str, example: dict[str, Any]) -> dict[str, Any]:
    return {**example, "test_data": _law(name)(**example).sample()}


# --- zuko: one of its laws is replaced by ours, in normal coordinates ----------------------------


def zuko_suite(folder: Path) -> list[str]:
    sys.path.insert(0, str(folder / "tests"))
    module: Any = importlib.import_module("test_distributions")
    test = module.test_distributions
    del module.test_distributions

    @pytest.mark.parametrize("name", examples())
    def test_of(name: str) -> None:
        torch.manual_seed(0)
        law = _law(name)(**examples(0)[name][0])
        module.Maximum = lambda *_: TransformedDistribution(law, [ExpOrigin().inv])
        with torch.no_grad():
            test()

    module.test_distributions_of = test_of
    return [str(folder / "tests/test_distributions.py")]


SUITES: dict[str, Callable[[Path], list[str]]] = {
    "torch": torch_suite,
    "pyro": pyro_suite,
    "zuko": zuko_suite,
}


class Results:
    """A pytest plugin: keeps the tests that use our laws, and how each ended."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[str, str]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        laws = [*examples(), "Hyperboloid", "ExpOrigin", "constraint_fn", "test_constraint"]
        items[:] = [i for i in items if any(law in i.nodeid for law in laws)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
            name = report.nodeid.split("/")[-1].removesuffix(".py")
            self.found[name] = outcome, report.longreprtext


def run(suite: str, folder: Path, output: Path) -> None:
    """One suite, in a process of its own; what came of each test goes into a file."""
    results = Results()
    files = SUITES[suite](folder)
    alone = ["-c", os.devnull, f"--rootdir={folder}", f"--confcutdir={folder}"]
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "--tb=short"]
    pytest.main([*alone, *options, *files], plugins=[results])
    output.write_text(json.dumps(results.found))


# --- where the files come from ------------------------------------------------------------------


def fetch_torch() -> Path:
    """The source package of Debian, through the mirror that this machine uses."""
    folder = KEPT / f"torch-{DEBIAN}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=KEPT) as made:
            for part in ("lists/partial", "cache/archives/partial"):
                (Path(made) / part).mkdir(parents=True)
            (mirror, *_) = _said("apt-get", "indextargets", "--format", "$(SITE)").split()
            (Path(made) / "sources.list").write_text(f"deb-src {mirror} {DEBIAN} main\n")
            own = {
                "Dir::Etc::sourcelist": "sources.list",
                "Dir::Etc::sourceparts": "none",
                "Dir::State::lists": "lists",
                "Dir::Cache": "cache",
            }
            options = [f"-o={name}={made}/{place}" for name, place in own.items()]
            _said("apt-get", *options, "update", cwd=made)
            _said("apt-get", *options, "source", "--download-only", "pytorch", cwd=made)
            _unpack(next(Path(made).glob("pytorch_*.orig.tar.*")), "/test/distributions/", folder)
    return folder


def fetch_zuko() -> Path:
    folder = KEPT / f"zuko-{ZUKO}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=KEPT) as made:
            pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]
            _said(*pip, "--dest", made, f"zuko=={ZUKO}")
            _unpack(next(Path(made).glob("zuko-*.tar.gz")), "/tests/", folder)
    return folder


def fetch_pyro() -> Path:
    raise OSError("no package has its tests; give a checkout with --pyro")


def _said(*command: str, cwd: str | None = None) -> str:
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


def _unpack(archive: Path, part: str, folder: Path) -> None:
    """The files of an archive under ``part``, without the folder that all of them are in."""
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            if part in member.name and member.isfile():
                member.name = member.name.split("/", 1)[1]
                tar.extract(member, folder, filter="data")


FETCH = {"torch": fetch_torch, "pyro": fetch_pyro, "zuko": fetch_zuko}


# --- what came of it ----------------------------------------------------------------------------

OUTCOMES = ["passed", "skipped", "xfailed", "not applicable", "failed"]


def files_of(suite: str, checkout: Path | None) -> Path | None:
    try:
        return (checkout or FETCH[suite]()).resolve()
    except (OSError, StopIteration, ValueError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().split("\n")[-1]
        print(f"{suite}: left out, since its files could not be had: {said}")
        return None


def outcomes_of(suite: str, folder: Path, used: Counter[int]) -> dict[str, str]:
    """The outcome of each test, by its name. ``used`` counts what did not apply."""
    output = KEPT / f"{suite}.json"
    output.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--run", suite, str(folder), str(output)]
    log = subprocess.run(command, capture_output=True, text=True)
    if not output.exists():
        sys.exit(f"{suite}: could not be run\n{log.stderr}")
    found: dict[str, tuple[str, str]] = json.loads(output.read_text())
    return {test: _judged(test, *came, used) for test, came in found.items()}


def _judged(test: str, outcome: str, text: str, used: Counter[int]) -> str:
    for number, (name, says, _) in enumerate(NOT_APPLICABLE):
        if outcome == "failed" and re.search(name, test) and re.search(says, text):
            used[number] += 1
            return "not applicable"
    return outcome


def main() -> None:
    """Runs what it has the files of; exits with 1 if a failure is ours."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, help="folder for table.md and tests.txt")
    for suite in SUITES:
        parser.add_argument(f"--{suite}", type=Path, help="a checkout, in place of a package")
    given = parser.parse_args()
    KEPT.mkdir(exist_ok=True)
    used, rows, others = Counter[int](), [], []
    for suite in SUITES:
        folder = files_of(suite, getattr(given, suite))
        if folder is None:
            continue
        start, outcomes = time.perf_counter(), outcomes_of(suite, folder, used)
        counts, seconds = Counter(outcomes.values()), time.perf_counter() - start
        rows.append([suite, len(outcomes), *(counts[o] for o in OUTCOMES), f"{seconds:.0f}"])
        others += [f"{o:14} {suite} {test}\n" for test, o in outcomes.items() if o != "passed"]
    reasons = [
        [f"`{_label(name)}`", used[i], why]
        for i, (name, _, why) in enumerate(NOT_APPLICABLE)
        if used[i]
    ]
    table = _table(["suite", "tests", *OUTCOMES, "seconds"], rows)
    table += "\n" + _table(["tests that match", "times", "why they do not apply"], reasons)
    print(table)
    if given.output:
        given.output.mkdir(parents=True, exist_ok=True)
        (given.output / "table.md").write_text(table)
        (given.output / "tests.txt").write_text("".join(others))
    ours = [line for line in others if line.startswith("failed")]
    if ours:
        sys.exit("".join(["Ours:\n", *ours]))


def _label(pattern: str) -> str:
    """A pattern that a table may hold."""
    return pattern.replace("\\[", "[").replace("|", ", ")


def _table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
    else:
        main()
