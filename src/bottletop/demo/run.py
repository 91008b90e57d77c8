"""Starts a scenario's processes, ties the simulated GPU to them, and tidies up behind them."""

from __future__ import annotations

import contextlib
import shutil
import time
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING

from bottletop.collectors import COLLECTORS
from bottletop.demo.simulated_gpu import SIMULATED

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import Popen
    from types import TracebackType
    from typing import Self

    from bottletop.collectors.base import CollectorFactory
    from bottletop.demo.scenarios import Scenario

PREFIX = "bottletop-demo-"
START_WITHIN_S = 60.0
END_WITHIN_S = 2.0
TARGET_MEM_BYTES = 14 * 1024**3
NEIGHBOUR_MEM_BYTES = 9 * 1024**3


class DemoUnavailable(Exception):
    """The scenario cannot be had here; the message is one line that says why."""


class RunningDemo:
    """A scenario under way. `close` ends its processes and removes its files."""

    def __init__(self, scenario: Scenario, *, real_gpu: bool, folder: Path) -> None:
        self.simulated = "" if real_gpu else SIMULATED
        """What every screen, report and recording has to say; empty on a real GPU."""
        self.collectors: tuple[CollectorFactory, ...] = COLLECTORS
        """What the run samples with: the real collectors, the GPU one replaced if simulated."""
        self._children: list[Popen[bytes]] = []
        self.workspace = _make_workspace(folder)
        try:
            self._start(scenario, real_gpu=real_gpu)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The process to attach to."""
        return self._children[0].pid

    @property
    def log_path(self) -> Path:
        """What that process printed."""
        return self.workspace / "target.log"

    def ended(self) -> bool:
        """True once the process to watch is gone."""
        return self._children[0].poll() is not None

    def close(self) -> None:
        """End the processes and remove their files. Never raises, may be called twice."""
        for child in self._children:
            with contextlib.suppress(OSError):
                child.terminate()
        deadline_s = time.monotonic() + END_WITHIN_S
        for child in self._children:
            try:
                child.wait(max(0.0, deadline_s - time.monotonic()))
            except TimeoutExpired:
                with contextlib.suppress(OSError):
                    child.kill()
                child.wait()
        shutil.rmtree(self.workspace, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self, scenario: Scenario, *, real_gpu: bool) -> None:
        shared = ("--share", str(self.workspace / "device.lock")) if scenario.neighbour else ()
        how = ("--torch",) if real_gpu else ()
        self._launch("target.log", (*scenario.program, *shared, *how))
        if scenario.neighbour:
            self._launch("neighbour.log", (*scenario.neighbour, *shared, *how))
        self._wait_until_ready()
        if not real_gpu:
            self.collectors = self._with_simulated_gpu(scenario.card)
