"""Where in the text of `nvidia-smi -q` each column stands, in the words of drivers 340 to 610."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.importers import smi_words
from bottletop.importers.base import Fact
from bottletop.importers.csv_columns import ON_OFF, RECOVERY, YES_NO
from bottletop.importers.smi_pmon import kind_of
from bottletop.importers.values import cell, missing
from bottletop.model import NOT_READ, Absent
from bottletop.tables import Gpu, GpuHealth, GpuProcess
from bottletop.tables.gpu import COHERENT
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bottletop.importers.base import GpuId
    from bottletop.model import Metric, Value

Path = tuple[str, ...]


class Tree:
    """Leaves of one GPU by their path, names in lower case; processes apart, since they repeat."""

    def __init__(self) -> None:
        self._leaves: dict[Path, str] = {}
        self._stack: list[tuple[int, str]] = []
        self.processes: list[dict[str, str]] = []

    def __len__(self) -> int:
        return len(self._leaves) + 4 * len(self.processes)

    def _under(self, indent: int) -> Path:
        while self._stack and self._stack[-1][0] >= indent:
            self._stack.pop()
        return tuple(name for _, name in self._stack)

    def branch(self, indent: int, name: str) -> None:
        """A line without a value: what is indented deeper belongs to it."""
        self._under(indent)
        self._stack.append((indent, name.strip().lower()))

    def leaf(self, indent: int, name: str, value: str) -> None:
        """A line with a value; it may have lines under it as well (HW Slowdown)."""
        path = (*self._under(indent), name.strip().lower())
        self._stack.append((indent, path[-1]))
        if "processes" in path[:-1]:
            if path[-1] == "process id":
                self.processes.append({})
            if self.processes:
                self.processes[-1].setdefault(path[-1], value)
            return
        self._leaves.setdefault(path, value)

    def text(self, *path: str) -> str:
        """The leaf at this path; empty where there is none or it says that there is no value."""
        found = self.get(*path)
        return "" if found is None or missing(found) is not None else found

    def get(self, *path: str) -> str | None:
        """The leaf at this path, as it stands there."""
        return self._leaves.get(tuple(part.lower() for part in path))

    def under(self, *path: str) -> dict[Path, str]:
        """All leaves below a branch, by what follows it."""
        head = tuple(part.lower() for part in path)
        size = len(head)
        return {leaf[size:]: value for leaf, value in self._leaves.items() if leaf[:size] == head}


_POWER = ("gpu power readings", "power readings")
GPU_PATHS: dict[Metric, tuple[Path, ...]] = {
    Gpu.util_pct: (("utilization", "gpu"),),
    Gpu.mem_util_pct: (("utilization", "memory"),),
    Gpu.enc_util_pct: (("utilization", "encoder"),),
    Gpu.dec_util_pct: (("utilization", "decoder"),),
    Gpu.jpg_util_pct: (("utilization", "jpeg"),),
    Gpu.ofa_util_pct: (("utilization", "ofa"),),
    Gpu.mem_total_bytes: (("fb memory usage", "total"), ("memory usage", "total")),
    Gpu.mem_used_bytes: (("fb memory usage", "used"), ("memory usage", "used")),
    Gpu.mem_reserved_bytes: (("fb memory usage", "reserved"),),
    Gpu.power_w: tuple((p, name) for p in _POWER for name in ("power draw", "average power draw")),
    Gpu.power_instant_w: tuple((p, "instantaneous power draw") for p in _POWER),
    Gpu.power_module_w: (
        ("module power readings", "power draw"),
        ("module power readings", "average power draw"),
    ),
    Gpu.power_limit_w: tuple(
        (p, name)
        for p in _POWER
        for name in ("enforced power limit", "current power limit", "power limit")
    ),
    Gpu.power_limit_requested_w: tuple(
        (p, name) for p in _POWER for name in ("requested power limit", "power limit")
    ),
    Gpu.power_limit_default_w: tuple((p, "default power limit") for p in _POWER),
    Gpu.sm_clock_mhz: (("clocks", "sm"), ("clocks", "graphics")),
    Gpu.mem_clock_mhz: (("clocks", "memory"),),
    Gpu.sm_clock_max_mhz: (("max clocks", "sm"), ("max clocks", "graphics")),
    Gpu.mem_clock_max_mhz: (("max clocks", "memory"),),
    Gpu.sm_clock_boost_mhz: (("max customer boost clocks", "graphics"),),
    Gpu.temp_c: (("temperature", "gpu current temp"), ("temperature", "gpu")),
    Gpu.temp_mem_c: (("temperature", "memory current temp"),),
    Gpu.temp_margin_c: (("temperature", "gpu t.limit temp"),),
    Gpu.fan_pct: (("fan speed",),),
    Gpu.pstate: (("performance state",),),
    Gpu.pcie_gen: (("pci", "gpu link info", "pcie generation", "current"),),
    Gpu.pcie_gen_max: (("pci", "gpu link info", "pcie generation", "max"),),
    Gpu.pcie_width: (("pci", "gpu link info", "link width", "current"),),
    Gpu.pcie_width_max: (("pci", "gpu link info", "link width", "max"),),
}
_REASONS = ("clocks event reasons", "clocks throttle reasons")
_COUNTERS = ("clocks event reasons counters", "clocks throttle reasons counters")
COUNTERS: dict[str, Metric] = {
    "sw power capping": Gpu.throttle_sw_power_ns,
    "sync boost": Gpu.throttle_sync_boost_ns,
    "sw thermal slowdown": Gpu.throttle_sw_thermal_ns,
    "hw thermal slowdown": Gpu.throttle_hw_thermal_ns,
    "hw power braking": Gpu.throttle_power_brake_ns,
}
HEALTH_PATHS: dict[Metric, tuple[Path, ...]] = {
    GpuHealth.rows_remapped_corrected: (("remapped rows", "correctable error"),),
    GpuHealth.rows_remapped_uncorrected: (("remapped rows", "uncorrectable error"),),
    GpuHealth.row_remap_pending: (("remapped rows", "pending"),),
    GpuHealth.row_remap_failed: (("remapped rows", "remapping failure occurred"),),
    GpuHealth.pages_retired_corrected: (("retired pages", "single bit ecc"),),
    GpuHealth.pages_retired_uncorrected: (("retired pages", "double bit ecc"),),
    GpuHealth.page_retirement_pending: (
        ("retired pages", "pending page blacklist"),
        ("retired pages", "pending"),
    ),
    GpuHealth.pcie_replays: (
        ("pci", "replays since reset"),
        ("pci", "gpu link info", "replays since reset"),
    ),
    GpuHealth.bar1_total_bytes: (("bar1 memory usage", "total"),),
    GpuHealth.bar1_used_bytes: (("bar1 memory usage", "used"),),
    GpuHealth.temp_shutdown_c: (("temperature", "gpu shutdown temp"),),
    GpuHealth.temp_slowdown_c: (("temperature", "gpu slowdown temp"),),
    GpuHealth.temp_max_c: (("temperature", "gpu max operating temp"),),
    GpuHealth.temp_mem_max_c: (("temperature", "memory max operating temp"),),
    GpuHealth.tlimit_shutdown_c: (("temperature", "gpu shutdown t.limit temp"),),
    GpuHealth.tlimit_slowdown_c: (("temperature", "gpu slowdown t.limit temp"),),
    GpuHealth.tlimit_max_c: (("temperature", "gpu max operating t.limit temp"),),
    GpuHealth.tlimit_mem_max_c: (("temperature", "memory max operating t.limit temp"),),
}
_FLAGS = frozenset(
    {
        GpuHealth.row_remap_pending,
        GpuHealth.row_remap_failed,
        GpuHealth.page_retirement_pending,
    }
)
ECC: dict[Metric, tuple[str, tuple[str, ...]]] = {
    GpuHealth.ecc_corrected: ("volatile", ("correctable", "single bit")),
    GpuHealth.ecc_uncorrected: ("volatile", ("uncorrectable", "double bit")),
    GpuHealth.ecc_corrected_ever: ("aggregate", ("correctable", "single bit")),
    GpuHealth.ecc_uncorrected_ever: ("aggregate", ("uncorrectable", "double bit")),
}


def _first(tree: Tree, paths: tuple[Path, ...]) -> str | None:
    """The first of these leaves that has a value, else the first that is there at all."""
    there = [found for path in paths if (found := tree.get(*path)) is not None]
    for path in paths if not there else ():
        whole = tree.get(*path[:-1])  # "Remapped Rows : N/A" speaks for all that is under it
        if whole is not None and missing(whole) is not None:
            return whole
    return next((found for found in there if missing(found) is None), there[0] if there else None)


def _cells(tree: Tree, table: Mapping[Metric, tuple[Path, ...]]) -> dict[Metric, Value]:
    found: dict[Metric, Value] = {}
    for metric, paths in table.items():
        text = _first(tree, paths)
        if text is None:
            continue
        if metric in _FLAGS:
            known = YES_NO.get(text.strip().lower())
            found[metric] = known if known is not None else missing(text) or _strange(text)
        else:
            found[metric] = cell(metric, text)
    return found


def _strange(text: str) -> Absent:
    return Absent.error(f'the log says "{clean(text, 40)}"')


def gpu_values(tree: Tree) -> dict[Metric, Value]:
    """The row of `gpu` that the tree gives."""
    values = _cells(tree, GPU_PATHS)
    for metric, name in ((Gpu.model, "Product Name"), (Gpu.architecture, "Product Architecture")):
        text = tree.text(name)
        if text:
            values[metric] = clean(text, 80)
    mig = tree.get("MIG Mode", "Current")
    if mig is not None:
        values[Gpu.mig] = ON_OFF.get(mig.lower(), missing(mig) or NOT_READ)
    values.update(_reasons(tree))
    for branch in _COUNTERS:
        for path, text in tree.under(branch).items():
            counter = COUNTERS.get(path[-1])
            if counter is not None:
                values[counter] = cell(counter, text)
    if tree.text("Addressing Mode").upper() == "ATS":
        values[Gpu.memory_kind] = COHERENT
    values[Gpu.health] = smi_words.health_of(tree.under().values())
    return values


def _reasons(tree: Tree) -> dict[Metric, Value]:
    flags: dict[int, bool] = {}
    for branch in _REASONS:
        for path, text in tree.under(branch).items():
            bit = smi_words.LIMITERS.get(smi_words.slug(path[-1]))
            if bit and missing(text) is None:
                flags[bit] = text.strip().lower() == "active"
        whole = tree.get(branch)
        if whole is not None and not flags:
            return {Gpu.clock_event_reasons: missing(whole) or _strange(whole)}
    return smi_words.reasons(flags)


def health_values(tree: Tree) -> dict[Metric, Value]:
    """The row of `gpu_health` that the tree gives; empty where it says nothing of health."""
    values = _cells(tree, HEALTH_PATHS)
    action = tree.get("GPU Recovery Action")
    if action is not None:
        words = action.strip().lower()
        known = RECOVERY.get(words)
        values[GpuHealth.recovery_action] = (
            known if known is not None else missing(action) or _strange(action)
        )
    elif _says_yes(tree, "reset required"):
        values[GpuHealth.recovery_action] = RECOVERY["reset"]
    elif _says_yes(tree, "drain and reset recommended"):
        values[GpuHealth.recovery_action] = RECOVERY["drain and reset"]
    elif tree.get("GPU Reset Status", "Reset Required") is not None:
        values[GpuHealth.recovery_action] = RECOVERY["none"]
    for metric, (branch, words_of) in ECC.items():
        value = _errors(tree, branch, words_of)
        if value is not None:
            values[metric] = value
    return values


def _says_yes(tree: Tree, leaf: str) -> bool:
    return (tree.get("GPU Reset Status", leaf) or "").strip().lower() == "yes"


def _errors(tree: Tree, branch: str, words_of: tuple[str, ...]) -> Value | None:
    """Sum of one kind of error; of old layouts the total that is there already."""
    counts: list[int] = []
    refused: Absent | None = None
    for path, text in tree.under("ecc errors", branch).items():
        if not _is_kind(path, words_of):
            continue
        absent = missing(text)
        if absent is not None:
            refused = refused or absent
        elif text.isdecimal() and len(text) < 20:
            counts.append(int(text))
    return sum(counts) if counts else refused


def _is_kind(path: Path, words_of: tuple[str, ...]) -> bool:
    if len(path) == 2:  # "Single Bit" / "Total"
        return path[0] in words_of and path[1] == "total"
    new, _ = words_of
    words = path[-1].split()
    return new in words and words[0] in ("sram", "dram")


def process_facts(tree: Tree, gpu: GpuId, t_s: float) -> Iterator[Fact]:
    """Rows of the processes that the tree lists."""
    for found in tree.processes:
        pid = found.get("process id", "")
        if not pid.isdecimal() or not 0 < int(pid) < 2**32:
            continue
        values: dict[Metric, Value] = {GpuProcess.pid: int(pid)}
        name = smi_words.program(found.get("name", ""))
        values[GpuProcess.process] = name or NOT_READ
        kind = kind_of(found.get("type", ""))
        if kind is not None:
            values[GpuProcess.kind] = kind
        values[GpuProcess.mem_bytes] = cell(GpuProcess.mem_bytes, found.get("used gpu memory", ""))
        yield Fact(GpuProcess, t_s, values, gpu, f"/{pid}")
