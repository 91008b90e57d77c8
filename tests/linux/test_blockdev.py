"""Disks are told from partitions and described, with and without /sys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hosttree import HostTree

from bottletop.linux.blockdev import BlockDevices

if TYPE_CHECKING:
    from pathlib import Path


def add(tree: HostTree, name: str, device: str, **files: str) -> None:
    """A whole disk at /sys/devices/DEVICE/block/NAME."""
    folder = f"sys/devices/{device}/block/{name}"
    for file, content in files.items():
        tree.write(f"{folder}/{file.replace('__', '/')}", content + "\n")
    tree.write(f"{folder}/size", files.get("size", "2048\n"))
    tree.link(f"sys/block/{name}", f"../../{folder}")


@pytest.mark.parametrize(
    ("name", "device", "transport"),
    [
        ("sda", "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0", "sata"),
        ("sdb", "pci0000:00/host7/port-7:0/end_device-7:0/target7:0:0/7:0:0:0", "sas"),
        ("sdc", "pci0000:00/usb2/2-1/2-1:1.0/host8/target8:0:0/8:0:0:0", "usb"),
        ("sdd", "platform/host9/session1/target9:0:0/9:0:0:0", "iscsi"),
        ("sde", "pci0000:00/host3/rport-3:0-2/target3:0:0/3:0:0:0", "fc"),
        ("sdf", "pci0000:00/somewhere", "scsi"),
        ("vda", "pci0000:00/0000:00:04.0/virtio1", "virtio"),
        ("nvme0n1", "pci0000:00/0000:00:05.0/nvme/nvme0", "nvme"),
        ("xvda", "vbd-51712", "xen"),
        ("mmcblk0", "platform/soc/mmc_host/mmc0/mmc0:0001", "mmc"),
        ("md127", "virtual", "md"),
        ("dm-3", "virtual", "dm"),
        ("loop7", "virtual", "loop"),
        ("zram0", "virtual", "zram"),
        ("rbd0", "rbd/0", "rbd"),
    ],
)
def test_the_transport_is_told_from_the_device_path(
    tmp_path: Path, name: str, device: str, transport: str
) -> None:
    tree = HostTree(tmp_path)
    add(tree, name, device)
    assert BlockDevices(tree.captured).describe(name).transport == transport


def test_nvme_over_fabrics_is_not_called_local(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    add(tree, "nvme1n1", "virtual/nvme-fabrics/ctl/nvme1", device__transport="tcp")
    assert BlockDevices(tree.captured).describe("nvme1n1").transport == "nvme-tcp"


def test_static_facts_are_read_and_unknown_ones_stay_unknown(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    add(
        tree,
        "sda",
        "pci0/ata1/host0",
        queue__rotational="1",
        device__vendor="ATA     ",
        device__model="ST4000NM0035-1V4",
        size="7814037168",
    )
    add(tree, "sdb", "pci0/host1", device__vendor="SEAGATE", device__model="X10")
    devices = BlockDevices(tree.captured)
    disk = devices.describe("sda")
    assert (disk.rotational, disk.model) == (True, "ST4000NM0035-1V4")
    assert disk.size_bytes == 7814037168 * 512
    assert devices.describe("sdb").model == "SEAGATE X10"
    assert devices.describe("sdb").rotational is None
    assert devices.describe("gone").size_bytes is None


def test_stacked_devices_say_their_kind_and_lead_down_to_the_hardware(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    add(tree, "nvme0n1", "pci0/nvme/nvme0")
    add(tree, "nvme1n1", "pci0/nvme/nvme1")
    add(tree, "md0", "virtual", md__level="raid0")
    add(tree, "dm-1", "virtual", dm__name="cr", dm__uuid="CRYPT-LUKS2-00aa-cr")
    for disk in ("nvme0", "nvme1"):
        part = f"sys/devices/pci0/nvme/{disk}/block/{disk}n1/{disk}n1p1"
        tree.write(f"{part}/partition", "1\n")
        tree.link(f"sys/devices/virtual/block/md0/slaves/{disk}n1p1", tmp_path / part)
    tree.link("sys/devices/virtual/block/dm-1/slaves/md0", "../../md0")
    devices = BlockDevices(tree.captured)
    assert devices.describe("md0").model == "raid0 on nvme0n1, nvme1n1"
    assert devices.describe("dm-1").model == "crypt cr on md0"
    assert devices.with_parts("dm-1") == ("dm-1", "md0", "nvme0n1", "nvme1n1")
    assert devices.hardware("dm-1") == ("nvme0n1", "nvme1n1")


def test_devices_that_stand_on_each_other_end(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    for one, other in (("dm-0", "dm-1"), ("dm-1", "dm-0")):
        add(tree, one, "virtual")
        tree.link(f"sys/devices/virtual/block/{one}/slaves/{other}", f"../../{other}")
    assert BlockDevices(tree.captured).with_parts("dm-0") == ("dm-0", "dm-1")


def test_without_sys_partitions_are_told_by_their_disks_names(tmp_path: Path) -> None:
    devices = BlockDevices(HostTree(tmp_path).captured)
    names = ["sda", "sda1", "nvme0n1", "nvme0n1p2", "mmcblk0", "mmcblk0p1", "md0", "md1", "sdq1"]
    assert devices.whole_disks(names) == {"sda", "nvme0n1", "mmcblk0", "md0", "md1", "sdq1"}


def test_without_sys_numbers_are_looked_up_in_diskstats(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/diskstats", "  259 0 nvme0n1 1 2\n  259 2 nvme0n1p2 1 2\n")
    devices = BlockDevices(tree.captured)
    assert devices.by_number("259:2") == "nvme0n1"
    assert devices.by_number("8:0") is None
    assert devices.by_number("0:44") is None
