"""The whole program against its budget, side by side with nvitop on the same simulated driver.

8 GPUs, 20 real GPU processes, 64 cores (a generated host tree), 200x50, 1 Hz. Prints one table.
Needs the development environment; nvitop is measured where it is installed.

    python bench/whole.py [--seconds 30] [--only bottletop|nvitop]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests"), str(ROOT / "src")]

from pty_measure import Measured, measure  # noqa: E402

from nvml.build import build  # noqa: E402
from nvml.host import environment, scenario_path  # noqa: E402

GPU_PROCESSES = 20
KEYS_FROM_S = 8.0
KEYS = (b"\x1b[B", b"\x1b[A")
"""Down and up: the selection moves, so that every press draws."""
AS_INSTALLED = {
    "PYTHONPATH": str(ROOT / "src"),
    "PYTHONDONTWRITEBYTECODE": "",
}
"""With compiled modules kept, as pip leaves them; without them start-up is mostly compiling."""
BUDGETS = {
    "cpu_ms_per_s": 30.0,
    "rss_mib": 70.0,
    "first_match_s": 0.6,
    "key_p90_ms": 30.0,
    "bytes_per_s": 50_000.0,
}


def gpu_processes() -> list[subprocess.Popen[bytes]]:
    """Processes that do nothing, for the simulated driver to name."""
    return [subprocess.Popen(["sleep", "100000"]) for _ in range(GPU_PROCESSES)]


def show(name: str, measured: Measured) -> None:
    """Print one program's figures, each beside its budget."""
    print(f"\n{name} (exit code {measured.exit_code})")
    for figure, budget in BUDGETS.items():
        value = getattr(measured, figure)
        text = "-" if value is None else f"{value:10.2f}"
        print(f"  {figure:16} {text:>10}   budget {budget:g}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--only", choices=("bottletop", "nvitop"))
    parser.add_argument("--screen", action="store_true", help="print the last screen too")
    arguments = parser.parse_args()
    keys = [(KEYS_FROM_S + 0.93 * press, KEYS[press % 2]) for press in range(16)]
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        sleepers = gpu_processes()
        try:
            pids = {f"PID{number}": str(child.pid) for number, child in enumerate(sleepers)}
            env = environment(library, scenario_path("eight-gpus"), variables=pids)
            tree = make_tree(Path(folder))
            programs = {
                "bottletop": [sys.executable, "-m", "bottletop", "--root", str(tree)],
                "nvitop": [str(Path(sys.executable).with_name("nvitop")), "--monitor", "auto"],
            }
            for name, command in programs.items():
                if arguments.only not in (None, name):
                    continue
                if shutil.which(command[0]) is None:
                    print(f"\n{name}: not installed, left out")
                    continue
                measured = measure(
                    command,
                    run_s=arguments.seconds,
                    keys=keys if name == "bottletop" else None,
                    env={**env, **AS_INSTALLED, "HOME": folder},
                    expect=r"H100",
                )
                show(name, measured)
                if arguments.screen:
                    print(measured.screen)
        finally:
            for child in sleepers:
                child.kill()
                child.wait()


def make_tree(folder: Path) -> Path:
    """Generate the captured host tree of 64 cores."""
    tree = folder / "tree"
    script = ROOT / "bench" / "make_tree.py"
    subprocess.run(
        [sys.executable, str(script), str(tree), "--cores", "64", "--disks", "8"],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    return tree


if __name__ == "__main__":
    main()
