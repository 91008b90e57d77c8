"""Watching without a screen: what `report`, `record`, `demo` and `run --no-tui` do."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from typing import TYPE_CHECKING

from bottletop.snapshot import Watch
from bottletop.units import seconds_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from bottletop.runtime import Runtime

OVERDUE_S = 2.0
"""How long the last judgement is waited for when sampling is behind."""
LINGER_JUDGEMENTS = 2
"""Judgements taken after the target has ended, so that its end is in the picture."""


class CannotWatch(Exception):
    """Sampling itself failed; the message is one line."""


@contextlib.contextmanager
def stop_on_signals(*, outlive_hangup: bool) -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set; a dropped line (SIGHUP) ends it too, unless outlived.

    A second SIGINT ends the program at once, as people expect.
    """
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before[signal.SIGHUP] = signal.getsignal(signal.SIGHUP)
    for number in before:
        ignore = number == signal.SIGHUP and outlive_hangup
        signal.signal(number, signal.SIG_IGN if ignore else on_signal)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def watch(
    runtime: Runtime,
    *,
    for_s: float | None,
    stop: threading.Event,
    ended: Callable[[], bool] = lambda: False,
    quiet: bool = False,
) -> Watch:
    """Run until the time is up, a signal came, the target ended, or `ended` says so.

    Shows one progress line on stderr when that is a terminal. Raises `CannotWatch`.
    """
    runtime.start()
    show = sys.stderr.isatty() and not quiet
    linger = LINGER_JUDGEMENTS
    generation = -1
    try:
        while not stop.is_set() and not _is_over(runtime, for_s):
            snapshot = runtime.wait_for_judgement(generation, 0.5)
            if runtime.failure is not None:
                failure = runtime.failure
                raise CannotWatch(f"sampling failed: {type(failure).__name__}: {failure}")
            if snapshot.generation == generation:
                continue
            generation = snapshot.generation
            if show:
                _progress(runtime, for_s)
            gone = snapshot.target is not None and snapshot.target.gone and not runtime.follow
            if gone or ended():
                linger -= 1
                if linger <= 0:
                    break
    finally:
        if show:
            sys.stderr.write("\r\x1b[K")
        runtime.stop()
    return finished(runtime)


def _is_over(runtime: Runtime, for_s: float | None) -> bool:
    """True once the last judgement of the time asked for is in, or it is overdue."""
    if for_s is None:
        return False
    judged_s = runtime.snapshot().watched_s
    return judged_s >= for_s - 0.05 or runtime.watched_s >= for_s + OVERDUE_S


def finished(runtime: Runtime) -> Watch:
    """The whole watch of a run that was stopped."""
    snapshot = runtime.snapshot()
    return Watch(
        judgement=runtime.summary(),
        view=snapshot.view,
        anchor=runtime.anchor,
        sources=snapshot.sources,
        target=snapshot.target,
        watched_s=snapshot.watched_s,
        simulated=runtime.simulated,
    )


def _progress(runtime: Runtime, for_s: float | None) -> None:
    verdict = runtime.snapshot().judgement.verdict
    total = f"/{seconds_text(for_s)}" if for_s is not None else ""
    line = f"{seconds_text(runtime.watched_s)}{total}  {verdict.state.value}: {verdict.text}"
    sys.stderr.write(f"\r\x1b[K{line[:78]}")
    sys.stderr.flush()
