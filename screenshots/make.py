"""Makes the pictures of the README from recordings.

    python screenshots/make.py [--record] [FOLDER]

Every picture is the real program showing a recording, in a headless terminal of a given size. The
recordings are made by the demo scenarios (a real process, a simulated GPU that says so on every
picture) and kept beside the pictures; `--record` makes them anew, which takes a minute each.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from picture import png

if TYPE_CHECKING:
    from bottletop.tui.shell import BottletopApp

HERE = Path(__file__).parent
RECORD_S = 75
"""Long enough for every scenario to reach its verdict and fill a minute of history."""


class Shot(NamedTuple):
    """One picture: which recording, at what size, after which keys."""

    name: str
    scenario: str
    size: tuple[int, int]
    keys: tuple[str, ...] = ()
    theme: str = "bottletop"


SHOTS = (
    Shot("dashboard-80x24", "cpu-starved", (80, 24)),
    Shot("dashboard-120x40", "cpu-starved", (120, 40)),
    Shot("dashboard-200x50", "cpu-starved", (200, 50)),
    Shot("dashboard-light-120x40", "cpu-starved", (120, 40), theme="bottletop-light"),
    Shot("finding-120x40", "cpu-starved", (120, 40), ("enter",)),
    Shot("finding-200x50", "cpu-starved", (200, 50), ("enter",)),
    Shot("gpu-120x40", "throttled", (120, 40), ("i",)),
    Shot("replay-120x40", "throttled", (120, 40), ("left",)),
)


def main() -> int:
    """Make what was asked for and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=HERE, help="where pictures go")
    parser.add_argument("--record", action="store_true", help="make the recordings anew")
    arguments = parser.parse_args()
    # The pictures must not depend on where they are made.
    os.environ.update(TZ="UTC", TEXTUAL_ANIMATIONS="none")
    time.tzset()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    recordings = arguments.folder / "recordings"
    for scenario in sorted({shot.scenario for shot in SHOTS}):
        path = recordings / f"{scenario}.btrec"
        if arguments.record or not path.exists():
            sys.stderr.write(f"recording {scenario} for {RECORD_S} s\n")
            record(scenario, path)
    for shot in SHOTS:
        path = arguments.folder / f"{shot.name}.png"
        path.write_bytes(asyncio.run(take(shot, recordings / f"{shot.scenario}.btrec")))
        sys.stderr.write(f"{path}\n")
    return 0


def record(scenario: str, path: Path) -> None:
    """Run a demo scenario and record it."""
    from bottletop import demo
    from bottletop.attach import identify
    from bottletop.live import live_runtime
    from bottletop.roots import Roots

    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    with demo.find(scenario).start(real_gpu=False) as running:
        runtime = live_runtime(
            root_process=identify(Roots(), running.pid),
            collectors=running.collectors,
            simulated=running.simulated,
        )
        runtime.start_recording(str(path))
        runtime.start()
        try:
            time.sleep(RECORD_S)
        finally:
            runtime.stop()


async def take(shot: Shot, recording: Path) -> bytes:
    """Show the end of a recording, type, and render what is seen."""
    from bottletop.tui import compat

    app = replaying(recording, shot.theme)
    async with app.run_test(size=shot.size) as pilot:
        await pilot.press("end", *shot.keys)
        while True:
            await pilot.pause()
            if compat.is_painted(app):
                break
        return png(app.export_screenshot(title=f"bottletop replay {recording.name}"))


def replaying(recording: Path, theme: str) -> BottletopApp:
    """The program on a recording, without a timer."""
    from bottletop.clock import SystemClock
    from bottletop.replay import Replay
    from bottletop.session.reader import open_recording
    from bottletop.tui import glyphs
    from bottletop.tui.shell import BottletopApp

    return BottletopApp(
        Replay(open_recording(str(recording)), SystemClock()),
        clock=SystemClock(),
        glyphs=glyphs.BRAILLE,
        theme=theme,
        mode="replay",
        poll_s=None,
    )


if __name__ == "__main__":
    raise SystemExit(main())
