"""Puts a live run together: real collectors, the target, thresholds, the recorder."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from bottletop import __version__
from bottletop.clock import SystemClock
from bottletop.collectors import COLLECTORS
from bottletop.config import ConfigError, default_path, load
from bottletop.roots import Roots, read_bytes
from bottletop.rules import RULES
from bottletop.rules.base import Limits
from bottletop.runtime import Runtime
from bottletop.text import clean

if TYPE_CHECKING:
    from bottletop.collectors.base import CollectorFactory, Ways
    from bottletop.model import ProcessId
    from bottletop.session.writer import Recorder


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
    from bottletop.session.writer import Recorder  # msgspec and SQLite: only who records needs them

    return Recorder(
        Path(path),
        anchor=runtime.anchor,
        meta={
            "bottletop": __version__,
            "host": runtime.host,
            "simulated": runtime.simulated,
            "python": platform.python_version(),
            "kernel": platform.release(),
            "rule_versions": json.dumps(runtime.engine.rule_versions(), sort_keys=True),
            "judged_since_ns": runtime.engine.began_ns,
        },
        thresholds=runtime.engine.effective_thresholds(),
    )


class LiveRun(TypedDict, total=False):
    """What a live run may be told; all of it has a default."""

    root_process: ProcessId | None
    """The process to attach to; None watches the host alone."""
    root_dir: str | None
    """A captured host tree to read instead of this host."""
    collectors: tuple[CollectorFactory, ...]
    simulated: str
    """What is not real, to be said everywhere."""
    ways: Ways
    """Which ways into the target may be taken."""
    follow: str
    """Name by which the target is found again after it ended."""


def live_runtime(**run: Unpack[LiveRun]) -> Runtime:
    """A run on this host, or on a captured tree. Raises `ConfigError`."""
    root_dir = run.get("root_dir")
    roots = Roots.of(root_dir)
    return Runtime(
        clock=SystemClock(),
        roots=roots,
        collectors=run.get("collectors", COLLECTORS),
        limits=limits_from_config(),
        host=host_name(roots),
        root_process=run.get("root_process"),
        simulated=run.get("simulated", ""),
        ways=run.get("ways"),
        follow=run.get("follow", ""),
        recorder_factory=recorder_for,
    )


def host_name(roots: Roots) -> str:
    """The host's name, of the captured host where it is one."""
    try:
        return clean(read_bytes(f"{roots.proc}/sys/kernel/hostname", 256))
    except OSError:
        return platform.node() if roots.live else "captured host"
