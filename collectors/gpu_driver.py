"""The NVIDIA driver as nvidia-ml-py reaches it: opened, timed, its errors in words.

Importing this module imports `pynvml` (20-40 ms), so the collector does it when it is opened, in
its own thread.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import deque
from typing import TYPE_CHECKING, Any

import pynvml

from bottletop.collectors.base import DriverTime, Unavailable
from bottletop.model import Absent, State
from bottletop.roots import read_bytes
from bottletop.tables.gpu import LOST, RESET_REQUIRED
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable

    from bottletop.clock import Clock
    from bottletop.collectors.base import RuntimeStats
    from bottletop.roots import Roots

LIBRARY = "libnvidia-ml.so.1"
P95_READS = 60
MAX_GPUS = 64

_OPEN_FAILURES = {
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the NVIDIA kernel module is not loaded: load it with `modprobe nvidia`"
        " and look for its errors in the kernel log"
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "driver/library version mismatch: the loaded kernel module{module} is not of the version of"
        " libnvidia-ml, as after a driver upgrade; reload the module or reboot"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "no permission to open the NVIDIA devices: check the rights on /dev/nvidia*,"
        " or in a container the devices it was given"
    ),
    pynvml.NVML_ERROR_UNKNOWN: (
        "the NVIDIA driver answered an unknown error: often the /dev/nvidia* devices are missing,"
        " or a container has lost its right to them"
    ),
}
_ANSWERS = frozenset(
    {pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INSUFFICIENT_SIZE}
)
_LOST = {
    pynvml.NVML_ERROR_GPU_IS_LOST: LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED: RESET_REQUIRED,
}
"""NVML codes after which a GPU answers nothing, and its health then."""

_DRIVER_GONE = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
NOT_SUPPORTED_HERE = "this GPU or driver does not support it"
_UNSUPPORTED = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: NOT_SUPPORTED_HERE,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "this driver is too old for it",
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: "this driver knows another layout of it",
    26: "this driver no longer offers it",  # NVML_ERROR_DEPRECATED, not in bindings before 12.560
}


class NoDriver(Unavailable):
    """There is no NVIDIA driver to talk to: no library, or no kernel module."""


class GpuGone(Exception):
    """One GPU answers no more: lost, waiting for a reset, or not to be opened."""

    def __init__(self, health: int, absent: Absent) -> None:
        super().__init__(str(absent))
        self.health = health
        """A label of `tables.gpu.HEALTH`."""
        self.absent = absent
        """Stands in every column that would have been read."""


def absence(code: int) -> Absent:
    """Say why an NVML call or field gave no value.

    `State.UNSUPPORTED` means that asking again is no use until the driver is opened anew.
    """
    if code in _UNSUPPORTED:
        return Absent.unsupported(_UNSUPPORTED[code])
    if code == pynvml.NVML_ERROR_NO_PERMISSION:
        return Absent.denied("the driver does not permit it to this user")
    return Absent.error(f"{error_text(code)} (NVML error {code})")


def error_text(code: int) -> str:
    """The binding's own words for an NVML code."""
    return clean(str(pynvml.NVMLError(code)))


class Driver:
    """One initialised NVML. All calls of one collector go through `call` and `raw`.

    `account` names the collector in the account of driver time.
    """

    def __init__(
        self, clock: Clock, roots: Roots, stats: RuntimeStats, account: str = "gpu"
    ) -> None:
        self._clock = clock
        self._roots = roots
        self._stats = stats
        self._reads: deque[int] = deque(maxlen=P95_READS)
        self._spent = stats.driver.setdefault(account, DriverTime())
        self._read_began_ns = self._spent.ns
        self._open = False

    def open(self) -> None:
        """Initialise NVML. Raises `Unavailable` naming the cause and what to do about it."""
        try:
            self._timed(pynvml.nvmlInit)
        except pynvml.NVMLError as error:
            raise self._unavailable(error.value) from None
        self._open = True

    def close(self) -> None:
        """Shut NVML down. Never raises."""
        if not self._open:
            return
        self._open = False
        # The driver may be gone already; then there is nothing left to let go of.
        with contextlib.suppress(pynvml.NVMLError):
            self._timed(pynvml.nvmlShutdown)

    def call(self, function: str, *args: object) -> Any:
        """Call a function of the binding and return what it returned, or an `Absent`.

        Raises `GpuGone` for a lost GPU and `Unavailable` when the driver itself has gone.
        """
        bound = getattr(pynvml, function, None)
        if bound is None:
            return Absent.unsupported("the installed nvidia-ml-py is too old for it")
        try:
            return self._timed(bound, *args)
        except pynvml.NVMLError as error:
            return self.judge(error.value)
        except UnicodeDecodeError:
            return Absent.implausible("", "the driver's answer is not text")

    def gpu_count(self) -> int:
        """How many GPUs the driver lists, at most `MAX_GPUS`. Raises `Unavailable` if none."""
        count = self.call("nvmlDeviceGetCount")
        if isinstance(count, Absent):
            raise Unavailable(f"the NVIDIA driver does not count its GPUs: {count.reason}")
        if count == 0:
            raise Unavailable(
                "the NVIDIA driver runs but lists no GPU: in a container give it one"
                " (docker run --gpus all), else look at `lspci` and the kernel log"
            )
        return min(int(count), MAX_GPUS)

    def handle(self, index: int, address: str = "", uuid: str = "") -> Any:
        """A GPU's handle by UUID, else by PCI address, else by its place in the driver's list.

        Opens the GPU, which wakes it if it sleeps. Returns an `Absent` and raises as `call` does.
        """
        if address:
            return self.call("nvmlDeviceGetHandleByPciBusId", address.encode())
        if uuid:
            return self.call("nvmlDeviceGetHandleByUUID", uuid.encode())
        return self.call("nvmlDeviceGetHandleByIndex", index)

    def lists(self, address: str) -> bool:
        """Whether the GPU at a PCI address is one of the driver's, lost or not; opens it.

        A container sees the whole bus and is given a part of the GPUs.
        """
        try:
            handle = self.handle(0, address)
        except GpuGone:
            return True
        return not isinstance(handle, Absent) or handle.state is State.DENIED

    def raw(self, function: str, *args: object, also: tuple[int, ...] = ()) -> int | Absent:
        """Call a function of the library itself with prepared ctypes arguments.

        Only where the binding's wrapper costs a second driver call or an object a sample, or sizes
        an array by what the driver says: sample buffers, field values, processes, events. Returns
        NVML_SUCCESS, NOT_FOUND, INSUFFICIENT_SIZE or a code in `also`, else as `call` does.
        """
        bound = getattr(pynvml.nvmlLib, function, None)
        if bound is None:
            return Absent.unsupported(_UNSUPPORTED[pynvml.NVML_ERROR_FUNCTION_NOT_FOUND])
        code: int = self._timed(bound, *args)
        if code in _ANSWERS or code in also:
            return code
        return self.judge(code)

    def end_read(self) -> int:
        """Close the account of one collector read, for the 95th percentile of driver time.

        Returns the nanoseconds that it spent in calls.
        """
        spent_ns = self._spent.ns - self._read_began_ns
        self._reads.append(spent_ns)
        self._read_began_ns = self._spent.ns
        ordered = sorted(self._reads)
        self._stats.nvml_p95_s = ordered[int(0.95 * (len(ordered) - 1) + 0.5)] / 1e9
        return spent_ns

    def _timed(self, function: Callable[..., Any], *args: object) -> Any:
        began_ns = self._clock.monotonic_ns()
        try:
            return function(*args)
        finally:
            self._spent.ns += self._clock.monotonic_ns() - began_ns
            self._spent.calls += 1

    def judge(self, code: int) -> Absent:
        """Turn an error code into why there is no value.

        Raises `GpuGone` for a lost GPU and `Unavailable` when the driver itself has gone.
        """
        if code in _LOST:
            reason = f"{error_text(code)} (NVML error {code})"
            raise GpuGone(_LOST[code], Absent(State.LOST, reason))
        if code in _DRIVER_GONE:
            raise self._unavailable(code)
        return absence(code)

    def _unavailable(self, code: int) -> Unavailable:
        if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return NoDriver(_library_failure())
        text = _OPEN_FAILURES.get(code, f"the NVIDIA driver cannot be used: {error_text(code)}")
        reason = text.replace("{module}", self._module_version())
        if code == pynvml.NVML_ERROR_DRIVER_NOT_LOADED:
            return NoDriver(reason)
        return Unavailable(reason, denied=code == pynvml.NVML_ERROR_NO_PERMISSION)

    def _module_version(self) -> str:
        """ " 535.129.03" of the loaded kernel module, or nothing where it does not say."""
        try:
            text = clean(read_bytes(f"{self._roots.proc}/driver/nvidia/version", 512))
        except OSError:
            return ""
        words = text.split()
        version = next((word for word in words if word[:1].isdigit() and "." in word), "")
        return f" ({version})" if version else ""


def _library_failure() -> str:
    """Why the library did not load. The binding does not tell a missing from a broken one."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        text = clean(str(error))
    else:
        text = "it loads now"
    if text.startswith(LIBRARY) and "No such file" in text:
        return (
            f"no NVIDIA driver here: {LIBRARY} was not found; install the driver,"
            " or give the container its GPU (docker run --gpus all)"
        )
    return f"{LIBRARY} cannot be loaded: {text}; reinstall the NVIDIA driver's libraries"
