"""Logical CPUs: time by kind from /proc/stat, frequency from cpufreq. Fills `core`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.collectors.files import FileCollector
from bottletop.linux.kept import KeptFiles, descriptor_allowance
from bottletop.model import NOT_READ, Absent, Table, Value
from bottletop.roots import read_bytes
from bottletop.tables.host import TICK_NS, Core

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.collectors.base import Context
    from bottletop.model import Sample

FREQUENCIES_PER_READ = 16
"""Frequencies read in one pass, in turn: a reading may wake an idle CPU, and 700 of them cost more
than all else here. 16 a second keeps a 64-core host's readings under 4 s old."""
MIN_FIELDS = 5
"""Name, user, nice, system, idle: all that the oldest kernels write."""

_NO_CPUFREQ = Absent.unsupported("no cpufreq for this CPU: the hypervisor or kernel hides it")


class CoreCollector(FileCollector):
    """One row for each CPU that is online; CPUs that are unplugged are absent, not idle."""

    name: ClassVar[str] = "core"
    tables: ClassVar[tuple[type[Table], ...]] = (Core,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._frequency: dict[str, Value] = {}
        self._turn = 0
        kept = descriptor_allowance(128)
        self._files = KeptFiles(kept)

    def read(self) -> Sequence[Sample]:
        """Read all CPUs. Raises OSError."""
        began_ns = self._clock.monotonic_ns()
        raw = read_bytes(f"{self._roots.proc}/stat")
        t_ns = self._clock.monotonic_ns()
        times = parse_cpu_times(raw)
        self._read_some_frequencies(list(times))
        rows = [
            Core.row(
                name,
                t_ns,
                {
                    Core.user_ns: user * TICK_NS,
                    Core.system_ns: system * TICK_NS,
                    Core.iowait_ns: iowait * TICK_NS,
                    Core.steal_ns: steal * TICK_NS,
                    Core.busy_ns: (user + system + steal) * TICK_NS,
                    Core.freq_mhz: self._frequency.get(name, NOT_READ),
                },
            )
            for name, (user, system, iowait, steal) in times.items()
        ]
        return (self.sample(Core, began_ns, rows),)

    def close(self) -> None:
        self._files.close()

    def _read_some_frequencies(self, names: list[str]) -> None:
        """Read the next few CPUs' frequencies; a CPU without cpufreq is not asked again."""
        for name in [name for name in self._frequency if name not in names]:
            # Unplugged: whatever comes back under this number is asked anew.
            self._frequency.pop(name)
            self._files.drop(self._path(name))
        askable = [name for name in names if self._frequency.get(name) is not _NO_CPUFREQ]
        if not askable:
            return
        for step in range(min(FREQUENCIES_PER_READ, len(askable))):
            name = askable[(self._turn + step) % len(askable)]
            self._frequency[name] = self._read_frequency(name)
        self._turn = (self._turn + FREQUENCIES_PER_READ) % len(askable)

    def _read_frequency(self, name: str) -> Value:
        try:
            return int(self._files.read(self._path(name), 64)) / 1000
        except FileNotFoundError:
            return _NO_CPUFREQ
        except (OSError, ValueError) as error:
            return Absent.error(f"scaling_cur_freq: {error}")

    def _path(self, name: str) -> str:
        return f"{self._roots.sys}/devices/system/cpu/{name}/cpufreq/scaling_cur_freq"


def parse_cpu_times(raw: bytes) -> dict[str, tuple[int, int, int, int]]:
    """CPU to (user, system, iowait, steal) ticks from /proc/stat; CPUs without a line are offline.

    User time already contains the guests' (proc_stat(5)), so it is not added again.
    """
    times: dict[str, tuple[int, int, int, int]] = {}
    # The interrupt table behind the CPU lines is most of the file on a big host.
    for line in raw.partition(b"\nintr")[0].splitlines():
        fields = line.split()
        if len(fields) < MIN_FIELDS or not fields[0].startswith(b"cpu") or fields[0] == b"cpu":
            continue
        try:
            number = int(fields[0][3:])
            user, nice, system, _, *more = (int(field) for field in fields[1:9])
        except ValueError:
            continue
        iowait, irq, softirq, steal = (*more, 0, 0, 0, 0)[:4]
        times[f"cpu{number}"] = (user + nice, system + irq + softirq, iowait, steal)
    return times
