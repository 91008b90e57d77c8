"""Which container a process runs in, told from its cgroup path and its root file system."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bottletop.linux.mounts import Mount

SHORT_ID = 12
"""Characters of a container id that tools print."""

_IN_PATH: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?:^|/)docker[-/]([0-9a-f]{12,64})"), "docker"),
    (re.compile(r"cri-containerd[-:]([0-9a-f]{12,64})"), "containerd"),
    (re.compile(r"crio-(?:conmon-)?([0-9a-f]{12,64})"), "cri-o"),
    (re.compile(r"libpod-(?:conmon-)?([0-9a-f]{12,64})"), "podman"),
    (re.compile(r"nerdctl[-/]([0-9a-f]{12,64})"), "containerd"),
    (re.compile(r"/kubepods[^/]*/.*?/([0-9a-f]{32,64})(?:/|$)"), "kubernetes"),
    (re.compile(r"/(?:lxc\.payload|lxc)[./]([\w.-]+)"), "lxc"),
    (re.compile(r"/machine\.slice/machine-([\w.\\-]+?)\.scope"), "machine"),
    (re.compile(r"/ecs/[^/]+/([0-9a-f]{12,64})"), "ecs"),
    (re.compile(r"/actions_job/([0-9a-f]{12,64})"), "docker"),
)
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
_STORES: tuple[tuple[bytes, str], ...] = (
    (b"/containers/storage/", "podman"),
    (b"/docker/", "docker"),
    (b"io.containerd.", "containerd"),
    (b"/lib/lxc", "lxc"),
)


def recognise(paths: Iterable[str], mounts: Sequence[Mount]) -> str:
    """ "docker 3f2a9c1b77de", "containerd ... in pod ...", or empty for a process of the host.

    `paths` are the process's cgroup paths, `mounts` what it sees; inside a cgroup namespace the
    paths say nothing and the overlay under its root still names the runtime.
    """
    for path in paths:
        for pattern, runtime in _IN_PATH:
            match = pattern.search(path)
            if match:
                pod = _POD.search(path)
                name = match[1] if runtime in ("lxc", "machine") else match[1][:SHORT_ID]
                return f"{runtime} {name}" + (f" in pod {pod[1]}" if pod else "")
    root = next((mount for mount in mounts if mount.point == b"/"), None)
    if root is None or root.filesystem not in ("overlay", "fuse.fuse-overlayfs"):
        return ""
    for mark, runtime in _STORES:
        if mark in root.options or mark in root.source:
            return runtime
    return "a container"
