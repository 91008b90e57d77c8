"""What monitors ask of the NVIDIA driver: calls by function, driver time, CPU; side by side.

The simulated driver counts calls and the time that each kept its caller waiting. PCIe throughput
calls take 20 ms and process lists 4.5 ms, as measured on real hosts. Every program runs on the same
scenario under a pty, as long as it takes for its rates to settle.

    python bench/nvml_calls.py [--seconds 30] [--gpus 1 8] [--nvtop PATH] [--only NAME ...]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests"), str(ROOT / "src")]

from pty_measure import Measured, measure  # noqa: E402
from whole import AS_INSTALLED, gpu_processes  # noqa: E402

from nvml.build import CallStats, build, read_stats  # noqa: E402
from nvml.host import environment, scenario_path  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping

SLOW = "slow nvmlDeviceGet*RunningProcesses* 4.5\n"
WARM_S = 10.0
"""After it rates are counted: start-up and what is asked once are over."""
LAST_S = 0.5
"""Counting ends so long before the program is asked to."""


@dataclass(frozen=True)
class Rates:
    """What one program cost a second."""

    calls: Mapping[str, float]
    driver_ms: float
    measured: Measured

    @property
    def all_calls(self) -> float:
        return sum(self.calls.values())


def scenario(folder: Path, gpus: int) -> Path:
    """The first GPUs of the bench's host, with slow process lists."""
    head, *blocks = scenario_path("eight-gpus").read_text().split("\ngpu\n")
    path = folder / f"{gpus}.scn"
    path.write_text("\ngpu\n".join([f"{head}\n{SLOW}", *blocks[:gpus]]))
    return path


def run(command: list[str], env: dict[str, str], stats: Path, seconds: float) -> Rates:
    """Run one program and count between the end of its start-up and its last second."""
    counted: list[tuple[float, dict[str, CallStats]]] = []

    def count() -> None:
        began = time.monotonic()
        for at in (WARM_S, seconds - LAST_S):
            time.sleep(max(0.0, began + at - time.monotonic()))
            counted.append((time.monotonic(), read_stats(stats)))

    counter = threading.Thread(target=count, daemon=True)
    counter.start()
    measured = measure(command, run_s=seconds, warm_s=WARM_S, env=env)
    counter.join()
    (since, before), (until, after) = counted
    span_s = until - since
    none = CallStats(0, 0, 0)
    calls = {
        name: (stat.calls - before.get(name, none).calls) / span_s for name, stat in after.items()
    }
    spent_ns = sum(stat.ns - before.get(name, none).ns for name, stat in after.items())
    return Rates(
        {name: rate for name, rate in calls.items() if rate}, spent_ns / 1e6 / span_s, measured
    )


def show(gpus: int, found: Mapping[str, Rates]) -> None:
    """Print one table of totals and one of functions, a column a program."""
    names = list(found)
    print(f"\n{gpus} GPU{'s' if gpus > 1 else ''}, a second      " + _row(names))
    totals = {
        "driver calls": [f"{rates.all_calls:.1f}" for rates in found.values()],
        "driver time, ms": [f"{rates.driver_ms:.2f}" for rates in found.values()],
        "CPU, ms": [f"{rates.measured.cpu_ms_per_s:.1f}" for rates in found.values()],
    }
    for title, cells in totals.items():
        print(f"  {title:44}" + _row(cells))
    functions = sorted({name for rates in found.values() for name in rates.calls})
    for function in functions:
        cells = [f"{rates.calls.get(function, 0):.2f}" for rates in found.values()]
        print(f"  {function:44}" + _row(cells))


def _row(cells: list[str]) -> str:
    return "".join(f"{cell:>12}" for cell in cells)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--nvtop", default="nvtop", help="where it is not on the path")
    parser.add_argument("--only", nargs="+", choices=("bottletop", "nvitop", "nvtop"))
    arguments = parser.parse_args()
    programs = {
        "bottletop": [sys.executable, "-m", "bottletop"],
        "nvitop": [str(Path(sys.executable).with_name("nvitop")), "--monitor", "auto"],
        "nvtop": [arguments.nvtop, "--delay", "10"],
    }
    wanted = [name for name in programs if arguments.only is None or name in arguments.only]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build(folder)
        sleepers = gpu_processes()
        try:
            pids = {f"PID{number}": str(child.pid) for number, child in enumerate(sleepers)}
            for gpus in arguments.gpus:
                found = {}
                for program in wanted:
                    if shutil.which(programs[program][0]) is None:
                        print(f"{program}: not installed, left out")
                        continue
                    stats = folder / f"stats-{program}-{gpus}"
                    env = environment(library, scenario(folder, gpus), stats=stats, variables=pids)
                    env |= {**AS_INSTALLED, "HOME": name}
                    found[program] = run(programs[program], env, stats, arguments.seconds)
                show(gpus, found)
        finally:
            for child in sleepers:
                child.kill()
                child.wait()


if __name__ == "__main__":
    main()
