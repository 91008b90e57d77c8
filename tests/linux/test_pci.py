"""GPUs on the bus: which there are, who drives them, and whether they sleep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bottletop.linux.pci import AMD, INTEL, PciBus, pci_address
from bottletop.roots import Roots
from nvml.pci import PciTree

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tree(tmp_path: Path) -> PciTree:
    return PciTree(tmp_path / "sys")


@pytest.fixture
def bus(tree: PciTree) -> PciBus:
    return PciBus(Roots(sys=str(tree.root)))


def test_gpus_are_told_from_everything_else_on_the_bus(tree: PciTree, bus: PciBus) -> None:
    tree.add("0000:00:02.0", vendor=INTEL, kind=0x030000, driver="i915")
    tree.add("0000:03:00.0", vendor=AMD, kind=0x120000, driver="amdgpu", product="MI300X\x1b[2J")
    tree.add("0000:04:00.0", vendor=0x1A03, kind=0x030000, driver="ast")  # a BMC's display
    tree.add("0000:1b:00.0", driver="")
    tree.add("0000:1b:00.1", kind=0x040300, driver="snd_hda_intel")  # the GPU's audio function
    assert [(gpu.address, gpu.maker, bus.driver(gpu)) for gpu in bus.gpus()] == [
        ("0000:00:02.0", "Intel", "i915"),
        ("0000:03:00.0", "AMD", "amdgpu"),
        ("0000:1b:00.0", "NVIDIA", ""),
    ]
    assert [gpu.address for gpu in bus.nvidia()] == ["0000:1b:00.0"]
    assert bus.gpus()[1].name.startswith("MI300X")
    assert bus.gpus()[1].name.isprintable()


def test_a_gpu_that_comes_or_goes_is_seen(tree: PciTree, bus: PciBus) -> None:
    tree.add("0000:1b:00.0")
    assert len(bus.gpus()) == 1
    tree.add("0000:43:00.0")
    assert len(bus.gpus()) == 2
    tree.remove("0000:1b:00.0")
    assert [gpu.address for gpu in bus.gpus()] == ["0000:43:00.0"]


@pytest.mark.parametrize(
    ("status", "asleep"),
    [
        *(("active", False), ("resuming", False), ("unsupported", False), ("error", False)),
        *(("suspended", True), ("suspending", True)),
    ],
)
def test_only_what_the_kernel_suspends_is_asleep(
    tree: PciTree, bus: PciBus, status: str, asleep: bool
) -> None:
    tree.add("0000:1b:00.0", status=status)
    assert bus.is_asleep("0000:1b:00.0") is asleep


def test_a_bus_that_cannot_be_read_has_no_gpus_and_nothing_asleep(tmp_path: Path) -> None:
    bus = PciBus(Roots(sys=str(tmp_path / "none")))
    assert bus.gpus() == ()
    assert not bus.is_asleep("0000:1b:00.0")
    assert not bus.may_sleep("0000:1b:00.0")


def test_garbage_in_the_files_of_a_device_is_no_gpu(tree: PciTree, bus: PciBus) -> None:
    tree.add("0000:1b:00.0")
    (tree.root / "bus/pci/devices/0000:1b:00.0/class").write_bytes(b"\xff\xfe")
    assert bus.gpus() == ()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("00010000:3B:00.0", "10000:3b:00.0"),
        ("Nonsense", "nonsense"),
        ("", ""),
    ],
)
def test_addresses_are_written_one_way(written: str, expected: str) -> None:
    assert pci_address(written) == expected
