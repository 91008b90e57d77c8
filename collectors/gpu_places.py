"""Which GPUs there are and which may be asked for anything, told from sysfs, not by the driver.

`nvmlInit` opens no GPU; getting a handle does, and wakes it. By index or UUID the driver may open
others on the way, so where one sleeps the rest are opened by PCI address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.linux.pci import NVIDIA

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from bottletop.linux.pci import PciBus

KERNEL_DRIVER = "nvidia"
MOST_NAMED = 2


def known_to_sleep(bus: PciBus, resting: AbstractSet[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Addresses of the GPUs that the driver has, and of those among them to be left alone: asleep,
    or `resting` so that they can fall asleep.
    """
    present = frozenset(gpu.address for gpu in bus.nvidia() if bus.driver(gpu) == KERNEL_DRIVER)
    asleep = frozenset(one for one in present if one in resting or bus.is_asleep(one))
    return present, asleep


def awake_places(count: int, bus: PciBus, asleep: AbstractSet[str]) -> list[tuple[int, str]]:
    """(place in the driver's list, PCI address) of the GPUs to open; without address by place.

    The driver lists GPUs by address unless told otherwise, so the places are only nearly certain
    while some sleep; what is shown goes by UUID.
    """
    if not asleep:
        return [(index, "") for index in range(count)]
    present, _ = known_to_sleep(bus, frozenset())
    return [(at, one) for at, one in enumerate(sorted(present)) if one not in asleep]


def on_the_bus(bus: PciBus) -> str:
    """What GPUs a host without a working NVIDIA driver has; empty where sysfs shows none."""
    gpus = bus.gpus()
    named = []
    for gpu in gpus[:MOST_NAMED]:
        driver = bus.driver(gpu) or "no driver"
        model = f"{gpu.name}, " if gpu.name else ""
        named.append(f"{gpu.maker} GPU {gpu.address} ({model}{driver})")
    if len(gpus) > MOST_NAMED:
        named.append(f"{len(gpus) - MOST_NAMED} more")
    if not named:
        return ""
    text = " and ".join(named)
    if any(gpu.vendor == NVIDIA for gpu in gpus):
        return f"on the PCI bus: {text}"
    return f"{text}: not read by this version; everything else works"
