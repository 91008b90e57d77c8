"""Probe memory is read exactly when it is true, and does no harm when it is not."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from probelab import WrittenMemory, identify, written, written_here
from probelab.memory import COUNTS, NESTED, START, SUMS, UNDER_WAY

from bottletop.linux.probe_finder import LOOKS_AGAIN, ProbeFinder
from bottletop.linux.probe_memory import (
    BUCKETS,
    CELL_WORDS,
    MAX_CELLS,
    NotAProbe,
    ProbeMemory,
    bucket_edges_ns,
    combined,
    probes_of,
)
from bottletop.model import ProcessId
from bottletop.roots import Roots

if TYPE_CHECKING:
    from collections.abc import Iterator

MS = 1_000_000
ROOTS = Roots()


@pytest.fixture
def memory() -> Iterator[WrittenMemory]:
    with written() as (one,):
        yield one


@contextlib.contextmanager
def opened(memory: WrittenMemory) -> Iterator[ProbeMemory]:
    """The one probe of its process."""
    (probe,) = probes_of(ROOTS, memory.process)
    with contextlib.closing(probe):
        yield probe


def test_cells_of_a_stage_add_up(memory: WrittenMemory) -> None:
    memory.name(0, b"forward")
    memory.name(1, b"decode")
    for number in range(3):
        cell = memory.cell(number, 0)
        memory.passes(cell, 4, 5 * MS)
        memory.passes(cell, 1, 9 * MS)
        cell[NESTED] = 2 * MS
    memory.passes(memory.cell(3, 1), 2, 1 * MS)
    with opened(memory) as probe:
        reading = probe.read(time.monotonic_ns())
    assert (reading.on, reading.errors, reading.rejected) == (True, 0, 0)
    forward, decode = reading.stages
    assert (forward.name, forward.calls, forward.inclusive_ns) == ("forward", 15, 3 * 29 * MS)
    assert forward.self_ns == 3 * 27 * MS
    assert (forward.longest_ns, forward.in_flight, forward.oldest_start_ns) == (9 * MS, 0, None)
    assert (decode.name, decode.calls, decode.self_ns) == ("decode", 2, 2 * MS)


def test_passes_under_way_count_up_to_the_moment_of_reading(memory: WrittenMemory) -> None:
    now_ns = time.monotonic_ns()
    for number, age_ns in enumerate((30 * MS, 70 * MS)):
        memory.cell(number, 0)[START] = now_ns - age_ns
    with opened(memory) as probe:
        (stage,) = probe.read(now_ns).stages
    assert (stage.in_flight, stage.oldest_start_ns) == (2, now_ns - 70 * MS)
    assert (stage.inclusive_ns, stage.occupied_ns) == (0, 100 * MS)


def test_a_shared_cell_gives_the_number_and_the_mean_begin(memory: WrittenMemory) -> None:
    now_ns = time.monotonic_ns()
    shared = memory.shared_cell(0)
    shared[UNDER_WAY] = 3
    shared[START] = sum(now_ns - age_ns for age_ns in (10 * MS, 20 * MS, 60 * MS)) % 2**64
    with opened(memory) as probe:
        (stage,) = probe.read(now_ns).stages
        assert (stage.in_flight, stage.occupied_ns) == (3, 90 * MS)
        assert stage.oldest_start_ns == now_ns - 30 * MS
        # Without the flag the shared cells are not even read.
        memory.words[12] = 0
    with opened(memory) as probe:
        assert probe.read(now_ns).stages == ()


def test_edges_of_the_histogram_are_those_of_the_probe() -> None:
    for spent in (1, 2, 3, 999, 1000, 5_000_000, 123_456_789, 2**38):
        low, high = bucket_edges_ns((spent * spent).bit_length())
        assert low <= spent < high
    assert bucket_edges_ns(BUCKETS - 1)[1] == float("inf")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (0, 0),
        (1, 2),
        (2, 4096),
        (3, 1),
        (4, 12345),
    ],
    ids=["magic", "layout", "size", "another-pid", "earlier-process"],
)
def test_a_header_that_is_not_ours_is_no_probe(
    memory: WrittenMemory, word: int, value: int
) -> None:
    with opened(memory):
        pass
    memory.words[word] = value
    assert probes_of(ROOTS, memory.process) == []


def test_a_memory_of_another_size_is_no_probe() -> None:
    with written(size=1 << 19) as (memory,):
        assert probes_of(ROOTS, memory.process) == []


def test_files_of_another_name_are_no_probe() -> None:
    with written(name="something-else") as (memory,):
        assert probes_of(ROOTS, memory.process) == []


def test_names_cannot_act_on_a_terminal(memory: WrittenMemory) -> None:
    for stage, raw in enumerate((b"\x1b]0;owned\x07", b"\xff\xfe bad \xe2\x80\xae", b"", b"\x00x")):
        memory.name(stage, raw)
        memory.passes(memory.cell(stage, stage), 1, MS)
    with opened(memory) as probe:
        names = [stage.name for stage in probe.read(time.monotonic_ns()).stages]
    assert all(name.isprintable() for name in names)
    assert names == ["]0;owned", "\ufffd\ufffd bad", "?"]  # the last two are both nameless


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (0, 33),
        (0, 2**64 - 1),
        (START, 2**64 - 1),
        (START, 1),
        (NESTED, 2**40),
        (4, 2**60),
        (COUNTS + 5, 2**63),
        (SUMS + 5, 2**63),
    ],
    ids=[
        "no-such-stage",
        "no-stage-at-all",
        "begins-in-the-future",
        "began-before-the-probe",
        "more-nested-than-inside",
        "longest-longer-than-all",
        "too-many-passes",
        "busier-than-the-clock",
    ],
)
def test_what_cannot_be_true_leaves_a_cell_at_its_last_good_reading(
    memory: WrittenMemory, word: int, value: int
) -> None:
    cell = memory.cell(0, 0)
    memory.passes(cell, 10, MS)
    with opened(memory) as probe:
        (good,) = probe.read(time.monotonic_ns()).stages
        before, cell[word] = cell[word], value
        bad = probe.read(time.monotonic_ns())
        assert (bad.rejected, bad.stages) == (1, (good,))
        cell[word] = before
        memory.passes(cell, 1, MS)
        better = probe.read(time.monotonic_ns())
        assert (better.rejected, better.stages[0].calls) == (0, 11)


def test_totals_that_shrink_are_not_believed(memory: WrittenMemory) -> None:
    cell = memory.cell(0, 0)
    memory.passes(cell, 10, MS)
    with opened(memory) as probe:
        probe.read(time.monotonic_ns())
        cell[:] = memoryview(bytes(8 * CELL_WORDS)).cast("Q")
        assert probe.read(time.monotonic_ns()).stages[0].calls == 10


def test_counts_of_cells_and_stages_are_bounded(memory: WrittenMemory) -> None:
    memory.words[10] = memory.words[11] = 2**64 - 1
    memory.passes(memory.cell(MAX_CELLS - 33, 0), 1, MS)
    memory.words[11] = 2**64 - 1
    with opened(memory) as probe:
        assert [stage.calls for stage in probe.read(time.monotonic_ns()).stages] == [1]


def test_memory_cut_short_under_the_reader_is_an_error_and_not_a_crash(
    memory: WrittenMemory,
) -> None:
    memory.passes(memory.cell(0, 0), 1, MS)
    with opened(memory) as probe:
        probe.read(time.monotonic_ns())
        memory.cut(100)
        with pytest.raises(NotAProbe):
            probe.read(time.monotonic_ns())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.integers(0, 2**64 - 1), min_size=CELL_WORDS, max_size=CELL_WORDS))
def test_any_words_in_a_cell_give_a_bounded_answer(memory: WrittenMemory, words: list[int]) -> None:
    cell = memory.cell(0, 0)
    for index, word in enumerate(words):
        cell[index] = word
    with opened(memory) as probe:
        now_ns = time.monotonic_ns()
        for stage in probe.read(now_ns).stages:
            assert 0 <= stage.self_ns <= stage.inclusive_ns <= stage.occupied_ns
            assert stage.occupied_ns <= 10 * (now_ns - memory.created_ns)


def test_probes_of_one_process_add_up_by_name() -> None:
    with written(2) as (one, other), contextlib.ExitStack() as stack:
        one.name(0, b"same")
        one.passes(one.cell(0, 0), 2, MS)
        other.name(0, b"only here")
        other.name(1, b"same")
        other.passes(other.cell(0, 0), 1, MS)
        other.passes(other.cell(1, 1), 3, 2 * MS)
        readings = [
            stack.enter_context(contextlib.closing(probe)).read(time.monotonic_ns())
            for probe in probes_of(ROOTS, one.process)
        ]
        totals = {one.name: (one.calls, one.inclusive_ns) for one in combined(readings)}
    assert totals == {"same": (5, 8 * MS), "only here": (1, MS)}


def test_two_descriptors_of_one_memory_are_one_probe() -> None:
    with written_here() as memory:
        # The mapping holds one descriptor, this is another.
        folder = f"/proc/{memory.process.pid}/fd"
        path = next(
            f"{folder}/{fd}"
            for fd in os.listdir(folder)
            if os.path.exists(f"{folder}/{fd}") and _identity(f"{folder}/{fd}") == memory.identity
        )
        second = os.open(path, os.O_RDONLY)
        probes = probes_of(ROOTS, memory.process)
        for probe in probes:
            probe.close()
        os.close(second)
        assert [probe.identity for probe in probes].count(memory.identity) == 1


def _identity(path: str) -> tuple[int, int]:
    seen = os.stat(path)
    return seen.st_dev, seen.st_ino


def _look(finder: ProbeFinder, process: ProcessId, now_ns: int) -> list[tuple[int, int]]:
    """Identities of what the finder finds."""
    identities = []
    for owner, probe in finder.look([process], now_ns):
        assert owner == process
        identities.append(probe.identity)
        probe.close()
    return identities


def test_the_finder_sees_a_new_probe_at_its_next_listing() -> None:
    finder = ProbeFinder(ROOTS)
    me = identify(os.getpid())
    _look(finder, me, 0)
    # At a number that was free when it listed, so that nothing but a listing can find it.
    with written_here() as memory:
        held = os.open("/dev/null", os.O_RDONLY)
        assert memory.identity in _look(finder, me, 2_000_000_000)
        os.close(held)


def test_the_finder_looks_again_where_a_number_was_given_out_anew() -> None:
    finder = ProbeFinder(ROOTS)
    with written_here(name="dull") as dull:
        me = dull.process
        assert dull.identity not in _look(finder, me, 0)
    with written_here() as memory:  # takes the number that was seen as dull
        calls = len(os.listdir("/proc/self/fd")) // LOOKS_AGAIN + 2
        found = [one for _ in range(calls) for one in _look(finder, me, 1)]
        assert memory.identity in found


def test_the_finder_forgets_processes_and_survives_their_end() -> None:
    finder = ProbeFinder(ROOTS)
    gone = ProcessId(2**22 - 3, 5)
    assert finder.look([gone], 0) == []
    assert finder.look([], 1) == []
    assert not finder.denied
