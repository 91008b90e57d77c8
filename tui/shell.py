"""The application around the screens: polling, keys that work everywhere, an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

from textual.app import App
from textual.message import Message

from bottletop.lifecycle import (
    HANGUP_CODE,
    TERMINATED_CODE,
    exit_deadline,
    has_job_control,
    watch_hangup,
)
from bottletop.tui import bindings, compat, themes
from bottletop.tui.feed import POLL_S, Pump
from bottletop.tui.screens.dashboard import Overview

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.driver import Driver

    from bottletop.attach import Candidate
    from bottletop.clock import Clock
    from bottletop.lifecycle import ExitDeadline
    from bottletop.model import Finding
    from bottletop.snapshot import Feed, Playback, RecordingStatus
    from bottletop.tui.glyphs import Glyphs
    from bottletop.tui.read_gpu import GpuPicture

SAY_S = 5.0
"""How long a message stays over the keys."""
EXIT_S = 2.0
"""After this long an exit that hangs (stalled terminal, stuck call) is ended by force."""
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class BottletopApp(App[int]):
    """One feed, one overview, screens over it."""

    CSS_PATH = "app.tcss"
    TITLE = "bottletop"
    BINDINGS = [*bindings.APP]
    ENABLE_COMMAND_PALETTE = False

    class Done(Message):
        """Something that ran off the screen's loop has ended."""

        def __init__(self, then: Callable[[], None]) -> None:
            super().__init__()
            self.then = then

    def __init__(
        self,
        feed: Feed,
        *,
        clock: Clock,
        glyphs: Glyphs,
        theme: str,
        mode: str = bindings.LIVE,
        log_path: str | None = None,
        pick: bool = False,
        candidates: Callable[[], Sequence[Candidate]] = tuple,
        poll_s: float | None = POLL_S,
        for_s: float | None = None,
    ) -> None:
        super().__init__(ansi_color=True if theme == themes.ANSI.name else None)
        for known in themes.THEMES:
            self.register_theme(known)
        self.theme = theme
        self.mode_name = mode
        self.glyphs = glyphs
        self.pump = Pump(feed, clock, replay=mode == bindings.REPLAY)
        self.overview = Overview(glyphs, mode, log_path)
        self._find_candidates = candidates
        self._pick_first = pick
        self._poll_s = poll_s
        self._for_s = for_s
        self._said_at = 0.0
        self._failure = ""
        """Why the recording stopped, once that was said."""
        self._ending: ExitDeadline | None = None
        self._line = compat.terminal_attributes()

    # -- life -------------------------------------------------------------------------------

    def get_driver_class(self) -> type[Driver]:
        return compat.whole_frames(super().get_driver_class())

    def on_mount(self) -> None:
        self.push_screen(self.overview)
        self.tick()
        if self._poll_s is not None:
            self.set_interval(self._poll_s, self.tick)
        if self._for_s is not None:
            self.set_timer(self._for_s, self.leave)
        if self._pick_first:
            self.action_attach()

    def run_until_left(self) -> int:
        """Run on the terminal, and return the exit code."""
        asyncio.run(self._run_watched())
        if self._ending is not None:
            self._ending.cancel()
        return self.return_code or 0

    async def _run_watched(self) -> None:
        """Run with SIGHUP, SIGTERM and the terminal's end taken care of; Textual does not."""
        loop = asyncio.get_running_loop()

        def end(code: int) -> None:
            # The loop may be blocked by a terminal that takes no more, so the deadline starts here
            # and not there; a handler of the loop's own would never be called.
            self._start_deadline(code)
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self.leave, code)

        codes = {signal.SIGHUP: HANGUP_CODE, signal.SIGTERM: TERMINATED_CODE}
        before = {
            number: signal.signal(number, lambda number, _: end(codes[signal.Signals(number)]))
            for number in codes
        }
        watch = watch_hangup(0, lambda: end(HANGUP_CODE))
        try:
            await self.run_async()
        finally:
            watch.stop()
            for number, handler in before.items():
                signal.signal(number, handler)

    def leave(self, code: int = 0) -> None:
        """End with `code`, within `EXIT_S` whatever is stuck."""
        self._start_deadline(code)
        if code:
            # A signal may come while a screen waits for an answer; recording stops first of all.
            self.in_background(self._close_recording)
        self.exit(code, return_code=code)

    def _start_deadline(self, code: int) -> None:
        if self._ending is None and not self.is_headless:
            self._ending = exit_deadline(EXIT_S, code, self._last_words)

    def _last_words(self) -> None:
        compat.restore_terminal(self._line)
        self._close_recording()

    def _close_recording(self) -> None:
        snapshot = self.pump.snapshot
        if snapshot is not None and snapshot.recording is not None:
            with contextlib.suppress(OSError):
                self.pump.live.stop_recording()

    # -- readings ---------------------------------------------------------------------------

    def tick(self) -> None:
        """Look at the feed; hand what is new to the screen that is seen."""
        reading = self.pump.poll()
        screen = self.screen
        if reading is not None and hasattr(screen, "show"):
            screen.show(reading)
        if reading is not None:
            self._tell_failure(reading.recording)
        if screen is self.overview:
            self.overview.tell_age(self.pump.frozen_s, self.pump.silent_s)
            self.overview.follow_log()
        if self._said_at and time.monotonic() - self._said_at > SAY_S:
            self._said_at = 0.0
            self.overview.keys.hush()

    def say(self, text: str, ink: str = "text") -> None:
        """Put a message where the keys are, for a few seconds."""
        self._said_at = time.monotonic()
        self.overview.keys.say(text, ink)

    def in_background(
        self, work: Callable[[], object], then: Callable[[object], None] | None = None
    ) -> None:
        """Run what may block in a daemon thread; `then` gets its result on the screen's loop.

        A result that is an OSError or ValueError is what the work raised.
        """

        def run() -> None:
            try:
                result = work()
            except (OSError, ValueError) as error:
                result = error
            if then is not None:
                self.post_message(self.Done(lambda: then(result)))

        threading.Thread(target=run, name="bottletop-work", daemon=True).start()

    def on_bottletop_app_done(self, message: Done) -> None:
        message.then()

    # -- keys that work everywhere ------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        del parameters
        replay = self.mode_name == bindings.REPLAY
        if action in bindings.REPLAY_ACTIONS:
            return replay
        return not (replay and action in bindings.LIVE_ACTIONS)

    async def action_quit(self) -> None:
        self.leave(0)

    def action_suspend(self) -> None:
        """Stop as Ctrl-Z does everywhere, where there is a shell that can continue us."""
        if has_job_control():
            self.action_suspend_process()
        else:
            self.say("no shell to go back to: Ctrl-Z would stop this for good")

    def action_help(self) -> None:
        from bottletop.tui.screens.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.glyphs, self.mode_name))

    def action_theme(self) -> None:
        """Go to the next theme. The terminal's own colours are not left for others when they were
        chosen for lack of colours."""
        if self.no_color:
            self.say("NO_COLOR is set")
            return
        names = [known.name for known in themes.THEMES]
        self.theme = names[(names.index(self.theme) + 1) % len(names)]

    def action_pause(self) -> None:
        self.pump.freeze(not self.pump.frozen)
        self.tick()

    def action_space(self) -> None:
        if self.mode_name == bindings.REPLAY:
            self.pump.replay.play(not self._playback_now().playing)
            self.tick()
        else:
            self.action_pause()

    def explain(self, finding: Finding) -> None:
        """Open the screen of one finding."""
        from bottletop.tui.screens.finding import FindingScreen

        if self.pump.snapshot is not None:
            self.push_screen(FindingScreen(self.glyphs, finding, self.pump.snapshot))

    def open_gpu(self, gpu: GpuPicture) -> None:
        """Open the screen of one GPU."""
        from bottletop.tui.screens.gpu import GpuScreen

        reading, snapshot = self.pump.reading, self.pump.snapshot
        if reading is not None and snapshot is not None:
            self.push_screen(GpuScreen(self.glyphs, gpu.key, reading, snapshot))

    def action_log(self) -> None:
        if not self.overview.toggle_log():
            self.say("no command was started from here: bottletop run -- CMD")

    def action_attach(self) -> None:
        from bottletop.tui.screens.picker import PickerScreen

        self.push_screen(PickerScreen(self.glyphs, self._find_candidates), self._attach_to)

    def _attach_to(self, candidate: Candidate | None) -> None:
        if candidate is None:
            return
        pid = candidate.pid
        self.in_background(
            lambda: self.pump.live.attach(pid),
            lambda result: self.say(
                str(result) if isinstance(result, Exception) else f"attached to pid {pid}",
                "warn" if isinstance(result, Exception) else "text",
            ),
        )

    def action_record(self) -> None:
        """Start a recording in the working folder, or stop the one that runs."""
        snapshot = self.pump.snapshot
        if snapshot is None:
            return
        live = self.pump.live
        if snapshot.recording is not None:
            self.say("closing the recording")
            self.in_background(live.stop_recording, self._recorded)
            return
        path = recording_path(snapshot.host)
        self.say(f"recording to {path}")
        self.in_background(lambda: live.start_recording(path), self._recording)

    def _recording(self, result: object) -> None:
        if isinstance(result, Exception):
            self.say(f"not recording: {result}", "warn")

    def _tell_failure(self, recording: RecordingStatus | None) -> None:
        """Say once why the recording has stopped; its badge stays."""
        failure = recording.error if recording is not None and recording.stopped else ""
        if failure and failure != self._failure:
            self.say(failure, "warn")
        self._failure = failure

    def _recorded(self, result: object) -> None:
        if isinstance(result, Exception):
            self.say(str(result), "warn")
        else:
            self.say(f"recorded: bottletop replay {os.path.relpath(str(result))}", "ok")

    # -- replay -----------------------------------------------------------------------------

    def _playback_now(self) -> Playback:
        snapshot = self.pump.replay.snapshot()
        assert snapshot.playback is not None
        return snapshot.playback

    def action_seek_to(self, t_ns: int) -> None:
        """Go to a moment of the recording and show it."""
        self.pump.replay.seek(t_ns)
        self.tick()

    def action_seek(self, seconds: int) -> None:
        self.action_seek_to(self._playback_now().now_ns + seconds * 1_000_000_000)

    def action_ends(self, which: int) -> None:
        playback = self._playback_now()
        self.action_seek_to(playback.end_ns if which else playback.start_ns)

    def action_step(self, count: int) -> None:
        self.pump.replay.step(count)
        self.tick()

    def action_finding(self, direction: int) -> None:
        """Go to where the next or previous finding began."""
        playback = self._playback_now()
        target = next_onset(playback, direction)
        if target is None:
            self.say("no finding after this" if direction > 0 else "no finding before this")
        else:
            self.action_seek_to(target)

    def action_speed(self, factor: float) -> None:
        speed = self._playback_now().speed * factor
        self.pump.replay.set_speed(min(max(speed, SPEEDS[0]), SPEEDS[-1]))
        self.tick()

    def action_goto(self) -> None:
        from bottletop.tui.screens.goto import GotoScreen

        self.push_screen(GotoScreen(), self._goto)

    def _goto(self, text: str | None) -> None:
        from bottletop.tui.screens.goto import parse

        snapshot = self.pump.snapshot
        if not text or snapshot is None:
            return
        try:
            self.action_seek_to(parse(text, self._playback_now(), snapshot.anchor))
        except ValueError as error:
            self.say(str(error), "warn")


def next_onset(playback: Playback, direction: int) -> int | None:
    """Onset of the nearest finding after or before where the replay stands."""
    onsets = sorted({span[0] for span in playback.finding_spans})
    if direction > 0:
        return next((t_ns for t_ns in onsets if t_ns > playback.now_ns), None)
    return next((t_ns for t_ns in reversed(onsets) if t_ns < playback.now_ns), None)


def recording_path(host: str) -> str:
    """Name of a new recording in the working folder."""
    safe = "".join(char if char.isalnum() or char in "-." else "-" for char in host) or "host"
    return f"{safe}-{time.strftime('%Y%m%d-%H%M%S')}.btrec"
