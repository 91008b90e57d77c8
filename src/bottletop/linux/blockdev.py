"""Block devices as /sys and /proc/diskstats describe them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bottletop.roots import read_bytes, read_record
from bottletop.text import clean

if TYPE_CHECKING:
    from bottletop.roots import Roots

SECTOR_BYTES = 512
"""Sectors in /proc/diskstats and /sys/block/*/size are 512 bytes whatever the device's own are."""
MAX_STACK = 8
"""Device-mapper on md on ... : deeper stacks than this are a loop."""

_STACKED_NAMES = (("dm-", "dm"), ("md", "md"), ("loop", "loop"), ("zram", "zram"), ("ram", "ram"))
_NAMED_TRANSPORTS = (
    ("nvme", "nvme"),
    ("mmcblk", "mmc"),
    ("xvd", "xen"),
    ("nbd", "nbd"),
    ("rbd", "rbd"),
    ("bcache", "bcache"),
    ("drbd", "drbd"),
    ("pmem", "pmem"),
)
_PATH_TRANSPORTS = (
    (re.compile(r"/usb\d"), "usb"),
    (re.compile(r"/session\d+/"), "iscsi"),
    (re.compile(r"/rport-"), "fc"),
    (re.compile(r"/(?:end_device|expander)-|/sas_"), "sas"),
    (re.compile(r"/ata\d+/"), "sata"),
    (re.compile(r"/virtio\d+/"), "virtio"),
    (re.compile(r"/vmbus|/VMBUS"), "hyper-v"),
    (re.compile(r"/mmc\d"), "mmc"),
)
_KINDS = {"LVM": "LVM", "CRYPT": "crypt", "mpath": "multipath", "RAID": "raid"}


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """What does not change while a device is there. None: the kernel does not say."""

    name: str
    rotational: bool | None
    transport: str
    """nvme, sata, sas, usb, virtio, ..., dm, md; "scsi" or empty where it cannot be told."""
    model: str
    """Model of the hardware; for dm and md what it is and what it stands on."""
    size_bytes: int | None
    parts: tuple[str, ...]
    """Devices that a stacked device (dm, md, bcache) stands on, partitions named as whole disks."""


class BlockDevices:
    """Looks block devices up and remembers them; nothing is read twice while a device stays."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._known: dict[str, BlockDevice] = {}

    def describe(self, name: str) -> BlockDevice:
        """Static facts of a whole device by its kernel name. Never raises."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._read(name)
        return known

    def forget(self, name: str) -> None:
        """A device was unplugged; its name may come back for another one."""
        self._known.pop(name, None)

    def whole_disks(self, names: list[str]) -> set[str]:
        """Those of `names` (as /proc/diskstats lists them) that are not partitions."""
        block = f"{self._roots.sys}/block"
        if os.path.isdir(block):
            return {name for name in names if os.path.isdir(f"{block}/{_sys_name(name)}")}
        present = set(names)
        return {name for name in names if not _partition_parents(name) & present}

    def by_number(self, number: str) -> str | None:
        """Whole device behind a "major:minor", None where there is none (major 0 is no device)."""
        if number.startswith("0:"):
            return None
        link = f"{self._roots.sys}/dev/block/{number}"
        if os.path.lexists(link):
            return self._whole(os.path.realpath(link))
        return self._by_number_in_diskstats(number)

    def by_source(self, source: str) -> str | None:
        """Whole device behind a mount source such as /dev/nvme0n1p2 or /dev/mapper/vg-root."""
        if not source.startswith("/dev/"):
            return None
        name = source.rpartition("/")[2]
        link = f"{self._roots.sys}/class/block/{name}"
        if os.path.lexists(link):
            return self._whole(os.path.realpath(link))
        return next((dm for dm in self._stacked() if self._text(dm, "dm/name") == name), None)

    def with_parts(self, name: str) -> tuple[str, ...]:
        """The device and everything it stands on, down to the hardware; itself first."""
        found: list[str] = []
        layer = [name]
        for _ in range(MAX_STACK):
            found += [item for item in layer if item not in found]
            layer = [part for item in layer for part in self.describe(item).parts]
            if not layer:
                break
        return tuple(found)

    def hardware(self, name: str) -> tuple[str, ...]:
        """The devices at the bottom of `with_parts`."""
        return tuple(item for item in self.with_parts(name) if not self.describe(item).parts)

    # -- reading ----------------------------------------------------------------------------

    def _read(self, name: str) -> BlockDevice:
        rotational = self._text(name, "queue/rotational")
        size = self._text(name, "size")
        parts = self._parts(name)
        transport = self._transport(name)
        return BlockDevice(
            name=name,
            rotational={"0": False, "1": True}.get(rotational),
            transport=transport,
            model=self._model(name, transport, parts),
            size_bytes=int(size) * SECTOR_BYTES if size.isascii() and size.isdigit() else None,
            parts=parts,
        )

    def _text(self, name: str, file: str) -> str:
        try:
            return clean(read_record(f"{self._roots.sys}/block/{_sys_name(name)}/{file}"), 128)
        except OSError:
            return ""

    def _parts(self, name: str) -> tuple[str, ...]:
        folder = f"{self._roots.sys}/block/{_sys_name(name)}/slaves"
        try:
            entries = sorted(os.listdir(folder))
        except OSError:
            return ()
        whole = [self._whole(os.path.realpath(f"{folder}/{entry}")) for entry in entries]
        return tuple(dict.fromkeys(item for item in whole if item))

    def _whole(self, path: str) -> str | None:
        """Kernel name of the whole device at a /sys path of a device or of one of its partitions.

        Where the link leads nowhere (a captured tree without the device folders), by its name.
        """
        if os.path.exists(f"{path}/partition"):
            path = os.path.dirname(path)
        name = os.path.basename(path)
        block = f"{self._roots.sys}/block"
        if not os.path.lexists(f"{block}/{name}"):
            parents = (one for one in _partition_parents(name) if os.path.lexists(f"{block}/{one}"))
            name = next(parents, name)
        return clean(name.replace("!", "/"), 64) or None

    def _stacked(self) -> list[str]:
        try:
            entries = os.listdir(f"{self._roots.sys}/block")
        except OSError:
            return []
        return [entry for entry in entries if entry.startswith("dm-")]

    def _by_number_in_diskstats(self, number: str) -> str | None:
        try:
            raw = read_bytes(f"{self._roots.proc}/diskstats")
        except OSError:
            return None
        names: dict[str, str] = {}
        for line in raw.splitlines():
            fields = line.split(None, 3)
            if len(fields) == 4:
                key = (
                    f"{fields[0].decode('ascii', 'replace')}:{fields[1].decode('ascii', 'replace')}"
                )
                names[key] = clean(fields[2], 64)
        name = names.get(number)
        if name is None:
            return None
        parents = _partition_parents(name) & set(names.values())
        return next(iter(parents), name)

    def _transport(self, name: str) -> str:
        for prefix, kind in _STACKED_NAMES:
            if name.startswith(prefix) and (prefix == "dm-" or name[len(prefix) :][:1].isdigit()):
                return kind
        if name.startswith("nvme"):
            fabric = self._text(name, "device/transport")
            return f"nvme-{fabric}" if fabric not in ("", "pcie") else "nvme"
        path = os.path.realpath(f"{self._roots.sys}/block/{_sys_name(name)}") + "/"
        for pattern, kind in _PATH_TRANSPORTS:
            if pattern.search(path):
                return kind
        for prefix, kind in _NAMED_TRANSPORTS:
            if name.startswith(prefix):
                return kind
        if name.startswith("vd"):
            return "virtio"
        return "scsi" if name.startswith("sd") else ""

    def _model(self, name: str, transport: str, parts: tuple[str, ...]) -> str:
        on = f" on {', '.join(parts)}" if parts else ""
        if transport == "dm":
            prefix = self._text(name, "dm/uuid").partition("-")[0]
            kind = _KINDS.get(prefix, "device-mapper")
            return clean(f"{kind} {self._text(name, 'dm/name')}{on}", 128)
        if transport == "md":
            return clean(f"{self._text(name, 'md/level') or 'md'}{on}", 128)
        vendor, model = self._text(name, "device/vendor"), self._text(name, "device/model")
        # SCSI vendors are names ("SEAGATE"), those of virtio and NVMe are numbers ("0x1af4").
        named = vendor not in ("", "ATA") and not vendor.startswith("0x")
        return f"{vendor} {model}".strip() if named else model


def _sys_name(name: str) -> str:
    """Names with a slash (cciss/c0d0) have an exclamation mark in /sys."""
    return name.replace("/", "!")


def _partition_parents(name: str) -> set[str]:
    """What the whole disk would be called if `name` were a partition: sda1, nvme0n1p2."""
    base = name.rstrip("0123456789")
    if base == name or not base:
        return set()
    return {base[:-1]} if base.endswith("p") and base[-2:-1].isdigit() else {base}
