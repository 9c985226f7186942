"""What every test and example may rely on, and what cannot be imported without a GPU or extra."""

from importlib.util import find_spec

import pytest
import torch

import hyperwrap

collect_ignore_glob = [] if torch.cuda.is_available() else ["src/hyperwrap/kernels/triton_*.py"]

HEAVY = {
    "src/hyperwrap/pyro*": "pyro",
    "src/hyperwrap/scvi*": "scvi",
    "src/hyperwrap/scanpy/*": "scanpy",
    "src/nagano2019/counts*": "scvi",
}
"""What the examples of files need: left out without the package, slow with it."""
collect_ignore_glob += [f"*{files}" for files, package in HEAVY.items() if not find_spec(package)]


def pytest_runtest_setup() -> None:
    """Every worker of pytest-xdist has a core of its own, whatever the last test left behind."""
    torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.path.match(files) for files in HEAVY):
            item.add_marker("slow")
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))


@pytest.fixture(autouse=True)
def _example_names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace.update(hw=hyperwrap, torch=torch)


@pytest.fixture(autouse=True)
def _validated() -> None:
    """Importing Dynamo, as `torch.compile` does, turns validation off for the whole process."""
    torch.distributions.Distribution.set_default_validate_args(True)
