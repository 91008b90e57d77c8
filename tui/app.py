"""How a program opens the screens: `run_dashboard` and `pick_process`.

Imports nothing of Textual until one of them is called, since Textual reads its settings from the
environment when it is imported, and they must be there by then.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bottletop.attach import Candidate
    from bottletop.model import ProcessId
    from bottletop.snapshot import Feed
    from bottletop.tui.glyphs import Glyphs

SETTINGS = {
    "TEXTUAL_FPS": "30",
    "TEXTUAL_ANIMATIONS": "none",
    "TEXTUAL_SMOOTH_SCROLL": "0",
    "ESCDELAY": "25",
}
"""30 frames a second bound what a held key costs; a lone Esc waits 25 ms for more, not 100."""


def run_dashboard(
    feed: Feed,
    *,
    mode: str = "live",
    theme: str = "auto",
    glyphs: str = "auto",
    pick: bool = False,
    log_path: str | None = None,
    for_s: float | None = None,
    candidates: Callable[[], Sequence[Candidate]] | None = None,
) -> int:
    """Show the dashboard until it is left, and return the exit code.

    `feed` is a `LiveFeed`, or a `ReplayFeed` with `mode="replay"`; it is not started or stopped
    here. `theme` is auto, dark, light or ansi; `glyphs` is auto, braille, blocks or ascii. `pick`
    opens the process picker first, `log_path` gives the output pane its file, `for_s` closes the
    screens by itself, and `candidates` lists what the picker offers. Returns 0, 129 after a hang-up
    or 143 after SIGTERM. Raises ValueError on an unknown theme or glyph set.
    """
    _prepare()
    from bottletop.clock import SystemClock
    from bottletop.tui.shell import BottletopApp

    app = BottletopApp(
        feed,
        clock=SystemClock(),
        glyphs=_glyphs(glyphs),
        theme=_theme(theme),
        mode=mode,
        log_path=log_path,
        for_s=for_s,
        pick=pick,
        candidates=candidates or host_candidates,
    )
    return app.run_until_left()


def pick_process(
    candidates: Sequence[Candidate], *, theme: str = "auto", glyphs: str = "auto"
) -> ProcessId | None:
    """Let the user pick one of several processes. None when nothing was picked."""
    _prepare()
    from bottletop.tui.pick import PickApp

    app = PickApp(candidates, glyphs=_glyphs(glyphs), theme=_theme(theme))
    return app.run()


def host_candidates() -> Sequence[Candidate]:
    """The processes of this host, busiest first."""
    from bottletop.attach import list_processes
    from bottletop.roots import Roots

    return list_processes(Roots())


def _prepare() -> None:
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def _glyphs(wanted: str) -> Glyphs:
    from bottletop.tui import glyphs

    encoding = getattr(sys.__stderr__, "encoding", None)
    return glyphs.choose(wanted, encoding, os.environ.get("TERM", ""))


def _theme(wanted: str) -> str:
    from bottletop.tui import themes

    environ = os.environ
    colors = themes.terminal_colors(environ.get("TERM", ""), environ.get("COLORTERM", ""))
    return themes.choose(wanted, no_color=bool(environ.get("NO_COLOR")), colors=colors)
