"""Starts a scenario's processes, ties the simulated GPU to them, and tidies up behind them."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import bottletop
from bottletop.collectors import COLLECTORS
from bottletop.demo.forward import ForwardStage
from bottletop.demo.handshake import EXIT_CANNOT, READY
from bottletop.demo.scenarios import DemoUnavailable
from bottletop.demo.simulated_gpu import SIMULATED, SimulatedGpu, Tenant
from bottletop.linux.procfs import read_stat
from bottletop.model import ProcessId
from bottletop.roots import Roots
from bottletop.text import clean

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from bottletop.collectors.base import CollectorFactory
    from bottletop.demo.gpu_model import Card
    from bottletop.demo.scenarios import Scenario

PREFIX = ".bottletop-demo-"
START_WITHIN_S = 60.0
END_WITHIN_S = 2.0
TARGET_MEM_BYTES = 14 * 1024**3
NEIGHBOUR_MEM_BYTES = 9 * 1024**3
MAX_LOG_BYTES = 64 * 1024


class _Program:
    """One process of the demo and its log."""

    def __init__(self, arguments: tuple[str, ...], log_path: Path) -> None:
        # -P: a `json.py` in the user's folder must not become part of the program. A session of its
        # own: Ctrl-C is for bottletop, which then ends its programs itself.
        command = [sys.executable, "-P", "-m", "bottletop.demo.child", *arguments]
        self.log_path = log_path
        with open(log_path, "wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(),
                start_new_session=True,
            )
        self.id = ProcessId(self._process.pid, read_stat(Roots(), self._process.pid).start_ticks)

    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait_until_ready(self, deadline_s: float) -> None:
        """Return once it said that it is. Raises `DemoUnavailable`."""
        while READY.encode() not in self._log_lines():
            code = self._process.poll()
            if code is not None:
                last = clean((self._log_lines() or [b"it said nothing"])[-1], 300)
                why = last if code == EXIT_CANNOT else f"its program ended ({code}): {last}"
                raise DemoUnavailable(why)
            if time.monotonic() > deadline_s:
                raise DemoUnavailable(f"its program was not ready in {START_WITHIN_S:.0f} s")
            time.sleep(0.02)

    def _log_lines(self) -> list[bytes]:
        with open(self.log_path, "rb") as log:
            return log.read(MAX_LOG_BYTES).splitlines()

    def ask_to_end(self) -> None:
        # Popen signals nothing that it has already waited for, so no reused pid is hit.
        self._process.terminate()

    def end(self, within_s: float) -> None:
        """Wait for its end; kill it when that takes too long."""
        try:
            self._process.wait(max(0.0, within_s))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class RunningDemo:
    """A scenario under way. `close` ends its processes and removes its files."""

    def __init__(self, scenario: Scenario, *, real_gpu: bool, folder: Path) -> None:
        self.simulated = "" if real_gpu else SIMULATED
        """What every screen, report and recording has to say; empty on a real GPU."""
        self._programs: list[_Program] = []
        self.workspace = _make_workspace(folder)
        try:
            self._start(scenario, real_gpu=real_gpu)
        except BaseException:
            self.close()
            raise
        self.collectors = COLLECTORS if real_gpu else self._with_simulated_gpu(scenario.card)
        """What the run samples with: the real collectors, the GPU one replaced if simulated."""

    def _start(self, scenario: Scenario, *, real_gpu: bool) -> None:
        common: tuple[str, ...] = ("--parent", str(os.getpid()), "--workspace", str(self.workspace))
        if scenario.neighbour:
            common += ("--share", str(self.workspace / "device.lock"))
        if real_gpu:
            common += ("--torch",)
        for name, program in (("target", scenario.program), ("neighbour", scenario.neighbour)):
            if program:
                log_path = self.workspace / f"{name}.log"
                self._programs.append(_Program((*program, *common), log_path))
        deadline_s = time.monotonic() + START_WITHIN_S
        for started in self._programs:
            started.wait_until_ready(deadline_s)

    def _with_simulated_gpu(self, card: Card) -> tuple[CollectorFactory, ...]:
        tenants = [
            Tenant(ForwardStage(Roots(), program.id), size)
            for program, size in zip(
                self._programs, (TARGET_MEM_BYTES, NEIGHBOUR_MEM_BYTES), strict=False
            )
        ]
        simulated = functools.partial(SimulatedGpu, card=card, tenants=tenants)
        # What else is read of a real GPU (gpu_event and its like) has no part in a simulated one.
        names = [getattr(factory, "name", "") for factory in COLLECTORS]
        return tuple(
            simulated if name == SimulatedGpu.name else factory
            for name, factory in zip(names, COLLECTORS, strict=True)
            if not name.startswith(f"{SimulatedGpu.name}_")
        )

    @property
    def pid(self) -> int:
        """The process to attach to."""
        return self.root_process.pid

    @property
    def root_process(self) -> ProcessId:
        """The process to attach to, as one that reuse of its pid cannot impersonate."""
        return self._programs[0].id

    @property
    def log_path(self) -> Path:
        """What that process prints."""
        return self._programs[0].log_path

    def ended(self) -> bool:
        """True once the process to watch is gone."""
        return self._programs[0].ended()

    def close(self) -> None:
        """End the processes and remove their files. May be called twice."""
        for program in self._programs:
            program.ask_to_end()
        deadline_s = time.monotonic() + END_WITHIN_S
        for program in self._programs:
            program.end(deadline_s - time.monotonic())
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


def start(scenario: Scenario, *, real_gpu: bool, folder: Path | None) -> RunningDemo:
    """Start a scenario and return once it runs steadily. Raises `DemoUnavailable`."""
    if real_gpu and not scenario.real_gpu:
        raise DemoUnavailable(f"{scenario.name} needs a simulated GPU: leave --real-gpu out")
    # Looked up, not imported: the monitor never loads torch.
    if real_gpu and importlib.util.find_spec("torch") is None:
        raise DemoUnavailable("--real-gpu needs torch: pip install 'bottletop[torch]'")
    where = (folder or Path.cwd()) if scenario.needs_disk else Path(tempfile.gettempdir())
    try:
        return RunningDemo(scenario, real_gpu=real_gpu, folder=where)
    except OSError as error:
        raise DemoUnavailable(f"cannot start in {where}: {error.strerror or error}") from error


def _make_workspace(folder: Path) -> Path:
    """A private folder in `folder`. Raises OSError."""
    _sweep(folder)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=folder))


def _sweep(folder: Path) -> None:
    """Remove what a demo left that was killed together with its programs."""
    for path in folder.glob(f"{PREFIX}*-*"):
        pid = path.name.removeprefix(PREFIX).partition("-")[0]
        if not pid.isdigit() or os.path.exists(f"/proc/{pid}"):
            continue
        with contextlib.suppress(OSError):
            if path.lstat().st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)


def _environment() -> dict[str, str]:
    """Ours, made so that the program finds this very bottletop, run from a checkout or not."""
    environment = dict(os.environ)
    root = Path(bottletop.__file__).parents[1]
    if root.name not in ("site-packages", "dist-packages"):
        others = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{others}" if others else str(root)
    # The demo needs its probe, whatever the user set for programs of their own.
    environment.pop("BOTTLETOP_PROBE", None)
    return environment
