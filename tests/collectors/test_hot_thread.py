"""The few busiest threads are read through descriptors that stay open, and forgotten when cold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hosttree import HostTree, context_for, of_table

from bottletop.collectors.hot_thread import HotThreadCollector
from bottletop.tables.process import HotThread

if TYPE_CHECKING:
    from pathlib import Path


def test_hot_threads_are_read_until_they_are_no_longer_hot(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    process = tree.process(50, threads=(51, 52))
    tree.thread(process, 51, cpu_ns=3_000_000, wait_ns=9_000_000, state="R")
    context = context_for(tree.live)
    collector = HotThreadCollector(context)
    assert collector.read() == ()
    context.exchange.hot_threads = ((process, 51), (process, 52))
    rows = of_table(collector.read(), HotThread)
    assert set(rows) == {process.thread_key(51), process.thread_key(52)}
    assert rows[process.thread_key(51)] == {"cpu_ns": 3_000_000, "wait_ns": 9_000_000, "state": 0}
    tree.thread(process, 51, cpu_ns=4_000_000, wait_ns=9_000_000, state="D")
    moved = of_table(collector.read(), HotThread)[process.thread_key(51)]
    assert moved == {"cpu_ns": 4_000_000, "wait_ns": 9_000_000, "state": 2}
    context.exchange.hot_threads = ((process, 52),)
    assert set(of_table(collector.read(), HotThread)) == {process.thread_key(52)}
    assert len(collector._files) == 2
    collector.close()
    assert len(collector._files) == 0


def test_an_empty_sample_ends_the_threads_when_none_is_hot(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    process = tree.process(50)
    context = context_for(tree.live)
    collector = HotThreadCollector(context)
    context.exchange.hot_threads = ((process, 50),)
    collector.read()
    context.exchange.hot_threads = ()
    (sample,) = collector.read()
    assert sample.rows == ()
    assert collector.read() == ()


def test_a_hot_thread_that_ended_is_left_out(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    process = tree.process(50)
    context = context_for(tree.live)
    context.exchange.hot_threads = ((process, 99), (process, 50))
    rows = of_table(HotThreadCollector(context).read(), HotThread)
    assert set(rows) == {process.thread_key(50)}
