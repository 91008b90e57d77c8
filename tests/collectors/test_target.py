"""Slow facts of the target: which files lie on which disk, which sockets, GPUs and container."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest
from hosttree import HostTree, context_for, of_table, only, target_of

from bottletop.collectors import target as target_module
from bottletop.collectors.base import Context
from bottletop.collectors.target import TargetCollector
from bottletop.model import Absent, ProcessId, State
from bottletop.tables.process import TargetFile, TargetInfo

if TYPE_CHECKING:
    from pathlib import Path

    from bottletop.model import Value

RDONLY, WRONLY = "0100000", "0100001"
MOUNTS = """\
22 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw
30 22 8:1 / /data rw - xfs /dev/sda1 rw
40 22 0:40 / /mnt/nfs rw - nfs4 filer:/data rw
"""


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    tree = HostTree(tmp_path)
    tree.write("proc/diskstats", "259 0 nvme0n1 1\n259 1 nvme0n1p1 1\n8 0 sda 1\n8 1 sda1 1\n")
    tree.write("proc/1/mountinfo", MOUNTS)
    return tree


@pytest.fixture
def process(tree: HostTree) -> ProcessId:
    process = tree.process(50)
    tree.write("proc/50/mountinfo", MOUNTS)
    tree.write("proc/50/cgroup", "0::/system.slice/docker-" + "ab" * 32 + ".scope\n")
    return process


def info(mount: int, flags: str = RDONLY) -> str:
    return f"pos:\t0\nflags:\t{flags}\nmnt_id:\t{mount}\nino:\t5\n"


def facts(tree: HostTree, *processes: ProcessId) -> tuple[Context, dict[str, Value]]:
    context = context_for(tree.captured, target_of(*processes))
    return context, only(of_table(TargetCollector(context).read(), TargetInfo))


def files(tree: HostTree, *processes: ProcessId) -> tuple[Context, dict[str, dict[str, Value]]]:
    context = context_for(tree.captured, target_of(*processes))
    return context, of_table(TargetCollector(context).read(), TargetFile)


def state(value: Value) -> State:
    assert isinstance(value, Absent)
    return value.state


def test_open_and_mapped_files_are_named_with_the_disk_behind_them(
    tree: HostTree, process: ProcessId
) -> None:
    tree.open_file(50, 3, "/models/q.gguf", info=info(22))
    tree.open_file(50, 4, "/data/train.parquet", info=info(30))
    tree.open_file(50, 5, "/mnt/nfs/big.safetensors", info=info(40))
    tree.write(
        "proc/50/maps",
        "7f00-7f10 r--s 00000000 103:01 77                         /models/q.gguf\n"
        "7f10-7f20 r--p 00000000 08:01 78                          /data/words.bin\n"
        "7f20-7f30 r-xp 00000000 103:01 79                         /usr/lib/libc.so.6\n"
        "7f30-7f40 rw-p 00000000 00:00 0                           [heap]\n",
    )
    context, rows = files(tree, process)
    assert {
        path: (row["disk"], row["filesystem"], row["mapped"]) for path, row in rows.items()
    } == {
        "/models/q.gguf": ("nvme0n1", "ext4", 1),
        "/data/train.parquet": ("sda", "xfs", 0),
        "/mnt/nfs/big.safetensors": ("nfs4 filer:/data", "nfs4", 0),
        "/data/words.bin": ("sda", "xfs", 1),
    }
    assert context.exchange.target_disks == frozenset({"nvme0n1", "sda"})


def test_code_logs_and_deleted_files_are_no_data(tree: HostTree, process: ProcessId) -> None:
    for descriptor, path in enumerate(
        (
            "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
            "/venv/lib/torch/lib/libtorch.so",
            "/srv/app/serve.py",
            "/var/log/server.log",
            "/tmp/shard.bin (deleted)",
            "/memfd:probe",
            "pipe:[99]",
            "anon_inode:[eventpoll]",
            "/dev/null",
        )
    ):
        tree.open_file(50, descriptor, path, info=info(22))
    tree.open_file(50, 20, "/data/out.bin", info=info(30, WRONLY))
    context, rows = files(tree, process)
    assert rows == {}
    assert context.exchange.target_disks == frozenset()


def test_live_sizes_decide_about_files_of_unknown_kind(tmp_path: Path) -> None:
    tree = HostTree(tmp_path / "host")
    process = tree.process(50)
    large, small = tmp_path / "weights", tmp_path / "notes"
    large.write_bytes(b"\0" * (2 << 20))
    small.write_bytes(b"\0" * 100)
    named = tmp_path / "vocab.json.model"
    named.write_bytes(b"\0" * 100)
    for descriptor, file in enumerate((large, small, named)):
        tree.open_file(50, descriptor, str(file), info=info(22))
    context = context_for(tree.live, target_of(process))
    rows = of_table(TargetCollector(context).read(), TargetFile)
    assert set(rows) == {str(large), str(named)}
    assert rows[str(large)]["size_bytes"] == 2 << 20


def test_hostile_file_names_become_plain_keys(tree: HostTree, process: ProcessId) -> None:
    tree.open_file(50, 3, b"/models/\x1b[2J\xff evil.gguf", info=info(22))
    _, rows = files(tree, process)
    (key,) = rows
    assert key.isprintable()
    assert key.endswith("evil.gguf")


def test_a_disk_is_remembered_while_its_small_files_come_and_go(
    tree: HostTree, process: ProcessId
) -> None:
    tree.open_file(50, 3, "/data/0001.jpg", info=info(30))
    context = context_for(tree.captured, target_of(process))
    collector = TargetCollector(context)
    collector.read()
    tree.remove("proc/50/fd/3")
    looks = 0
    while looks < target_module.REMEMBER_DISKS_READS:
        assert context.exchange.target_disks == frozenset({"sda"})
        looks += bool(collector.read())
    assert context.exchange.target_disks == frozenset()


def test_once_a_target_has_settled_every_second_read_rests(
    tree: HostTree, process: ProcessId
) -> None:
    collector = TargetCollector(context_for(tree.captured, target_of(process)))
    looked = [bool(collector.read()) for _ in range(10)]
    assert looked == [True] * 5 + [False, True, False, True, False]


def test_the_server_above_the_tree_listens_for_it(tree: HostTree, process: ProcessId) -> None:
    tree.process(40)
    tree.link("proc/40/fd/3", "socket:[900]")
    header = "  sl local rem st tx rx tr tm retr uid timeout inode\n"
    tree.write(
        "proc/40/net/tcp",
        header + " 0: 0100007F:1F40 00000000:0000 0A 0:0 0:0 0 0 0 900 1 0\n",
    )
    front = ProcessId(40, 400)
    target = dataclasses.replace(target_of(process), front=front)
    context = context_for(tree.captured, target)
    TargetCollector(context).read()
    assert context.exchange.listening == ("127.0.0.1:8000",)
    alone = context_for(tree.captured, target_of(process))
    TargetCollector(alone).read()
    assert alone.exchange.listening == ()


def test_sockets_of_the_whole_tree_are_listed(tree: HostTree, process: ProcessId) -> None:
    worker = tree.process(51, parent=50)
    tree.open_file(50, 3, "socket:[11]")
    tree.open_file(51, 3, "socket:[12]")
    row = "0: {} 00000000:0000 0A 0:0 0:0 0 0 0 {} 1 0 100 0 0 10 0\n"
    tree.write(
        "proc/50/net/tcp",
        "head\n" + row.format("0100007F:1F40", 11) + row.format("00000000:1F41", 12),
    )
    _, found = facts(tree, process, worker)
    assert found["sockets"] == "127.0.0.1:8000, 0.0.0.0:8001"


def test_a_tree_that_listens_on_nothing_says_so(tree: HostTree, process: ProcessId) -> None:
    tree.open_file(50, 3, "/dev/null")
    _, found = facts(tree, process)
    assert state(found["sockets"]) is State.NOT_APPLICABLE


def test_container_and_cgroup_are_named(tree: HostTree, process: ProcessId) -> None:
    _, found = facts(tree, process)
    assert found["container"] == "docker abababababab"
    assert found["cgroup"] == "/system.slice/docker-" + "ab" * 32 + ".scope"


def test_device_files_lead_to_uuids_through_the_drivers_own_files(
    tree: HostTree, process: ProcessId
) -> None:
    worker = tree.process(51, parent=50)
    for descriptor, device in enumerate(("nvidia3", "nvidia3", "nvidiactl", "nvidia-uvm")):
        tree.open_file(51, descriptor, f"/dev/{device}")
    (tree.folder / "proc/50/fd").mkdir()
    context, found = facts(tree, process, worker)
    assert state(found["gpus"]) is State.UNSUPPORTED
    assert "nvidia3" in str(found["gpus"])
    for minor, uuid in ((0, "GPU-aaaa"), (3, "GPU-bbbb")):
        tree.write(
            f"proc/driver/nvidia/gpus/0000:0{minor}:00.0/information",
            f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n",
        )
    context, found = facts(tree, process, worker)
    assert found["gpus"] == "GPU-bbbb"
    assert context.exchange.device_files == {process: 0, worker: 2}


def test_a_uuid_that_the_driver_does_not_know_yet_is_not_shown(
    tree: HostTree, process: ProcessId
) -> None:
    tree.open_file(50, 3, "/dev/nvidia0")
    tree.write(
        "proc/driver/nvidia/gpus/0000:01:00.0/information",
        "GPU UUID: \t GPU-????????-????\nDevice Minor: \t 0\n",
    )
    _, found = facts(tree, process)
    assert state(found["gpus"]) is State.UNSUPPORTED


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (b"A=1\0CUDA_VISIBLE_DEVICES=0,1\0OPENAI_API_KEY=hunter2\0", "0,1"),
        (b"CUDA_VISIBLE_DEVICES=GPU-1a2b\0", "GPU-1a2b"),
        (b"CUDA_VISIBLE_DEVICES=\0", "none"),
        (b"X_CUDA_VISIBLE_DEVICES=7\0", None),
        (b"CUDA_VISIBLE_DEVICES=$(rm)\x1b[2J\0", None),
        (b"", None),
    ],
)
def test_only_the_visible_devices_are_taken_from_the_environment(
    tree: HostTree, process: ProcessId, environ: bytes, expected: str | None
) -> None:
    tree.write("proc/50/environ", environ)
    _, found = facts(tree, process)
    if expected is None:
        assert state(found["visible_devices"]) is State.NOT_APPLICABLE
    else:
        assert found["visible_devices"] == expected
    assert "hunter2" not in repr(found)


def test_processes_without_a_mount_table_say_that_no_mount_is_known(tree: HostTree) -> None:
    process = tree.process(60)
    tree.open_file(60, 3, "/models/q.gguf")
    _, rows = files(tree, process)
    assert state(rows["/models/q.gguf"]["disk"]) is State.UNSUPPORTED
    assert state(rows["/models/q.gguf"]["size_bytes"]) is State.UNSUPPORTED


def test_what_the_stage_collector_and_the_tree_say_is_passed_on(
    tree: HostTree, process: ProcessId
) -> None:
    context = context_for(tree.captured, target_of(process))
    context.exchange.probe = "probe"
    context.exchange.thread_note = "5000 threads; 2048 are read"
    row = only(of_table(TargetCollector(context).read(), TargetInfo))
    assert (row["probe"], row["notes"]) == ("probe", "5000 threads; 2048 are read")


def test_detaching_forgets_what_was_told_to_others(tree: HostTree, process: ProcessId) -> None:
    tree.open_file(50, 3, "/data/a.bin", info=info(30))
    current = target_of(process)
    target = [current]
    context = context_for(tree.captured)
    context = Context(context.clock, tree.captured, target=lambda: target[0] if target else None)
    collector = TargetCollector(context)
    collector.read()
    assert context.exchange.target_disks == frozenset({"sda"})
    target.clear()
    assert collector.read() == ()
    assert state(context.exchange.target_disks) is State.NOT_READ  # type: ignore[arg-type]


def test_many_descriptors_are_bounded(
    tree: HostTree, process: ProcessId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bottletop.collectors.target_files.MAX_LINKS", 3)
    for descriptor in range(10):
        tree.open_file(50, descriptor, f"/data/{descriptor}.bin", info=info(30))
    _, rows = files(tree, process)
    assert len(rows) == 3
    assert len(os.listdir(tree.folder / "proc/50/fd")) == 10
