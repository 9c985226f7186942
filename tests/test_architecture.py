"""Imports point only downward; the paper's building comes through the public door."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import hyperwrap
from hyperwrap.errors import MissingExtraError

PACKAGE = Path(hyperwrap.__file__).parent
PAPER = Path(__file__).parents[1] / "reproductions"

# From the bottom up. A module may import from its own layer only within the same package.
LAYERS = [
    ["errors", "precision", "threads"],
    ["special", "files", "tables"],
    ["curvature"],
    ["kernels"],
    ["lorentz"],
    ["charts"],
    ["constraints"],
    ["distributions", "graphs", "runs"],
    ["stats", "training"],
    ["vae", "embedding"],
    ["maps", "plot", "pyro", "scvi"],
    ["scanpy", "view"],
    ["cli"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def modules() -> Iterator[tuple[str, Path]]:
    """Dotted names below the package, with their files; the package itself is the public face."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        name = name.removesuffix("__init__").rstrip(".")
        if name and name != "__main__":
            yield name, path


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name below the package of everything imported from it, however deep."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "hyperwrap":
                    yield node.lineno, alias.name.removeprefix("hyperwrap").lstrip(".")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            parts = (node.module or "").split(".")
            if parts[0] == "hyperwrap":
                for alias in node.names:
                    yield node.lineno, ".".join([*parts[1:], alias.name])


def offence(importer: str, imported: str) -> str | None:
    top, target = importer.split(".")[0], imported.split(".")[0]
    if target == "__version__" or top == target:
        return None
    if target == "":
        return "imports the whole package"
    if target not in LEVEL:
        return f"{target} has no layer"
    return None if LEVEL[target] < LEVEL[top] else f"{target} is not below {top}"


def test_imports_point_only_downward():
    offences = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {importer} imports {imported} ({why})"
        for importer, path in modules()
        for line, imported in imports(path)
        if (why := offence(importer, imported))
    ]
    assert not offences, "\n" + "\n".join(offences)


def test_every_module_has_a_layer():
    unknown = {name.split(".")[0] for name, _ in modules()} - LEVEL.keys()
    assert not unknown


def test_the_rule_can_fail():
    assert offence("special", "lorentz") == "lorentz is not below special"
    assert offence("lorentz", "distributions.base") == "distributions is not below lorentz"
    assert offence("charts", "constraints") == "constraints is not below charts"
    assert offence("vae.model", "embedding.train") == "embedding is not below vae"
    assert offence("errors", "files") == "files is not below errors"
    assert offence("lorentz", "") == "imports the whole package"
    assert offence("distributions.base", "lorentz") is None
    assert offence("distributions.kl", "distributions.wrapped") is None
    assert offence("embedding.train", "graphs.hierarchy") is None


# --- the door ------------------------------------------------------------------------------------


def uses(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, module and name of everything that a file imports from the library."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "hyperwrap":
                    yield node.lineno, alias.name, ""
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "hyperwrap":
            for alias in node.names:
                yield node.lineno, node.module or "", alias.name


def is_public(module: str, name: str) -> bool:
    if any(part.startswith("_") for part in (*module.split("."), name) if part != "__version__"):
        return False
    try:
        found = importlib.import_module(module)
    except MissingExtraError:  # it is looked at where the extra is installed
        return True
    here = getattr(found, name or "__doc__", None)
    return not name or name in getattr(found, "__all__", ()) or isinstance(here, ModuleType)


def test_the_paper_uses_only_public_names_of_the_library():
    private = [
        f"{path.relative_to(PAPER)}:{line}: {module} {name}"
        for path in sorted(PAPER.glob("*/src/**/*.py"))
        for line, module, name in uses(path)
        if not is_public(module, name) and name != "__version__"
    ]
    assert not private, "\n" + "\n".join(private)


def test_the_door_can_be_shut():
    assert is_public("hyperwrap", "WrappedNormal")
    assert is_public("hyperwrap", "lorentz")
    assert not is_public("hyperwrap.lorentz", "_unboost")
    assert not is_public("hyperwrap.lorentz", "torch_is_imported_here")


def test_the_library_knows_nothing_of_the_paper():
    assert not [
        path
        for path in PACKAGE.rglob("*.py")
        if "import nagano2019" in (text := path.read_text()) or "from nagano2019" in text
    ]


def test_importing_hyperwrap_is_light():
    """Nothing of the paper, no database, no XML, no scientific stack beyond torch and NumPy."""
    heavy = "nagano2019 sqlite3 xml.etree scipy matplotlib sklearn faiss typer rich triton"
    code = f"import sys, hyperwrap; print([m for m in {heavy.split()} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- tests ---------------------------------------------------------------------------------------

CHECKS = {"allclose", "equal", "isclose", "isfinite", "isnan", "gradcheck", "gradgradcheck", "all"}


def test_no_test_computes_a_verdict_and_drops_it():
    """Peers: a test that calls ``allclose`` and never looks at what it says."""
    dropped = []
    for path in sorted((*Path(__file__).parent.rglob("*.py"), *PAPER.glob("*/tests/*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Expr):
                continue
            value = node.value
            called = value.func if isinstance(value, ast.Call) else None
            name = getattr(called, "attr", getattr(called, "id", None))
            if isinstance(value, ast.Compare) or name in CHECKS:
                dropped.append(f"{path.name}:{node.lineno}")
    assert not dropped
