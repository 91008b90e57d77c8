"""An idle GPU that may be suspended is left alone; one that works, or will not sleep, is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bottletop.collectors.gpu_rest import Rest
from bottletop.linux.pci import PciBus
from bottletop.model import NS_PER_S, Absent
from bottletop.roots import Roots
from nvml.pci import PciTree

if TYPE_CHECKING:
    from pathlib import Path

    from bottletop.model import Value

FIRST = "0000:10:00.0"


class Watched:
    """A GPU under watch, second by second."""

    def __init__(self, folder: Path, control: str = "auto") -> None:
        self.tree = PciTree(folder / "sys")
        self.tree.add(FIRST, control=control)
        self.rest = Rest(PciBus(Roots(sys=str(self.tree.root))), FIRST)
        self.second = 0

    def run(self, seconds: int, util_pct: Value = 0, processes: Value = 0) -> int:
        """Let time pass; returns in how many of these seconds the GPU was read."""
        reads = 0
        for _ in range(seconds):
            now_ns = self.second * NS_PER_S
            self.rest.follow(now_ns)
            if not self.rest.is_on:
                self.rest.observe(now_ns, util_pct=util_pct, processes=processes)
                reads += 1
            self.second += 1
        return reads


def test_it_is_read_for_a_minute_then_left_alone_while_it_sleeps(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    assert watched.run(65) == 61
    watched.tree.status(FIRST, "suspended")
    assert watched.run(600) == 0
    watched.tree.status(FIRST, "active")
    assert watched.run(10, util_pct=50, processes=1) == 10


@pytest.mark.parametrize(
    ("util_pct", "processes"),
    [(1, 0), (0, 1), (Absent.error("no answer"), 0), (0, Absent.denied("no right"))],
)
def test_work_a_process_or_not_knowing_keeps_it_read(
    tmp_path: Path, util_pct: Value, processes: Value
) -> None:
    assert Watched(tmp_path).run(300, util_pct, processes) == 300


def test_a_gpu_that_is_never_suspended_here_is_read_always(tmp_path: Path) -> None:
    assert Watched(tmp_path, control="on").run(300) == 300


def test_one_that_does_not_fall_asleep_is_read_again_and_tried_ever_more_rarely(
    tmp_path: Path,
) -> None:
    watched = Watched(tmp_path)
    assert watched.run(61) == 61
    assert watched.run(29) == 0  # left alone, and still awake
    assert watched.run(121) == 121
    assert watched.run(29) == 0
    assert watched.run(241) == 241
    assert watched.run(29) == 0


def test_work_in_between_begins_the_minute_anew(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.run(50)
    watched.run(1, util_pct=3)
    assert watched.run(61) == 61
    assert watched.run(5) == 0
