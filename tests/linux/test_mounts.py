"""A path is followed to the disk that really holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hosttree import HostTree
from hypothesis import given
from hypothesis import strategies as st

from bottletop.linux.blockdev import BlockDevices
from bottletop.linux.mounts import Backing, backing_of, mount_of, parse_mountinfo

if TYPE_CHECKING:
    from pathlib import Path

NVME = "sys/devices/pci0000:00/0000:00:01.0/nvme/nvme0/nvme0n1"


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    """A host with an NVMe disk of two partitions, one of them under LVM."""
    tree = HostTree(tmp_path)
    tree.write(f"{NVME}/nvme0n1p1/partition", "1\n")
    tree.write(f"{NVME}/nvme0n1p2/partition", "2\n")
    tree.link("sys/block/nvme0n1", f"../../{NVME}")
    dm = "sys/devices/virtual/block/dm-0"
    tree.write(f"{dm}/dm/name", "vg0-models\n")
    tree.write(f"{dm}/dm/uuid", "LVM-abcdef\n")
    tree.link(f"{dm}/slaves/nvme0n1p2", f"../../../../../../{NVME}/nvme0n1p2")
    tree.link("sys/block/dm-0", f"../../{dm}")
    for number, path in (
        ("259:0", NVME),
        ("259:1", f"{NVME}/nvme0n1p1"),
        ("259:2", f"{NVME}/nvme0n1p2"),
        ("253:0", dm),
    ):
        tree.link(f"sys/dev/block/{number}", f"../../../{path}")
    for name in ("nvme0n1p1", "nvme0n1p2"):
        tree.link(f"sys/class/block/{name}", f"../../../{NVME}/{name}")
    return tree


HOST = """\
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw
30 22 253:0 / /models rw - xfs /dev/mapper/vg0-models rw
31 22 0:40 / /scratch rw - btrfs /dev/nvme0n1p2 rw
32 22 0:41 / /mnt/nfs rw - nfs4 filer:/export/data rw
33 22 0:42 / /mnt/share rw - cifs //bob:hunter2@filer/share rw
34 22 0:43 / /dev/shm rw - tmpfs tmpfs rw
35 22 0:44 / /mnt/s3 rw - fuse.s3fs s3fs rw
36 22 253:0 /sub\\040folder /srv/with\\040space rw - xfs /dev/mapper/vg0-models rw
37 22 0:45 / /var/merged rw - overlay overlay rw,lowerdir=/models/lower,upperdir=/models/up
38 22 0:46 / /var/nested rw - overlay overlay rw,lowerdir=/var/merged/x:/y,workdir=/w
"""


def place(tree: HostTree, path: bytes) -> Backing:
    mounts = parse_mountinfo(HOST.encode())
    mount = mount_of(path, mounts)
    assert mount is not None
    return backing_of(mount, mounts, BlockDevices(tree.captured))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"/etc/passwd", Backing("ext4", "nvme0n1", ("nvme0n1",))),
        (b"/models/q.gguf", Backing("xfs", "nvme0n1", ("dm-0", "nvme0n1"))),
        (b"/srv/with space/x", Backing("xfs", "nvme0n1", ("dm-0", "nvme0n1"))),
        (b"/scratch/x", Backing("btrfs", "nvme0n1", ("nvme0n1",))),
        (b"/mnt/nfs/x", Backing("nfs4", "nfs4 filer:/export/data", ())),
        (b"/mnt/s3/x", Backing("fuse.s3fs", "fuse.s3fs s3fs", ())),
        (b"/dev/shm/x", Backing("tmpfs", "memory", ())),
        (b"/var/merged/x", Backing("overlay", "nvme0n1", ("dm-0", "nvme0n1"))),
        (b"/var/nested/x", Backing("overlay", "nvme0n1", ("dm-0", "nvme0n1"))),
    ],
)
def test_each_kind_of_mount_leads_to_its_place(
    tree: HostTree, path: bytes, expected: Backing
) -> None:
    assert place(tree, path) == expected


def test_a_share_is_named_without_its_user_and_password(tree: HostTree) -> None:
    assert place(tree, b"/mnt/share/x") == Backing("cifs", "cifs //filer/share", ())


def test_a_folder_name_that_begins_like_a_mount_point_is_not_on_it(tree: HostTree) -> None:
    assert place(tree, b"/modelsX/q.gguf").filesystem == "ext4"


def test_the_newest_of_two_mounts_on_one_point_counts() -> None:
    mounts = parse_mountinfo(
        b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 0 8:2 / / rw - xfs /dev/sda2 rw\n"
    )
    found = mount_of(b"/x", mounts)
    assert found is not None
    assert found.id == 2


def test_an_overlay_seen_from_inside_says_that_its_disk_is_out_of_sight(tree: HostTree) -> None:
    inside = parse_mountinfo(
        b"9 8 0:99 / / rw - overlay overlay rw,lowerdir=/var/lib/docker/l/A,upperdir=/var/lib/u\n"
    )
    found = backing_of(inside[0], inside, BlockDevices(tree.captured))
    assert found == Backing("overlay", "overlay; its disk is not visible from here", ())


def test_overlays_that_contain_each_other_end(tree: HostTree) -> None:
    mounts = parse_mountinfo(
        b"1 0 0:1 / /a rw - overlay o rw,upperdir=/b/x\n"
        b"2 0 0:2 / /b rw - overlay o rw,upperdir=/a/x\n"
    )
    assert backing_of(mounts[0], mounts, BlockDevices(tree.captured)).disks == ()


@given(st.binary(max_size=300))
def test_garbage_in_mountinfo_is_left_out(raw: bytes) -> None:
    for mount in parse_mountinfo(raw):
        assert mount.filesystem.isprintable()
