"""Fixtures for tests that need GPUs: a simulated driver, read in a child process."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Protocol

import pytest

from nvml.build import build
from nvml.host import Host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class MakeHost(Protocol):
    """Start a host with the simulated driver and a scenario."""

    def __call__(
        self,
        scenario: str | Path,
        *,
        start_s: float = 0.0,
        without: tuple[str, ...] = (),
        library: Path | None = None,
        proc: Path | None = None,
        sys_root: Path | None = None,
    ) -> Host: ...


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Builds the simulated library, each variant once for all workers of a run."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return lambda without=(): build(root, without)


@pytest.fixture
def gpu_host(tmp_path: Path, nvml_library: Callable[..., Path]) -> Iterator[MakeHost]:
    """Starts hosts and ends them after the test."""
    with contextlib.ExitStack() as stack:
        started = 0

        def make(
            scenario: str | Path,
            *,
            start_s: float = 0.0,
            without: tuple[str, ...] = (),
            library: Path | None = None,
            proc: Path | None = None,
            sys_root: Path | None = None,
        ) -> Host:
            nonlocal started
            started += 1
            host = Host(
                tmp_path / f"host{started}",
                library or nvml_library(without),
                scenario,
                start_s=start_s,
                proc=proc,
                sys_root=sys_root,
            )
            return stack.enter_context(host)

        yield make
