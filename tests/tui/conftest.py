"""What screen tests share: one time zone, and a dashboard on a made-up host."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pytest

from bottletop.tui import compat, glyphs
from bottletop.tui.shell import BottletopApp
from tui.synthetic import LiveHost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from textual.pilot import Pilot

    from bottletop.tui.glyphs import Glyphs
    from tui.synthetic import Host, RecordedHost


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


MOST_PAUSES = 200


class Stage:
    """A running dashboard: what is on the screen, and the hands that type."""

    def __init__(self, app: BottletopApp, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def text(self) -> str:
        return compat.screen_text(self.app)

    async def press(self, *keys: str) -> str:
        """Type, let everything settle, and return the screen."""
        for key in keys:
            await self.pilot.press(key)
        return await self.settle()

    async def until(self, text: str) -> str:
        """Wait for what a thread of the app is about to say, and return the screen."""
        for _ in range(MOST_PAUSES):
            screen = await self.settle()
            if text in screen:
                return screen
            await self.pilot.pause(0.02)
        raise AssertionError(f"{text!r} never appeared; the screen is:\n{self.text}")

    async def settle(self) -> str:
        """Look at the feed, let everything settle, and return the screen."""
        self.app.tick()
        for _ in range(MOST_PAUSES):
            await self.pilot.pause()
            if compat.is_painted(self.app):
                return self.text
        raise AssertionError("the screen never came to rest")


@contextlib.asynccontextmanager
async def dashboard(
    source: Host | LiveHost | RecordedHost,
    size: tuple[int, int] = (80, 24),
    *,
    theme: str = "bottletop",
    drawn_with: Glyphs = glyphs.BRAILLE,
    log_path: str | None = None,
    candidates: Callable[[], Sequence[object]] = tuple,
) -> AsyncIterator[Stage]:
    """Run the dashboard headless on a made-up host; nothing moves unless the test moves it."""
    live = not hasattr(source, "advance")
    host = source.host if hasattr(source, "host") else source
    app = BottletopApp(
        LiveHost(source) if host is source else source,
        clock=host.clock,
        glyphs=drawn_with,
        theme=theme,
        mode="live" if live else "replay",
        log_path=log_path,
        candidates=candidates,  # type: ignore[arg-type]
        poll_s=None,
    )
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield Stage(app, pilot)
