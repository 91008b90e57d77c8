"""Builds the simulated NVML. Used by the tests and by the bench."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
SOURCES = (
    *("nvml_sim.c", "nvml_series.c", "nvml_event.c", "nvml_gpm.c", "nvml_mig.c"),
    *("nvml_health.c", "nvml_link.c", "scenario.c", "core.c"),
)
HEADERS = ("nvml_abi.h", "sim.h", "calls.h")
SCENARIOS = HERE / "scenarios"
LIBRARY = "libnvidia-ml.so.1"
STATS_RECORD = struct.Struct("<64sQQQ40x")


def build(dest: Path, without: tuple[str, ...] = ()) -> Path:
    """Compile the library under `dest` and return the folder to put into LD_LIBRARY_PATH.

    Built once for the same sources; several processes may ask at once. Functions named in `without`
    are not exported, as in an old driver. Raises CalledProcessError when cc refuses.
    """
    digest = hashlib.sha256(repr(without).encode())
    for name in (*SOURCES, *HEADERS):
        digest.update((HERE / name).read_bytes())
    folder = dest / f"nvml-{digest.hexdigest()[:16]}"
    library = folder / LIBRARY
    if library.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"building-{os.getpid()}"
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    subprocess.run(
        [
            compiler,
            *("-std=gnu11", "-O1", "-Wall", "-Wextra", "-shared", "-fPIC"),
            *(f"-D{name}=left_out_{name}" for name in without),
            *("-o", str(fresh)),
            *(str(HERE / name) for name in SOURCES),
            *("-lm", "-lpthread"),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    fresh.replace(library)
    return folder


class CallStats(NamedTuple):
    """What the library was asked: calls, and the time that it kept the caller waiting."""

    calls: int
    ns: int
    longest_ns: int


def read_stats(path: Path) -> dict[str, CallStats]:
    """Calls by function from a file named in NVML_SIM_STATS; may be read while it is written."""
    raw = path.read_bytes() if path.exists() else b""
    found: dict[str, CallStats] = {}
    for record in STATS_RECORD.iter_unpack(raw[: len(raw) - len(raw) % STATS_RECORD.size]):
        name = record[0].rstrip(b"\0").decode("ascii")
        if name:
            found[name] = CallStats(*record[1:])
    return found
