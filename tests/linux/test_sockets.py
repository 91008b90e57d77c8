"""Listening addresses are those of the target's own sockets, in its own network namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hosttree import HostTree

from bottletop.linux.sockets import listening

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retr uid timeout inode\n"


def row(local: str, state: str, inode: int) -> str:
    return (
        f"   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000"
        f"  1000        0 {inode} 1 0000000000000000 100 0 0 10 0\n"
    )


def test_only_listening_sockets_that_the_target_holds_are_named(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write(
        "proc/5/net/tcp",
        HEAD
        + row("0100007F:1F40", "0A", 11)
        + row("00000000:0050", "0A", 12)
        + row("0100007F:1F41", "01", 13),
    )
    tree.write(
        "proc/5/net/tcp6",
        HEAD
        + row("00000000000000000000000000000000:1F90", "0A", 14)
        + row("B80D01200000000000000000010000FF:0001", "0A", 15),
    )
    tree.write(
        "proc/5/net/unix",
        "Num       RefCount Protocol Flags    Type St Inode Path\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 16 /run/triton.sock\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 18 @abstract name\n"
        "0000000000000000: 00000003 00000000 00000000 0001 03 17 /run/other.sock\n",
    )
    assert listening(tree.captured, 5, {11, 13, 14, 15, 16, 17, 18}) == [
        "127.0.0.1:8000",
        "[::]:8080",
        "[2001:db8::ff00:1]:1",
        "unix:/run/triton.sock",
        "unix:@abstract name",
    ]


def test_torn_and_hostile_rows_are_left_out(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write(
        "proc/5/net/tcp", HEAD + row("zz:1", "0A", 11) + row("0100007F:XX", "0A", 11) + "   0: 01"
    )
    tree.write("proc/5/net/unix", "Num\n: 2 0 zz 1 1 11 /x\n: 2 0 10000 1 1 11 \x1b[2J/evil\n")
    assert listening(tree.captured, 5, {11}) == ["unix:[2J/evil"]


def test_without_sockets_no_table_is_read(tmp_path: Path) -> None:
    assert listening(HostTree(tmp_path).captured, 5, set()) == []
