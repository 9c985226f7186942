"""Imports between the modules of hyperwrap point only downward; tests drop no value."""

import ast
from collections.abc import Iterator
from pathlib import Path

import hyperwrap

PACKAGE = Path(hyperwrap.__file__).parent

# From the bottom up. A module may import from its own layer only within the same package.
LAYERS = [
    ["numerics", "errors"],
    ["files"],
    ["curvature"],
    ["fused", "kernels"],
    ["lorentz"],
    ["charts"],
    ["constraints"],
    ["distributions"],
    ["vae", "embedding", "breakout"],
    ["experiments"],
    ["cli"],
]
# Experiments and what is above may use a leaf; a leaf uses nothing of the package but what is named
# here.
LEAVES = {"plot": {"errors"}, "viewer": {"errors"}, "data": {"errors"}, "metrics": {"errors"}}
# What is below the experiments uses no leaf but these.
MAY_USE = {"embedding": {"data"}}
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
    if top in LEAVES:
        return None if target in LEAVES[top] else f"{top} is a leaf"
    if target in LEAVES:
        allowed = LEVEL[top] >= LEVEL["experiments"] or target in MAY_USE.get(top, ())
        return None if allowed else f"{top} is below {target}"
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
    unknown = {name.split(".")[0] for name, _ in modules()} - LEVEL.keys() - LEAVES.keys()
    assert not unknown


def test_the_rule_can_fail():
    assert offence("numerics", "lorentz") == "lorentz is not below numerics"
    assert offence("lorentz", "distributions.base") == "distributions is not below lorentz"
    assert offence("charts", "constraints") == "constraints is not below charts"
    assert offence("plot", "lorentz") == "plot is a leaf"
    assert offence("distributions.base", "plot") == "distributions is below plot"
    assert offence("vae.model", "data.mnist") == "vae is below data"
    assert offence("embedding.fit", "plot") == "embedding is below plot"
    assert offence("errors", "files") == "files is not below errors"
    assert offence("lorentz", "") == "imports the whole package"
    assert offence("distributions.base", "lorentz") is None
    assert offence("distributions.kl", "distributions.wrapped") is None
    assert offence("embedding.fit", "data.hierarchy") is None


CHECKS = {"allclose", "equal", "isclose", "isfinite", "isnan", "gradcheck", "gradgradcheck", "all"}


def test_no_test_computes_a_verdict_and_drops_it():
    """Peers: a test that calls ``allclose`` and never looks at what it says."""
    dropped = []
    for path in sorted(Path(__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Expr):
                continue
            value = node.value
            called = value.func if isinstance(value, ast.Call) else None
            name = getattr(called, "attr", getattr(called, "id", None))
            if isinstance(value, ast.Compare) or name in CHECKS:
                dropped.append(f"{path.name}:{node.lineno}")
    assert not dropped
