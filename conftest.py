"""What every test and example may rely on, and what cannot be imported without a GPU or extra."""

from importlib.util import find_spec

import pytest
import torch

import hyperwrap

torch.set_num_threads(1)  # every worker of pytest-xdist has a core of its own
collect_ignore_glob = [] if torch.cuda.is_available() else ["src/hyperwrap/kernels/triton_*.py"]

HEAVY = {"scvi": "src/hyperwrap/scvi*", "scanpy": "src/hyperwrap/scanpy/*"}
"""Packages that the examples of files need: left out without them, slow with them."""
collect_ignore_glob += [files for package, files in HEAVY.items() if find_spec(package) is None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.path.match(files) for files in HEAVY.values()):
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
