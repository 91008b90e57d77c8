"""What the kernel refuses is denied with the command that opens it, and the rest is still read."""

from __future__ import annotations

from typing import Any

from hosttree import context_for, of_table
from hosttree.unprivileged import closed_process, unprivileged

from bottletop.attach import find_target, identify
from bottletop.collectors.process import ProcessCollector
from bottletop.collectors.target import TargetCollector
from bottletop.model import Absent, State
from bottletop.roots import Roots
from bottletop.tables.process import Process, TargetFile, TargetInfo, Thread


def plain(value: object) -> Any:
    return [value.state.value, value.reason] if isinstance(value, Absent) else value


def test_a_process_of_another_user_shows_cpu_and_hides_io_with_the_unlocking_command() -> None:
    with closed_process() as pid:

        def work() -> dict[str, Any]:
            roots = Roots()
            target = find_target(roots, identify(roots, pid))
            samples = ProcessCollector(context_for(roots, target)).read()
            (row,) = of_table(samples, Process).values()
            threads = of_table(samples, Thread)
            return {
                "row": {name: plain(value) for name, value in row.items()},
                "threads": len(threads),
                "notes": target.notes,
            }

        seen = unprivileged(work)
    for column in ("read_bytes", "write_bytes", "read_chars"):
        state, reason = seen["row"][column]
        assert state == State.DENIED.value
        assert f"sudo bottletop attach {pid}" in reason
    assert seen["row"]["cpu_user_ns"] + seen["row"]["cpu_system_ns"] > 0
    assert seen["row"]["rss_bytes"] > 0
    assert seen["threads"] == 1
    assert any(f"sudo bottletop attach {pid}" in note for note in seen["notes"])


def test_facts_that_need_open_files_are_denied_and_never_said_to_be_none() -> None:
    with closed_process() as pid:

        def work() -> dict[str, Any]:
            roots = Roots()
            target = find_target(roots, identify(roots, pid))
            context = context_for(roots, target)
            samples = TargetCollector(context).read()
            (row,) = of_table(samples, TargetInfo).values()
            return {
                "row": {name: plain(value) for name, value in row.items()},
                "files": len(of_table(samples, TargetFile)),
                "disks": plain(context.exchange.target_disks),
                "devices": [plain(value) for value in context.exchange.device_files.values()],
            }

        seen = unprivileged(work)
    for column in ("gpus", "sockets", "visible_devices"):
        assert seen["row"][column][0] == State.DENIED.value, column
    assert seen["disks"][0] == State.DENIED.value
    assert [value[0] for value in seen["devices"]] == [State.DENIED.value]
    assert seen["files"] == 0
