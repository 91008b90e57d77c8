"""Entities by the names people use, and which of them belong to the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.model import Absent, ProcessId
from bottletop.tables import BY_NAME, Disk, Gpu, GpuProcess, HotThread, Process, TargetInfo, Thread

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bottletop.model import Metric, Table
    from bottletop.store import View

NEEDS: tuple[Metric, ...] = (
    Gpu.index,
    GpuProcess.gpu,
    GpuProcess.pid,
    Process.pid,
    TargetInfo.gpus,
    Thread.thread,
    Thread.tid,
    Process.process,
)
"""What these functions read; rules that call them declare it."""


NOTHING_ATTACHED = "attach to a PID to see why"


def gpu_name(view: View, key: str) -> str:
    """ "GPU 0", or the UUID where the index cannot be read."""
    index = view.last(Gpu.index, key)
    return f"GPU {index:.0f}" if isinstance(index, (int, float)) else key


def gpu_place(view: View, key: str) -> str:
    """ "GPU 3 (0000:C1:00.0)": the name to open a case with; its rule needs `Gpu.pci_bus_id`."""
    name, last = gpu_name(view, key), view.last(Gpu.pci_bus_id, key)
    address = last.raw if isinstance(last, Absent) else last  # an address does not go stale
    if not isinstance(address, str) or not address:
        return name
    # NVML writes eight digits of domain, everything else on a Linux host writes four.
    head, _, rest = address.partition(":")
    short = f"{head[-4:]}:{rest}"
    return f"GPU {short}" if name == address else f"{name} ({short})"


def gpu_names(view: View, keys: Iterable[str]) -> str:
    """ "GPU 0", "GPUs 0-3", "GPUs 0, 2": several GPUs in a few characters."""
    indices: list[int] = []
    for key in keys:
        index = view.last(Gpu.index, key)
        if not isinstance(index, (int, float)):
            return "the GPUs"
        indices.append(int(index))
    indices.sort()
    if not indices:
        return "the GPU"
    if len(indices) == 1:
        return f"GPU {indices[0]}"
    if len(indices) > 2 and indices[-1] - indices[0] == len(indices) - 1:
        return f"GPUs {indices[0]}-{indices[-1]}"
    return "GPUs " + ", ".join(str(index) for index in indices)


def thread_name(view: View, key: str) -> str:
    """ "loader (tid 4243)"; the tid alone where the name cannot be read."""
    tid = key.rpartition("/")[2]
    name = view.text(Thread.thread, key)
    return f"{name} (tid {tid})" if name else f"thread {tid}"


def entity_name(view: View, table: type[Table], key: str) -> str:
    """Any entity in words."""
    if not key:
        return ""
    if key in view.keys(Gpu):
        return gpu_name(view, key)
    if table in (Thread, HotThread):
        return thread_name(view, key)
    if table is Process:
        name = view.text(Process.process, key)
        pid = key.partition("@")[0]
        return f"{name} (pid {pid})" if name else f"pid {pid}"
    if table is GpuProcess:
        gpu, _, pid = key.rpartition("/")
        return f"pid {pid} on {gpu_name(view, gpu)}"
    return key


def missing_text(view: View, what: str, key: str, reason: str) -> str:
    """A `Missing` in words: "gpu.power_w of GPU 1: unsupported"."""
    table = BY_NAME.get(what.partition(".")[0])
    name = entity_name(view, table, key) if table is not None else key
    return f"{what} of {name}: {reason}" if name else f"{what}: {reason}"


def filled(view: View, table: type[Table] | None, key: str, text: str) -> str:
    """`text` with the names of this host: PID, `-i GPU` and DEVICE stand for the finding's own."""
    if "PID" in text:
        root = view.memo("root pid", lambda: _root_pid(view))
        text = text.replace("PID", root or "PID")
    if table is Gpu:
        index = view.last(Gpu.index, key)
        named = f"{index:.0f}" if isinstance(index, (int, float)) else ""
        named = named or view.text(Gpu.pci_bus_id, key)  # nvidia-smi takes an address as well
        if named:
            text = text.replace("-i GPU", f"-i {named}")
    elif table is Disk:
        text = text.replace("DEVICE", key)
    return text


def _root_pid(view: View) -> str:
    """Pid of the process that was attached to; empty when nothing is attached."""
    roots = (key for key in view.keys(Process) if view.last(Process.is_root, key) == 1)
    return next(roots, "").partition("@")[0]


def target_pids(view: View) -> frozenset[int]:
    """Pids of the attached tree; empty when nothing is attached."""
    return view.memo(
        "target pids",
        lambda: frozenset(ProcessId.parse(key).pid for key in view.keys(Process)),
    )


def gpu_pids(view: View) -> dict[str, frozenset[int]]:
    """Pids with a context on each GPU, by GPU key. Only GPUs that have any are named."""
    return view.memo("gpu pids", lambda: _gpu_pids(view))


def _gpu_pids(view: View) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for gpu, rows in gpu_rows(view).items():
        for row in rows:
            pid = view.last(GpuProcess.pid, row)
            if isinstance(pid, (int, float)):
                found.setdefault(gpu, set()).add(int(pid))
    return {gpu: frozenset(pids) for gpu, pids in found.items()}


def gpu_rows(view: View) -> dict[str, list[str]]:
    """Keys of `GpuProcess` by GPU key."""
    return view.memo("gpu rows", lambda: _gpu_rows(view))


def _gpu_rows(view: View) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in view.keys(GpuProcess):
        gpu = view.text(GpuProcess.gpu, row)
        if gpu:
            found.setdefault(gpu, []).append(row)
    return found


def target_gpus(view: View) -> tuple[str, ...]:
    """GPUs that the target uses, in the driver's order; all of them where that is not known.

    In a container the driver names host pids that the target's own do not match: then, too, all.
    """
    return view.memo("target gpus", lambda: _target_gpus(view))


def _target_gpus(view: View) -> tuple[str, ...]:
    gpus = tuple(view.keys(Gpu))
    pids = target_pids(view)
    if not pids:
        return gpus
    by_gpu = gpu_pids(view)
    used = {gpu for gpu in gpus if by_gpu.get(gpu, frozenset()) & pids}
    if not used:
        for key in view.keys(TargetInfo):
            used.update(part.strip() for part in view.text(TargetInfo.gpus, key).split(","))
    return tuple(gpu for gpu in gpus if gpu in used) or gpus


def elsewhere(view: View, gpu: str) -> frozenset[int]:
    """Pids that have contexts on other GPUs of the target but none on this one.

    What they do says nothing about this GPU's gaps.
    """
    return view.memo(("elsewhere", gpu), lambda: _elsewhere(view, gpu))


def _elsewhere(view: View, gpu: str) -> frozenset[int]:
    by_gpu = gpu_pids(view)
    others: set[int] = set()
    for other in target_gpus(view):
        if other != gpu:
            others |= by_gpu.get(other, frozenset())
    return frozenset(others - by_gpu.get(gpu, frozenset()))
