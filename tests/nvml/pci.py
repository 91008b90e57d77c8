"""A PCI bus as sysfs shows it, for hosts whose GPUs sleep, come and go."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from bottletop.linux.pci import NVIDIA

if TYPE_CHECKING:
    from pathlib import Path


class PciTree:
    """Devices under `root`/bus/pci/devices; `root` stands for /sys."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._devices = root / "bus/pci/devices"
        self._devices.mkdir(parents=True)

    def add(
        self,
        address: str,
        *,
        vendor: int = NVIDIA,
        kind: int = 0x030200,
        driver: str = "nvidia",
        status: str = "active",
        control: str = "on",
        product: str = "",
    ) -> None:
        """Plug a device in."""
        folder = self._devices / address
        (folder / "power").mkdir(parents=True)
        (folder / "vendor").write_text(f"0x{vendor:04x}\n")
        (folder / "class").write_text(f"0x{kind:06x}\n")
        (folder / "power/control").write_text(f"{control}\n")
        if product:
            (folder / "product_name").write_text(f"{product}\n")
        self.status(address, status)
        if driver:
            target = self.root / "bus/pci/drivers" / driver
            target.mkdir(parents=True, exist_ok=True)
            os.symlink(os.path.relpath(target, folder), folder / "driver")

    def status(self, address: str, status: str) -> None:
        """Set a device's runtime power state."""
        (self._devices / address / "power/runtime_status").write_text(f"{status}\n")

    def remove(self, address: str) -> None:
        """Unplug a device."""
        shutil.rmtree(self._devices / address)
