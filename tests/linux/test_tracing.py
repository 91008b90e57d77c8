"""Whether another process's memory may be read, said before it is tried."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hosttree import HostTree

from bottletop.linux.tracing import Tracing, tracing

if TYPE_CHECKING:
    from pathlib import Path

MINE, OTHER = os.getuid(), os.getuid() + 1


@pytest.mark.parametrize(
    ("scope", "uid", "capabilities", "expected"),
    [
        (None, MINE, "0", Tracing.ALLOWED),
        ("0", MINE, "0", Tracing.ALLOWED),
        ("0", OTHER, "0", Tracing.OTHER_USER),
        ("1", MINE, "0", Tracing.YAMA_DESCENDANTS),
        ("1", MINE, "0000000000080000", Tracing.ALLOWED),
        ("2", MINE, "0", Tracing.YAMA_CAPABILITY),
        ("2", OTHER, "000001ffffffffff", Tracing.ALLOWED),
        ("3", MINE, "000001ffffffffff", Tracing.YAMA_NOBODY),
        ("garbage", MINE, "garbage", Tracing.ALLOWED),
    ],
)
def test_the_kernels_rules(
    tmp_path: Path, scope: str | None, uid: int, capabilities: str, expected: Tracing
) -> None:
    tree = HostTree(tmp_path)
    tree.process(50, uid=uid)
    tree.write("proc/self/status", f"Name:\tx\nCapEff:\t{capabilities}\n")
    if scope is not None:
        tree.write("proc/sys/kernel/yama/ptrace_scope", f"{scope}\n")
    assert tracing(tree.captured, 50) is expected


def test_what_stands_in_the_way_names_the_command() -> None:
    for reason in Tracing:
        text = reason.text(41)
        assert bool(text) == (reason is not Tracing.ALLOWED)
        if reason in (Tracing.OTHER_USER, Tracing.YAMA_DESCENDANTS, Tracing.YAMA_CAPABILITY):
            assert text.endswith("sudo bottletop attach 41")
