"""A simulated driver for cases that are series of readings."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from nvml.build import build
from nvml.host import Host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def simulate(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Host]]:
    """Starts hosts with a scenario, and perhaps a /proc, and ends them after the test."""
    base = tmp_path_factory.getbasetemp()
    library = build(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)
    with contextlib.ExitStack() as stack:

        def start(scenario: str, proc: Path | None = None) -> Host:
            return stack.enter_context(Host(tmp_path / "host", library, scenario, proc=proc))

        yield start
