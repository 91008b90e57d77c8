"""Programs of the demo, started and always ended."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from bottletop.linux.probe_memory import probes_of
from bottletop.linux.procfs import read_stat
from bottletop.model import ProcessId
from bottletop.roots import Roots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bottletop.linux.probe_memory import StageTotals

WITHIN_S = 30.0


def wait_for(condition: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> None:
    """Poll until `condition` holds; fail when it does not in time."""
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s, f"{what} did not happen in {within_s:.0f} s"
        time.sleep(0.02)


class Program:
    """One program of the demo under test."""

    def __init__(self, workspace: Path, *arguments: str) -> None:
        self.log_path = workspace / "program.log"
        command = [sys.executable, "-P", "-m", "bottletop.demo.child", *arguments]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [*command, "--parent", str(os.getpid()), "--workspace", str(workspace)],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
                start_new_session=True,
            )
        self.pid = self.process.pid
        self.id = ProcessId(self.pid, read_stat(Roots(), self.pid).start_ticks)

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def stages(self) -> dict[str, StageTotals]:
        """What its probe says now, by name."""
        with contextlib.suppress(OSError):
            for probe in probes_of(Roots(), self.id):
                try:
                    return {s.name: s for s in probe.read(time.monotonic_ns()).stages}
                finally:
                    probe.close()
        return {}

    def wait_for_passes(self, count: int) -> dict[str, StageTotals]:
        """Wait until it ran `count` forward passes."""

        def passes() -> int:
            assert self.process.poll() is None, self.log
            found = self.stages().get("forward")
            return found.calls if found else 0

        wait_for(lambda: passes() >= count, f"{count} forward passes")
        return self.stages()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts a program in a workspace of its own; ends it after the test."""
    programs: list[Program] = []

    def starter(*arguments: str) -> Program:
        programs.append(Program(tmp_path, *arguments))
        return programs[-1]

    yield starter
    for program in programs:
        program.process.kill()
        program.process.wait()
