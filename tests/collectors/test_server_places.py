"""Which listening sockets of a target may be asked for a metric page."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hosttree import HostTree

from bottletop.collectors.server_places import choose, hinted_ports

if TYPE_CHECKING:
    from pathlib import Path


def host(tmp_path: Path, *, own_namespace: bool = False) -> HostTree:
    tree = HostTree(tmp_path)
    for pid, namespace in (("self", 1), ("50", 2 if own_namespace else 1)):
        tree.write(f"proc/{pid}/ns/.keep", "")
        os.symlink(f"net:[{namespace}]", tmp_path / f"proc/{pid}/ns/net")
    return tree


def asked(tree: HostTree, *addresses: str, hinted: frozenset[int] = frozenset()) -> list[str]:
    return [str(one.place) for one in choose(tree.captured, 50, addresses, hinted).candidates]


def test_the_port_of_the_command_line_comes_first_then_usual_ones(tmp_path: Path) -> None:
    tree = host(tmp_path)
    addresses = ("0.0.0.0:4321", "127.0.0.1:8002", "0.0.0.0:7070")
    assert asked(tree, *addresses, hinted=frozenset({7070})) == [
        "127.0.0.1:7070",
        "127.0.0.1:8002",
        "127.0.0.1:4321",
    ]


def test_ports_of_other_protocols_and_random_ones_are_left_alone(tmp_path: Path) -> None:
    tree = host(tmp_path)
    places = choose(
        tree.captured, 50, ["0.0.0.0:29500", "127.0.0.1:40123", "[::]:6379"], frozenset()
    )
    assert places.candidates == ()
    assert [line.rpartition(": ")[2] for line in places.left_alone] == [
        "the port of another protocol",
        "a port that the kernel handed out, which no option names",
        "the port of another protocol",
    ]


def test_a_random_port_is_asked_where_an_option_names_it(tmp_path: Path) -> None:
    assert asked(host(tmp_path), "127.0.0.1:40123", hinted=frozenset({40123})) == [
        "127.0.0.1:40123"
    ]


def test_an_address_of_both_families_is_asked_once_each(tmp_path: Path) -> None:
    assert asked(host(tmp_path), "[::]:8000", "0.0.0.0:8000") == ["127.0.0.1:8000", "[::1]:8000"]


def test_a_container_is_asked_at_its_own_address(tmp_path: Path) -> None:
    tree = host(tmp_path, own_namespace=True)
    tree.write(
        "proc/50/net/fib_trie",
        "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n"
        "     |-- 172.17.0.2\n        /32 host LOCAL\n     |-- 172.17.0.1\n        /24 link\n",
    )
    assert asked(tree, "0.0.0.0:8000") == ["172.17.0.2:8000"]
    places = choose(tree.captured, 50, ["127.0.0.1:8000"], frozenset())
    assert places.candidates == ()
    assert "another network namespace" in places.left_alone[0]


def test_a_unix_socket_is_reached_through_the_root_of_its_process(tmp_path: Path) -> None:
    tree = host(tmp_path)
    (candidate,) = choose(tree.captured, 50, ["unix:/run/vllm.sock"], frozenset()).candidates
    assert candidate.place.unix_path == f"{tree.captured.proc}/50/root/run/vllm.sock"
    assert choose(tree.captured, 50, ["unix:@abstract"], frozenset()).candidates == ()


def test_options_that_name_a_port_are_found(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/50/cmdline", "vllm\0serve\0--port\0008001\0--api-key\0sk-1234\0")
    tree.write("proc/51/cmdline", "x\0--metrics-port=9001\0--prometheus-port\0abc\0-port\x00702\0")
    assert hinted_ports(tree.captured, (50, 51, 52)) == {8001, 9001, 702}
