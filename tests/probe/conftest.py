"""Every test that takes `python` runs once under each CPython that this machine has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from probelab import INTERPRETERS, Interpreter, Program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(params=INTERPRETERS, ids=str)
def python(request: pytest.FixtureRequest) -> Interpreter:
    interpreter: Interpreter = request.param
    return interpreter


@pytest.fixture
def start(python: Interpreter, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Start a program under `python`; it is ended after the test."""
    running: list[Program] = []

    def start_one(source: str, **env: str) -> Program:
        running.append(Program(python, source, tmp_path, env))
        return running[-1]

    yield start_one
    for program in running:
        program.__exit__(None, None, None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(
        "the probe ran under Python " + ", ".join(str(one) for one in INTERPRETERS)
    )
