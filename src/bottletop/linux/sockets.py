"""Sockets that a process tree listens on.

/proc/PID/net/* shows the network namespace of that process, so it is right for containers too;
a socket belongs to whoever has its inode among the open files. proc_pid_net(5).
"""

from __future__ import annotations

import ipaddress
import os
import struct
from typing import TYPE_CHECKING

from bottletop.roots import read_bytes
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Set

    from bottletop.roots import Roots

MAX_TABLE_BYTES = 1024 * 1024
"""Listening rows come first in these tables, so a busy server's connections are not read."""
MAX_DESCRIPTORS = 4096
_LISTEN = b"0A"
_ACCEPTS = 0x10000
"""__SO_ACCEPTCON in the flags of /proc/net/unix."""


def listening(roots: Roots, pid: int, inodes: Set[int]) -> list[str]:
    """Addresses such as "0.0.0.0:8000", "[::]:8000" or "unix:/run/x.sock" whose inode is in
    `inodes`. Never raises: a table that cannot be read gives nothing."""
    found: list[str] = []
    if not inodes:
        return found
    for table in ("tcp", "tcp6"):
        for line in _lines(roots, pid, table):
            fields = line.split()
            if len(fields) < 10 or fields[3] != _LISTEN:
                continue
            address = _address(fields[1])
            if address and _number(fields[9]) in inodes and address not in found:
                found.append(address)
    for line in _lines(roots, pid, "unix"):
        fields = line.split(None, 7)
        if len(fields) < 8 or _number(fields[6]) not in inodes:
            continue
        name = f"unix:{clean(fields[7], 128)}"
        if max(0, _number(fields[3], 16)) & _ACCEPTS and name not in found:
            found.append(name)
    return found


def socket_inodes(roots: Roots, pid: int) -> set[int]:
    """Inodes of the sockets that a process has open; empty where that is closed to us."""
    folder = f"{roots.proc}/{pid}/fd"
    found: set[int] = set()
    try:
        names = os.listdir(folder)
    except OSError:
        return found
    for name in names[:MAX_DESCRIPTORS]:
        try:
            link = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        if link.startswith("socket:["):
            found.add(_number(link[8:-1].encode("ascii", "replace")))
    return found


def _lines(roots: Roots, pid: int, table: str) -> list[bytes]:
    try:
        return read_bytes(f"{roots.proc}/{pid}/net/{table}", MAX_TABLE_BYTES).splitlines()[1:]
    except OSError:
        return []


def _number(raw: bytes, base: int = 10) -> int:
    try:
        return int(raw, base)
    except ValueError:
        return -1


def _address(raw: bytes) -> str:
    """ "0100007F:1F40" to "127.0.0.1:8000"; words are in the host's byte order, little-endian on
    every machine that has GPUs. Empty when it is not an address."""
    host, _, port = raw.partition(b":")
    try:
        packed = bytes.fromhex(host.decode("ascii"))
        words = struct.unpack(f"<{len(packed) // 4}I", packed)
        address = ipaddress.ip_address(struct.pack(f">{len(words)}I", *words))
        number = int(port, 16)
    except (ValueError, struct.error):
        return ""
    return f"[{address}]:{number}" if address.version == 6 else f"{address}:{number}"
