"""The CPython versions that this machine has and the probe supports."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from typing import NamedTuple

SUPPORTED = tuple((3, minor) for minor in range(8, 15))
_ASK = (
    "import platform, sys;"
    "print(platform.python_implementation(), sys.version_info[0], sys.version_info[1])"
)


class Interpreter(NamedTuple):
    """One Python to run programs with."""

    version: tuple[int, int]
    path: str

    def __str__(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"


OWN = Interpreter((sys.version_info[0], sys.version_info[1]), sys.executable)


def _version(path: str) -> tuple[int, int] | None:
    """What it says it is; None for what does not run (shims of versions that are not chosen)."""
    try:
        answer = subprocess.run(
            [path, "-I", "-c", _ASK], capture_output=True, text=True, timeout=30, check=True
        ).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return None
    if len(answer) != 3 or answer[0] != "CPython":
        return None
    return int(answer[1]), int(answer[2])


def _candidates() -> list[str]:
    named = [shutil.which(f"python{major}.{minor}") for major, minor in SUPPORTED]
    kept = sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python")))
    return [path for path in (*named, *kept) if path]


def _discover() -> tuple[Interpreter, ...]:
    found = {OWN.version: OWN}
    for path in _candidates():
        version = _version(path)
        if version in SUPPORTED and version not in found:
            found[version] = Interpreter(version, path)
    return tuple(found[version] for version in sorted(found))


INTERPRETERS = _discover()
"""One a version, the running interpreter always among them."""
