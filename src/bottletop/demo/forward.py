"""Sees a process's `forward` stage from outside, through its probe's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.demo.busy import Glance
from bottletop.linux import procfs
from bottletop.linux.probe_memory import NotAProbe, probes_of

if TYPE_CHECKING:
    from bottletop.linux.probe_memory import ProbeMemory
    from bottletop.model import ProcessId
    from bottletop.roots import Roots

STAGE = "forward"


class ForwardStage:
    """The stage of one process; opens its probe when there is one, lets go when it ends."""

    def __init__(self, roots: Roots, process: ProcessId) -> None:
        self.pid = process.pid
        self._roots = roots
        self._process = process
        self._probe: ProbeMemory | None = None

    def glance(self, now_ns: int) -> Glance | None:
        """The stage as of `now_ns`, None where there is nothing to see (yet, or any more)."""
        try:
            if not self._alive():
                self.close()
                return None
            if self._probe is None:
                self._probe = next(iter(probes_of(self._roots, self._process)), None)
            if self._probe is None:
                return None
            stages = self._probe.read(now_ns).stages
        except (OSError, ValueError, NotAProbe):
            self.close()
            return None
        for stage in stages:
            if stage.name == STAGE:
                return Glance(stage.inclusive_ns, stage.oldest_start_ns)
        return None

    def close(self) -> None:
        """Let go of the probe; may be called twice."""
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.close()

    def _alive(self) -> bool:
        """A kept probe still answers after the end of its process, hence the look at /proc."""
        stat = procfs.read_stat(self._roots, self.pid)
        return stat.start_ticks == self._process.start_ticks and stat.state not in "ZX"
