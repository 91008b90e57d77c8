"""Where a process's cgroups are: v1, v2 and hybrid hosts, namespaces and bind mounts.

/proc/PID/cgroup gives paths as seen from the cgroup namespace of whoever reads it; the mount may
show only a part of the hierarchy (containers without a cgroup namespace). cgroups(7),
cgroup_namespaces(7).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bottletop.linux.mounts import Mount, read_mounts
from bottletop.roots import read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.roots import Roots

UNIFIED = ""
"""Stands for the v2 hierarchy where v1 controllers are named."""
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory")
"""v1 hierarchies that are read."""
MAX_DEPTH = 32


class NotLocated(Exception):
    """The cgroup cannot be found; the message says why and what would change that."""


@dataclass(frozen=True, slots=True)
class Group:
    """One cgroup: a path, and the folder of each hierarchy that has it."""

    path: str
    depth: int
    """Steps up from the process's own group, the least over the hierarchies that have the path."""
    folders: Mapping[str, str]
    """Controller, or `UNIFIED`, to folder."""


@dataclass(frozen=True, slots=True)
class Membership:
    """The groups of one process, its own first, then upwards to the root of what is visible."""

    version: str
    """v1, v2 or hybrid."""
    groups: tuple[Group, ...]
    own: Mapping[str, str]
    """Controller, or `UNIFIED`, to the folder of the process's own group."""


def read_paths(roots: Roots, pid: int) -> dict[str, str]:
    """Hierarchy to path, from /proc/PID/cgroup. Raises OSError.

    A v1 line may name several controllers, in any order; named hierarchies (systemd) are left out.
    """
    paths: dict[str, str] = {}
    for line in (
        read_bytes(f"{roots.proc}/{pid}/cgroup", 64 * 1024)
        .decode("utf-8", "surrogateescape")
        .splitlines()
    ):
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon or not path.startswith("/"):
            continue
        if number == "0" and not controllers:
            paths[UNIFIED] = path
        for controller in controllers.split(","):
            if controller in CONTROLLERS:
                paths[controller] = path
    return paths


def locate(roots: Roots, pid: int) -> Membership:
    """Find the groups of a process. Raises OSError (gone, hidden) and `NotLocated`."""
    paths = read_paths(roots, pid)
    if not paths:
        raise NotLocated("the kernel lists no cgroup for the process (cgroups are not built in)")
    if any("/.." in path for path in paths.values()):
        raise NotLocated("its cgroup lies outside our cgroup namespace: run bottletop on the host")
    v1 = [controller for controller in CONTROLLERS if controller in paths]
    version = "v2" if not v1 else "hybrid" if UNIFIED in paths else "v1"
    mounted = _mounted(roots, paths, pure_v2=not v1)
    if not mounted:
        raise NotLocated(f"no cgroup file system is mounted under {roots.cgroup}")
    groups: dict[str, dict[str, tuple[int, str]]] = {}
    own: dict[str, str] = {}
    roots_of_mounts = _mount_roots(roots)
    for controller, top in mounted.items():
        path = _visible_path(top, paths[controller], roots_of_mounts)
        own[controller] = (top + path).rstrip("/")
        for depth, step in enumerate(_upwards(path)):
            groups.setdefault(step, {})[controller] = (depth, (top + step).rstrip("/"))
    found = [
        Group(
            path,
            min(depth for depth, _ in folders.values()),
            {controller: folder for controller, (_, folder) in folders.items()},
        )
        for path, folders in groups.items()
    ]
    found.sort(key=lambda group: (group.depth, group.path))
    return Membership(version, tuple(found), own)


def _mounted(roots: Roots, paths: Mapping[str, str], *, pure_v2: bool) -> dict[str, str]:
    """Top folder of every hierarchy in `paths` that is mounted where systemd and Docker mount it.

    Controllers that share a hierarchy are mounted as "cpu,cpuacct" or "cpuacct,cpu".
    """
    try:
        entries = sorted(os.listdir(roots.cgroup))
    except OSError:
        return {}
    tops: dict[str, str] = {}
    if UNIFIED in paths:
        if "unified" in entries and "cgroup.controllers" not in entries:
            tops[UNIFIED] = f"{roots.cgroup}/unified"
        elif pure_v2 or "cgroup.controllers" in entries:
            tops[UNIFIED] = roots.cgroup
    for entry in entries:
        for controller in entry.split(","):
            if controller in paths and controller != UNIFIED:
                tops.setdefault(controller, f"{roots.cgroup}/{entry}")
    return tops


def _mount_roots(roots: Roots) -> list[Mount]:
    try:
        mounts = read_mounts(roots, "self" if roots.live else 1)
    except OSError:
        return []
    return [mount for mount in mounts if mount.filesystem in ("cgroup", "cgroup2")]


def _visible_path(top: str, path: str, mounts: list[Mount]) -> str:
    """The path under `top` that really is the group: as it is, without the mount's own root, or the
    mount's root itself, which inside a container is the container's group."""
    offsets = [
        mount.root.decode("utf-8", "surrogateescape")
        for mount in mounts
        if top.endswith(mount.point.decode("utf-8", "surrogateescape")) and mount.root != b"/"
    ]
    tries = [path]
    tries += [path[len(root) :] or "/" for root in offsets if path.startswith(root)]
    return next((one for one in tries if os.path.isdir(top + one)), "/")


def _upwards(path: str) -> list[str]:
    steps = [path.rstrip("/") or "/"]
    while steps[-1] != "/" and len(steps) < MAX_DEPTH:
        steps.append(steps[-1].rpartition("/")[0] or "/")
    return steps
