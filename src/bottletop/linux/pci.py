"""GPUs as the kernel lists them on the PCI bus, and whether they are powered.

Source: /sys/bus/pci/devices and its power/ folder. None of it is answered by the device or its
driver, so reading it never wakes a GPU that sleeps; an NVML call does.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from bottletop.roots import read_bytes
from bottletop.text import clean

if TYPE_CHECKING:
    from bottletop.roots import Roots

NVIDIA, AMD, INTEL = 0x10DE, 0x1002, 0x8086
VENDORS = {NVIDIA: "NVIDIA", AMD: "AMD", INTEL: "Intel"}
DISPLAY_CLASS, ACCELERATOR_CLASS = 0x03, 0x12
"""Base classes of the PCI code list: display controllers, processing accelerators."""
MAX_DEVICES = 4096
ASLEEP = frozenset({"suspended", "suspending"})


class PciGpu(NamedTuple):
    """One GPU on the bus."""

    address: str
    """As sysfs writes it: "0000:3b:00.0"."""
    vendor: int
    name: str
    """Product name where the kernel driver publishes one (amdgpu does), else empty."""

    @property
    def maker(self) -> str:
        return VENDORS[self.vendor]


def pci_address(text: str) -> str:
    """An address in the way sysfs writes it; NVML writes "00000000:3B:00.0" for "0000:3b:00.0".

    Text of another shape is returned in lower case.
    """
    domain, colon, rest = text.lower().partition(":")
    try:
        return f"{int(domain, 16):04x}{colon}{rest}" if colon else domain
    except ValueError:
        return text.lower()


class PciBus:
    """The GPUs of the bus, looked up anew only when the kernel's list of devices changes."""

    def __init__(self, roots: Roots) -> None:
        self._folder = f"{roots.sys}/bus/pci/devices"
        self._listed: frozenset[str] = frozenset()
        self._gpus: tuple[PciGpu, ...] = ()

    def gpus(self) -> tuple[PciGpu, ...]:
        """GPUs of the three makers, by address. Empty where sysfs cannot be read."""
        try:
            listed = frozenset(sorted(os.listdir(self._folder))[:MAX_DEVICES])
        except OSError:
            listed = frozenset()
        if listed != self._listed:
            self._listed = listed
            found = (self._gpu(address) for address in sorted(listed))
            self._gpus = tuple(gpu for gpu in found if gpu is not None)
        return self._gpus

    def nvidia(self) -> tuple[PciGpu, ...]:
        """The NVIDIA display controllers among them: what NVML may list."""
        return tuple(gpu for gpu in self.gpus() if gpu.vendor == NVIDIA)

    def driver(self, gpu: PciGpu) -> str:
        """Name of the kernel driver bound to it, empty where none is."""
        try:
            return clean(os.path.basename(os.readlink(f"{self._folder}/{gpu.address}/driver")))
        except OSError:
            return ""

    def is_asleep(self, address: str) -> bool:
        """Whether its runtime power state is "suspended" or on the way there.

        False where the state cannot be read: then nothing says that a call would wake it.
        """
        return self._attribute(address, "power/runtime_status") in ASLEEP

    def may_sleep(self, address: str) -> bool:
        """Whether the kernel may suspend it while it is idle (power/control is "auto")."""
        return self._attribute(address, "power/control") == "auto"

    def _gpu(self, address: str) -> PciGpu | None:
        kind, vendor = self._number(address, "class"), self._number(address, "vendor")
        if kind >> 16 not in (DISPLAY_CLASS, ACCELERATOR_CLASS) or vendor not in VENDORS:
            return None
        return PciGpu(address, vendor, self._attribute(address, "product_name"))

    def _number(self, address: str, name: str) -> int:
        try:
            return int(self._attribute(address, name), 16)
        except ValueError:
            return 0

    def _attribute(self, address: str, name: str) -> str:
        try:
            return clean(read_bytes(f"{self._folder}/{address}/{name}", 256))
        except OSError:
            return ""
