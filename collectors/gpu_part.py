"""What kind of part a GPU is, and what follows for reading it.

Recognised by compute capability, name and addressing mode, never by what fails: a lost or broken
GPU must not be taken for one without memory of its own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from bottletop.collectors.gpu_driver import NOT_SUPPORTED_HERE
from bottletop.collectors.gpu_readings import ADA, AMPERE, HOPPER, Call
from bottletop.linux.procfs import parse_numbers
from bottletop.model import Absent, Metric, State, Value
from bottletop.roots import Roots, read_bytes
from bottletop.tables.gpu import (
    COHERENT,
    DEDICATED,
    INSTANT,
    MEAN,
    UNIFIED,
    VGPU_GUEST,
    WSL,
    Gpu,
)
from bottletop.tables.gpu_believed import believed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.collectors.gpu_calls import DeviceCalls

KIB = 1024
ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    AMPERE: "Ampere",
    ADA: "Ada",
    HOPPER: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
"""Names of NVML_DEVICE_ARCH_*."""
MAX_ARCHITECTURE = 100  # all ones stands for an architecture that the driver does not name
_JETSON = frozenset({(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)})
"""Compute capabilities of Tegra X1, X2, Xavier, Orin and Thor (10.1 in CUDA 12, 11.0 since)."""
_GB10 = (12, 1)
_GA100 = (8, 0)
_JETSON_NAME = re.compile(r"\b(Tegra|Xavier|Orin|Thor)\b|nvgpu")
_UNIFIED_NAME = re.compile(r"\bGB10\b")
_COHERENT_NAME = re.compile(r"\bG[HB][23]00\b")
_ATS = 2  # NVML_DEVICE_ADDRESSING_MODE_ATS: the GPU walks the CPU's own page tables

ADDRESSING = Call("nvmlDeviceGetAddressingMode")
ARCHITECTURE = Call("nvmlDeviceGetArchitecture")
MEMORY_V2 = Call("nvmlDeviceGetMemoryInfo", (0x02000028,))
MEMORY_V1 = Call("nvmlDeviceGetMemoryInfo")
VIRTUALISATION = Call("nvmlDeviceGetVirtualizationMode")

_REFUSED = Absent.unsupported(NOT_SUPPORTED_HERE)
SHARED = Absent(
    State.NOT_APPLICABLE,
    "it has no memory of its own, and its processes do not say what they hold of the host's",
)
UNTOLD = Absent.unsupported("it reports no memory, and nothing says that it shares the host's")
PLACEHOLDER = Absent(
    State.NOT_APPLICABLE, "it sits on one module with its CPU: the driver's gen 1 x1 is no link"
)


class Part(NamedTuple):
    """What is known of a GPU before anything is measured."""

    architecture: int | None = None
    """NVML's number, None where the driver does not name it."""
    memory_kind: Value = DEDICATED
    jetson: bool = False
    power_basis: Value = Absent.unsupported("depends on the architecture, which is not known")
    virtualisation: Value = Absent.unsupported()

    @property
    def beside_cpu(self) -> bool:
        """Whether it sits on one module or chip with its CPU."""
        return self.memory_kind in (UNIFIED, COHERENT)

    @property
    def lacking(self) -> str:
        """Why such a part is likely refused something; empty for one like any other."""
        if self.virtualisation == WSL:
            return "much is not given under WSL"
        if self.virtualisation == VGPU_GUEST:
            return "a vGPU guest is not given everything"
        return "the driver of a Jetson gives little" if self.jetson else ""

    def facts(self) -> dict[Metric, Value]:
        """Its columns of `gpu`."""
        number = self.architecture
        return {
            Gpu.architecture: (
                Absent.unsupported("the driver does not name it")
                if number is None
                else ARCHITECTURES.get(number, f"architecture {number}")
            ),
            Gpu.memory_kind: self.memory_kind,
            Gpu.virtualisation: self.virtualisation,
        }

    def worded(self, cells: Mapping[Metric, Value]) -> Mapping[Metric, Value]:
        """The cells; where something is refused, with why that is likely of this part."""
        if not self.lacking:
            return cells
        why = Absent.unsupported(f"{NOT_SUPPORTED_HERE}; {self.lacking}")
        return {
            metric: why
            if isinstance(value, Absent) and value.reason == NOT_SUPPORTED_HERE
            else value
            for metric, value in cells.items()
        }


def recognise(calls: DeviceCalls, model: Value, capability: Value, roots: Roots) -> Part:
    """Find out what the GPU is. Raises `GpuGone` and `Unavailable`."""
    name = model if isinstance(model, str) else ""
    version = _version(capability)
    number = calls.ask(ARCHITECTURE)
    architecture = number if isinstance(number, int) and 0 < number < MAX_ARCHITECTURE else None
    jetson = version in _JETSON or _JETSON_NAME.search(name) is not None
    mode = calls.ask(VIRTUALISATION)
    return Part(
        architecture,
        _memory_kind(calls, name, version, jetson=jetson),
        jetson,
        _power_basis(architecture, version),
        WSL if _under_wsl(roots) else _believed_mode(mode),
    )


def _version(capability: Value) -> tuple[int, int] | None:
    """(8, 6) of "8.6"."""
    major, _, minor = capability.partition(".") if isinstance(capability, str) else ("", "", "")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


def _memory_kind(
    calls: DeviceCalls, name: str, version: tuple[int, int] | None, *, jetson: bool
) -> Value:
    if jetson or version == _GB10 or _UNIFIED_NAME.search(name):
        return UNIFIED
    lacks_memory = _refused(calls, MEMORY_V2) and _refused(calls, MEMORY_V1)
    addressing = calls.ask(ADDRESSING)
    if addressing == _ATS or _COHERENT_NAME.search(name):
        return UNIFIED if lacks_memory else COHERENT
    return UNTOLD if lacks_memory else DEDICATED


def _refused(calls: DeviceCalls, call: Call) -> bool:
    answer = calls.ask(call)
    return isinstance(answer, Absent) and answer.state is State.UNSUPPORTED


def _power_basis(architecture: int | None, version: tuple[int, int] | None) -> Value:
    """What nvmlDeviceGetPowerUsage answers: nvml.h, and arXiv 2312.02741 for how it is sensed."""
    if architecture is None:
        return Part().power_basis
    old = architecture < AMPERE or (architecture == AMPERE and version == _GA100)
    return INSTANT if old else MEAN


def _believed_mode(mode: int | Absent) -> Value:
    return mode if isinstance(mode, Absent) else believed(Gpu.virtualisation, mode)


def _under_wsl(roots: Roots) -> bool:
    """Whether the kernel is that of the Windows Subsystem for Linux, which names its maker."""
    try:
        return b"microsoft" in read_bytes(f"{roots.proc}/version", 512).lower()
    except OSError:
        return False


def host_memory_bytes(roots: Roots) -> Value:
    """MemTotal of the host: what a GPU without memory of its own works in."""
    try:
        found = parse_numbers(read_bytes(f"{roots.proc}/meminfo", 64 * KIB))
    except OSError as error:
        return Absent.error(f"/proc/meminfo cannot be read: {error.strerror}")
    kib = found.get(b"MemTotal")
    return kib * KIB if kib else Absent.unsupported("the kernel does not write MemTotal")
