"""Containers are recognised from paths and mounts, and a process of the host is not one."""

from __future__ import annotations

import pytest

from bottletop.linux.container import recognise
from bottletop.linux.mounts import parse_mountinfo

HEX = "3f2a9c1b77de" + "0" * 52
POD = "12345678-1234-1234-1234-123456789abc"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"/system.slice/docker-{HEX}.scope", "docker 3f2a9c1b77de"),
        (f"/docker/{HEX}", "docker 3f2a9c1b77de"),
        (
            f"/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{HEX}.scope",
            f"containerd 3f2a9c1b77de in pod {POD.replace('-', '_')}",
        ),
        (f"/kubepods/burstable/pod{POD}/{HEX}", f"kubernetes 3f2a9c1b77de in pod {POD}"),
        (f"/kubepods.slice/x/crio-{HEX}.scope", "cri-o 3f2a9c1b77de"),
        (f"/machine.slice/libpod-{HEX}.scope/container", "podman 3f2a9c1b77de"),
        ("/lxc.payload.web1/init.scope", "lxc web1"),
        ("/user.slice/user-1000.slice/session-3.scope", ""),
        ("/", ""),
    ],
)
def test_cgroup_paths_name_runtime_and_container(path: str, expected: str) -> None:
    assert recognise([path], []) == expected


def test_inside_a_namespace_the_overlay_names_the_runtime() -> None:
    mounts = parse_mountinfo(
        b"9 8 0:99 / / rw - overlay overlay rw,upperdir=/var/lib/docker/overlay2/x/diff\n"
    )
    assert recognise(["/"], mounts) == "docker"
    unknown = parse_mountinfo(b"9 8 0:99 / / rw - overlay overlay rw,upperdir=/data/x\n")
    assert recognise(["/"], unknown) == "a container"
    plain = parse_mountinfo(b"9 8 8:1 / / rw - ext4 /dev/sda1 rw\n")
    assert recognise(["/"], plain) == ""
