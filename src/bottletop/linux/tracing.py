"""Whether another process's memory may be read: PTRACE_MODE_ATTACH, as ptrace(2) has it.

The kernel asks for the same user or CAP_SYS_PTRACE, and Yama (kernel.yama.ptrace_scope) for more:
1 allows only descendants, 2 only CAP_SYS_PTRACE, 3 nobody.
"""

from __future__ import annotations

import enum
import os
from typing import TYPE_CHECKING

from bottletop.linux import procfs
from bottletop.roots import read_record

if TYPE_CHECKING:
    from bottletop.roots import Roots

CAP_SYS_PTRACE = 19


class Tracing(enum.Enum):
    """May its memory be read, and if not, why."""

    ALLOWED = enum.auto()
    OTHER_USER = enum.auto()
    YAMA_DESCENDANTS = enum.auto()
    YAMA_CAPABILITY = enum.auto()
    YAMA_NOBODY = enum.auto()

    def text(self, pid: int) -> str:
        """Why not, with the one command that would change it."""
        attach = f"sudo bottletop attach {pid}"
        return {
            Tracing.ALLOWED: "",
            Tracing.OTHER_USER: f"it runs as another user: {attach}",
            Tracing.YAMA_DESCENDANTS: (
                f"kernel.yama.ptrace_scope=1 lets only its parents read its memory: {attach}"
            ),
            Tracing.YAMA_CAPABILITY: f"kernel.yama.ptrace_scope=2 asks for root: {attach}",
            Tracing.YAMA_NOBODY: (
                "kernel.yama.ptrace_scope=3 lets nobody read its memory until the next boot"
            ),
        }[self]


def tracing(roots: Roots, pid: int) -> Tracing:
    """Say it before anything is tried. What cannot be read counts as not standing in the way.

    Whoever reads is a child of ours, and so no parent of what we started: with ptrace_scope 1 a
    target of `bottletop run` is closed to it too.
    """
    scope = _scope(roots)
    if scope >= 3:
        return Tracing.YAMA_NOBODY
    if _capable(roots):
        return Tracing.ALLOWED
    if scope == 2:
        return Tracing.YAMA_CAPABILITY
    try:
        other = procfs.read_uid(roots, pid) not in {None, os.getuid()}
    except OSError:
        other = False
    if other:
        return Tracing.OTHER_USER
    return Tracing.YAMA_DESCENDANTS if scope == 1 else Tracing.ALLOWED


def _scope(roots: Roots) -> int:
    """0 where the kernel has no Yama."""
    try:
        return int(read_record(f"{roots.proc}/sys/kernel/yama/ptrace_scope"))
    except (OSError, ValueError):
        return 0


def _capable(roots: Roots) -> bool:
    try:
        raw = read_record(f"{roots.proc}/self/status")
    except OSError:
        return False
    field = procfs.status_field(raw, b"CapEff") or b"0"
    try:
        return bool(int(field, 16) >> CAP_SYS_PTRACE & 1)
    except ValueError:
        return False
