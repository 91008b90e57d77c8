"""What the target's processes have open: model and data files, sockets, GPU devices.

One pass over /proc/PID/fd of the tree, and over the maps of the processes most likely to hold a
model. Only names, sizes and mounts are read, never contents.
"""

from __future__ import annotations

import os
import re
import stat as stat_bits
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bottletop.linux.mounts import Backing, Mount, backing_of, mount_of, read_mounts
from bottletop.roots import read_bytes, read_record

if TYPE_CHECKING:
    from bottletop.linux.blockdev import BlockDevices
    from bottletop.model import ProcessId, Target
    from bottletop.roots import Roots

MAX_DESCRIPTORS = 4096
"""Descriptors of one process that are looked at; the lowest, so that listening sockets are in."""
MAX_LINKS = 16 * 1024
"""Descriptors of the whole tree that are looked at in one pass."""
MAX_MAPS_BYTES = 1024 * 1024
MAX_MAPPED_PROCESSES = 8
"""Processes whose maps are read in one pass: the root, then those that hold GPU devices."""
MAX_FOUND = 512
MIN_SIZE_BYTES = 1024 * 1024
"""A file of unknown kind below this is no model and no data set."""

_DATA = re.compile(
    rb"""\.(?:safetensors|gguf|ggml|bin|pth?|ckpt|onnx(?:_data)?|engine|plan|trt|tflite|pb|h5|hdf5|
    npy|npz|parquet|arrow|feather|lmdb|mdb|tfrecords?|recordio|rec|tar|zip|zarr|csv|tsv|jsonl|mp4|mkv|
    jpe?g|png|webp|wav|flac|mp3|dat|idx|model|tiktoken|spm|pkl|pickle|orbax)\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_CODE = re.compile(
    rb"""\.so(?:\.[\w.]+)?\Z | \.(?:pyc?|js|jar|whl|log|mo|ttf|cache|pyd|node|out|err)\Z |
    ^/(?:proc|sys|dev|usr/lib|usr/share|lib|lib64|usr/bin|bin)/ | ^/memfd: | \(deleted\)\Z""",
    re.VERBOSE,
)
_GPU_DEVICE = re.compile(rb"/dev/(?:nvidia(\d+)|kfd|dri/renderD\d+)\Z")
_SOCKET = re.compile(rb"socket:\[(\d+)\]\Z")
_MAPPED = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ +(/.*)$", re.MULTILINE)
_WRITE_ONLY = 1
_ACCESS_MODE = 3


@dataclass(slots=True)
class OpenFile:
    """One model or data file."""

    path: bytes
    backing: Backing | None
    size_bytes: int | None
    mapped: bool
    is_data: bool
    """Its name says that it is a model or data; otherwise only its size does."""


@dataclass(slots=True)
class Holdings:
    """What one pass over a tree found."""

    files: dict[bytes, OpenFile] = field(default_factory=dict)
    sockets: set[int] = field(default_factory=set)
    device_files: dict[ProcessId, int] = field(default_factory=dict)
    minors: set[int] = field(default_factory=set)
    """Numbers of the /dev/nvidiaN that are open."""
    denied: list[int] = field(default_factory=list)
    """Pids whose descriptors are closed to us."""
    looked_at: int = 0


class HoldingsReader:
    """Looks through a tree; keeps nothing between passes but the devices it has looked up."""

    def __init__(self, roots: Roots, devices: BlockDevices) -> None:
        self._roots = roots
        self._devices = devices
        self._host: list[Mount] = []
        self._mounts: dict[str, list[Mount]] = {}
        self._backings: dict[tuple[str, int], Backing] = {}

    def read(self, target: Target) -> Holdings:
        """One pass. Never raises; processes that vanish meanwhile are left out."""
        self._mounts, self._backings = {}, {}
        self._host = self._read_mounts("self" if self._roots.live else 1)
        found = Holdings()
        for member in target.processes:
            self._descriptors(member.id, found)
        likely = [target.root, *(one for one, count in found.device_files.items() if count)]
        for process in list(dict.fromkeys(likely))[:MAX_MAPPED_PROCESSES]:
            self._mapped(process.pid, found)
        return found

    def _descriptors(self, process: ProcessId, found: Holdings) -> None:
        folder = f"{self._roots.proc}/{process.pid}/fd"
        try:
            names = os.listdir(folder)
        except PermissionError:
            found.denied.append(process.pid)
            return
        except OSError:
            return
        devices = 0
        for name in names[:MAX_DESCRIPTORS]:
            if found.looked_at >= MAX_LINKS:
                break
            found.looked_at += 1
            try:
                link = os.readlink(os.fsencode(f"{folder}/{name}"))
            except OSError:
                continue
            socket, device = _SOCKET.match(link), _GPU_DEVICE.match(link)
            if socket:
                found.sockets.add(int(socket[1]))
            elif device:
                devices += 1
                if device[1]:
                    found.minors.add(int(device[1]))
            elif link.startswith(b"/"):
                self._open_file(process.pid, name, link, found)
        found.device_files[process] = devices

    def _open_file(self, pid: int, descriptor: str, path: bytes, found: Holdings) -> None:
        if path in found.files or len(found.files) >= MAX_FOUND or _CODE.search(path):
            return
        size = self._size(f"{self._roots.proc}/{pid}/fd/{descriptor}")
        is_data = _DATA.search(path) is not None
        if not _worth_naming(size, is_data):
            return
        flags, mount_id = self._descriptor_info(pid, descriptor)
        if flags & _ACCESS_MODE == _WRITE_ONLY:
            return
        backing = self._backing(pid, path, mount_id)
        found.files[path] = OpenFile(path, backing, size, False, is_data)

    def _mapped(self, pid: int, found: Holdings) -> None:
        try:
            raw = read_bytes(f"{self._roots.proc}/{pid}/maps", MAX_MAPS_BYTES)
        except OSError:
            return
        for path in dict.fromkeys(_MAPPED.findall(raw)):
            if path in found.files:
                found.files[path].mapped = True
                continue
            is_data = _DATA.search(path) is not None
            if len(found.files) >= MAX_FOUND or _CODE.search(path):
                continue
            size = self._size(f"{self._roots.proc}/{pid}/root{os.fsdecode(path)}")
            if _worth_naming(size, is_data):
                backing = self._backing(pid, path, None)
                found.files[path] = OpenFile(path, backing, size, True, is_data)

    def _size(self, path: str) -> int | None:
        """Size of a regular file: None where it is not captured, -1 for what is no file."""
        if not self._roots.live:
            return None
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return -1
        return status.st_size if stat_bits.S_ISREG(status.st_mode) else -1

    def _descriptor_info(self, pid: int, descriptor: str) -> tuple[int, int | None]:
        """Open flags and mount id from /proc/PID/fdinfo/N."""
        try:
            raw = read_record(f"{self._roots.proc}/{pid}/fdinfo/{descriptor}", 1024)
        except OSError:
            return 0, None
        fields = dict(line.split(None, 1) for line in raw.splitlines() if len(line.split()) == 2)
        try:
            return int(fields.get(b"flags:", b"0"), 8), int(fields[b"mnt_id:"])
        except (KeyError, ValueError):
            return 0, None

    # -- mounts ---------------------------------------------------------------------------------

    def _backing(self, pid: int, path: bytes, mount_id: int | None) -> Backing | None:
        namespace = self._namespace(pid)
        if namespace not in self._mounts:
            self._mounts[namespace] = self._read_mounts(pid)
        mounts = self._mounts[namespace]
        mount = next((one for one in mounts if one.id == mount_id), None)
        mount = mount or mount_of(path, mounts)
        if mount is None:
            return None
        key = (namespace, mount.id)
        if key not in self._backings:
            self._backings[key] = backing_of(mount, self._host, self._devices)
        return self._backings[key]

    def _namespace(self, pid: int) -> str:
        try:
            return os.readlink(f"{self._roots.proc}/{pid}/ns/mnt")
        except OSError:
            return str(pid)

    def _read_mounts(self, pid: int | str) -> list[Mount]:
        try:
            return read_mounts(self._roots, pid)
        except OSError:
            return []


def _worth_naming(size: int | None, is_data: bool) -> bool:
    if size is None:
        return is_data
    return size >= (1 if is_data else MIN_SIZE_BYTES)
