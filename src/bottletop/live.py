"""Puts a live run together: real collectors, the target, thresholds, the recorder."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from bottletop import __version__
from bottletop.clock import SystemClock
from bottletop.collectors import COLLECTORS
from bottletop.config import ConfigError, default_path, load
from bottletop.roots import Roots, read_bytes
from bottletop.rules import RULES
from bottletop.rules.base import Limits
from bottletop.runtime import Runtime
from bottletop.session.writer import Recorder
from bottletop.text import clean

if TYPE_CHECKING:
    from bottletop.collectors.base import CollectorFactory
    from bottletop.model import ProcessId


def limits_from_config() -> Limits:
    """Thresholds with the user's overrides. Raises `ConfigError`."""
    overrides = load(default_path(os.environ))
    for code, values in overrides.items():
        rule = next((rule for rule in RULES if rule.code == code), None)
        known = rule.thresholds if rule else None
        if known is None:
            raise ConfigError(f"[rules.{code}]: no such rule; see `bottletop rules`")
        for name in values:
            if name not in known:
                raise ConfigError(
                    f"[rules.{code}] {name}: no such threshold; known: {', '.join(known) or 'none'}"
                )
    return Limits(overrides)


def recorder_for(path: str, runtime: Runtime) -> Recorder:
    """Open a recording of a run. Raises OSError (exists, not writable, no space)."""
    return Recorder(
        Path(path),
        anchor=runtime.anchor,
        meta={
            "bottletop": __version__,
            "host": runtime.host,
            "simulated": runtime.simulated,
            "python": platform.python_version(),
            "kernel": platform.release(),
        },
        thresholds=runtime.engine.effective_thresholds(),
    )


def live_runtime(
    *,
    root_process: ProcessId | None = None,
    root_dir: str | None = None,
    collectors: tuple[CollectorFactory, ...] = COLLECTORS,
    simulated: str = "",
) -> Runtime:
    """A run on this host, or on a captured tree under `root_dir`. Raises `ConfigError`."""
    roots = Roots.under(root_dir) if root_dir else Roots()
    return Runtime(
        clock=SystemClock(),
        roots=roots,
        collectors=collectors,
        limits=limits_from_config(),
        host=host_name(roots),
        root_process=root_process,
        simulated=simulated,
        recorder_factory=recorder_for,
    )


def host_name(roots: Roots) -> str:
    """The host's name, of the captured host where it is one."""
    try:
        return clean(read_bytes(f"{roots.proc}/sys/kernel/hostname", 256))
    except OSError:
        return platform.node() if roots.live else "captured host"
