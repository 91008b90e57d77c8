"""What nvidia-smi writes where a GPU has failed, and what its different outputs call things."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bottletop.importers.base import Fact, GpuId
from bottletop.importers.values import LOST_WORDS, RESET_WORDS
from bottletop.model import Absent, State
from bottletop.tables import Gpu
from bottletop.tables.gpu import LOST, NO_ACCESS, OK, RESET_REQUIRED
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bottletop.model import Metric, Value

POLLED = (
    "readings are snapshots: what happens between two of them is not seen, and utilisation covers"
    " only the driver's last window (1/6 s to 1 s) before each",
)
PCIE_RATES = "PCIe rates cover 20 ms of each reading: short copies between them are not seen"
LIMITERS = {
    "sw_power_cap": 0x004,
    "hw_slowdown": 0x008,
    "sync_boost": 0x010,
    "sw_thermal_slowdown": 0x020,
    "hw_thermal_slowdown": 0x040,
    "hw_power_brake_slowdown": 0x080,
    "display_clock_setting": 0x100,
    "applications_clocks_setting": 0x002,
    "gpu_idle": 0x001,
    "idle": 0x001,
}
"""Names of clock event reasons in queries, and of -q once `slug` has been over them."""

_HANDLE = re.compile(
    r"Unable to determine the device handle for (?:GPU\s*)?(?:(?P<index>\d{1,3}): ?)?"
    r"(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)?\s*:?\s*(?P<why>.+)",
    re.IGNORECASE,
)
_DRIVER = re.compile(
    r"(Failed to initialize NVML|NVIDIA-SMI has failed|No devices were found|"
    r"couldn't communicate with the NVIDIA driver|Driver/library version mismatch)",
    re.IGNORECASE,
)
_PCI = re.compile(r"(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.(\d)")


def limits_of(facts: Sequence[Fact]) -> tuple[str, ...]:
    """What polled readings cannot show, and what rates of the link cannot where there are any."""
    copies = any(Gpu.pcie_rx_bytes in f.rates or Gpu.pcie_tx_bytes in f.rates for f in facts)
    return (*POLLED, PCIE_RATES) if copies else POLLED


def slug(name: str) -> str:
    """ "SW Power Cap" -> "sw_power_cap"."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def program(path: str) -> str:
    """The name of a program without its folders, of either kind, safe to show."""
    return clean(re.split(r"[/\\]", path)[-1], 60)


def pci_id(raw: str) -> str:
    """A PCI address as the driver writes it, "00000000:C1:00.0"; empty of anything else."""
    match = _PCI.fullmatch(raw.strip())
    if match is None:
        return ""
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):08X}:{bus.upper()}:{device.upper()}.{function}"


def failed_gpu(line: str, t_s: float) -> Fact | None:
    """The GPU that a line of complaint is about, as lost or in need of a reset; None of others."""
    match = _HANDLE.search(line) if "nable to determine" in line else None
    if match is None or not (match["pci"] or match["index"]):
        return None
    words = match["why"].lower()
    reason = f'the log says "{clean(match["why"], 60)}"'
    health: Value = NO_ACCESS
    if LOST_WORDS in words:
        health = LOST
    elif "reset" in words:
        health = RESET_REQUIRED
    pci = pci_id(match["pci"] or "")
    index = int(match["index"]) if match["index"] else None
    absent = Absent(State.LOST if health == LOST else State.ERROR, reason)
    read = (Gpu.util_pct, Gpu.power_w, Gpu.sm_clock_mhz, Gpu.temp_c)
    values: dict[Metric, Value] = dict.fromkeys(read, absent)
    values[Gpu.health] = health
    if pci:
        values[Gpu.pci_bus_id] = pci
    return Fact(Gpu, t_s, values, GpuId(pci=pci, index=index))


def is_complaint(line: str) -> bool:
    """Whether a line is what the tool says when it has no data, or of one GPU only."""
    return bool(_DRIVER.search(line) or _HANDLE.search(line))


def health_of(cells: Iterable[str]) -> int:
    """The health that the words in a GPU's cells give away."""
    for cell in cells:
        if "GPU" in cell:
            words = cell.strip().strip("[]").lower()
            if words in (LOST_WORDS, RESET_WORDS):
                return LOST if words == LOST_WORDS else RESET_REQUIRED
    return OK


def reasons(flags: dict[int, bool]) -> dict[Metric, Value]:
    """Clock event reasons from single flags, and which bits they speak of."""
    known = sum(flags)
    active = sum(bit for bit, on in flags.items() if on)
    return {Gpu.clock_event_reasons: active, Gpu.clock_event_known: known} if flags else {}
