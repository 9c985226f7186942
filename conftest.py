"""Names that the examples in docstrings may use."""

import pytest
import torch

import hyperwrap


@pytest.fixture(autouse=True)
def _example_names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace.update(hw=hyperwrap, torch=torch)
