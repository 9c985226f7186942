"""Fixtures over the registry of laws, a fixed seed, and one thread for every worker."""

import pytest
import torch
from registry import CASES, NORMAL_CASES, Case

torch.set_num_threads(1)


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    """Every law of the registry."""
    return request.param


@pytest.fixture(params=NORMAL_CASES, ids=str)
def normal_case(request: pytest.FixtureRequest) -> Case:
    """Every WrappedNormal of the registry."""
    return request.param


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
