"""Every screen as text, at the sizes that count, against the files in `snapshots/`.

A difference is a change of what people see. Look at it, and if it is meant, write the files anew:

    UPDATE_SNAPSHOTS=1 python -m pytest tests/tui/test_snapshots.py
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from bottletop.attach import Candidate
from bottletop.model import ProcessId
from bottletop.tables import Core, Gpu, GpuUtilSample
from bottletop.tables.stage import STACKS
from bottletop.tui import glyphs
from tui.conftest import dashboard
from tui.synthetic import Host, RecordedHost, Shape, settled

if TYPE_CHECKING:
    from bottletop.model import Table
    from bottletop.tui.glyphs import Glyphs
    from tui.synthetic import LiveHost

FOLDER = Path(__file__).with_name("snapshots")
NO_DRIVER = "libnvidia-ml.so.1 not found: no NVIDIA driver is installed"


class Case(NamedTuple):
    name: str
    size: tuple[int, int] = (80, 24)
    shape: Shape = Shape()
    keys: tuple[str, ...] = ()
    replay: bool = False
    silent: tuple[type[Table], ...] = ()
    drawn_with: Glyphs = glyphs.BRAILLE


ONE_GPU = Shape(gpus=1, gpus_of_target=1, cores=16, disks=2)
BARE = Shape(gpus=0, target=False, findings=False, no_gpu_reason=NO_DRIVER)
SAMPLED = Shape(source=STACKS, rungs=True)
CASES = (
    Case("overview-60x15", (60, 15)),
    Case("overview-80x24"),
    Case("overview-120x40", (120, 40)),
    Case("overview-200x50", (200, 50)),
    Case("too-small-50x12", (50, 12)),
    Case("one-gpu-80x24", shape=ONE_GPU),
    Case("one-gpu-120x40", (120, 40), ONE_GPU),
    Case("few-cores-80x24", shape=Shape(gpus=1, gpus_of_target=1, cores=4)),
    Case("many-gpus-80x24", shape=Shape(gpus=16, cores=256)),
    Case("many-gpus-120x40", (120, 40), Shape(gpus=16, cores=768)),
    Case("lost-gpu-80x24", shape=Shape(gpus=2, gpus_of_target=1, lost_gpu=1)),
    Case("no-gpu-no-target-80x24", shape=BARE),
    Case("no-stages-80x24", shape=Shape(gpus=2, gpus_of_target=1, stages=False)),
    Case("server-80x24", shape=Shape(servers=1)),
    Case("server-busy-120x40", (120, 40), Shape(servers=1, busy_servers=1, stages=False)),
    Case("sampled-80x24", shape=Shape(gpus=1, gpus_of_target=1, source=STACKS)),
    Case("refused-80x24", shape=Shape(gpus=2, gpus_of_target=1, stages=False, rungs=True)),
    Case("ways-80x24", shape=Shape(servers=1, busy_servers=1, rungs=True), keys=("2",)),
    Case("ways-ascii-80x24", shape=SAMPLED, keys=("2",), drawn_with=glyphs.ASCII),
    Case("silent-driver-80x24", shape=Shape(gpus=2), silent=(Gpu, GpuUtilSample, Core)),
    Case("simulated-80x24", shape=Shape(gpus=1, gpus_of_target=1, simulated="simulated GPU")),
    Case("paused-80x24", keys=("p",)),
    Case("gpus-alone-80x24", keys=("1",)),
    Case("stages-alone-80x24", keys=("2",)),
    Case("disks-alone-120x40", (120, 40), keys=("4",)),
    Case("blocks-80x24", drawn_with=glyphs.BLOCKS),
    Case("console-80x24", drawn_with=glyphs.CONSOLE),
    Case("ascii-80x24", drawn_with=glyphs.ASCII),
    Case("finding-80x24", keys=("enter",)),
    Case("finding-120x40", (120, 40), keys=("down", "enter")),
    Case("finding-200x50", (200, 50), keys=("enter",)),
    Case("finding-ascii-80x24", keys=("enter", "pagedown"), drawn_with=glyphs.ASCII),
    Case("calm-80x24", shape=Shape(findings=False)),
    Case("replay-80x24", replay=True),
    Case("replay-120x40", (120, 40), replay=True),
    Case("replay-goto-80x24", replay=True, keys=("g",)),
    Case("help-80x24", keys=("question_mark",)),
    Case("help-replay-120x50", (120, 50), replay=True, keys=("question_mark",)),
    Case("picker-60x15", (60, 15), keys=("a",)),
    Case("picker-80x24", keys=("a", "p", "y")),
)


def processes() -> list[Candidate]:
    """What the picker offers: a plain name, a wide one, and one that looks like markup."""
    names = (("python3", "ml"), ("パイソン", "ml"), ("py [/b]bold", "root"), ("nginx", "www-data"))
    return [
        Candidate(
            ProcessId(4000 + at, 9), 1, name, f"{name} --serve", user, 9e3 / (at + 1), 7e4, at
        )
        for at, (name, user) in enumerate(names)
    ]


def source_of(case: Case) -> Host | RecordedHost | LiveHost:
    return RecordedHost(case.shape) if case.replay else settled(case.shape)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_screen(case: Case) -> None:
    source = source_of(case)
    async with dashboard(
        source, case.size, drawn_with=case.drawn_with, candidates=processes
    ) as stage:
        if case.silent:
            assert isinstance(source, Host)
            source.silent.update(case.silent)
            source.run(9)
        await stage.settle()
        seen = await stage.press(*case.keys)
        if case.keys[:1] == ("a",):
            seen = await stage.until("of 4")
    check(case.name, seen)


def check(name: str, seen: str) -> None:
    """Compare with the file, or write it."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(seen, encoding="utf-8")
        return
    expected = path.read_text(encoding="utf-8")
    if seen != expected:
        lines = difflib.unified_diff(
            expected.splitlines(), seen.splitlines(), str(path), "screen", lineterm=""
        )
        pytest.fail("\n".join(lines), pytrace=False)


def test_no_snapshot_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {case.name for case in CASES}
