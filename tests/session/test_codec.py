"""What a recording gives back is what was put in, value by value."""

from __future__ import annotations

import math
import zlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bottletop.model import NOT_READ, Absent, Kind, Metric, Row, Sample, State, Table, Value
from bottletop.session.codec import Block, Damaged, Layout
from bottletop.session.decode import Decoder, unpack_tail
from bottletop.session.encode import Encoder, pack_tail
from bottletop.session.events import Arrived
from bottletop.session.strings import Interner, StoredTexts, readable
from bottletop.tables import TABLES, Core, Gpu, GpuUtilSample, Process

Words = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=12).map(
    lambda word: readable(word)
)
Reasons = st.sampled_from(("", "Not Supported", "permission denied"))
Absences = st.builds(
    Absent,
    st.sampled_from(list(State)),
    Reasons,
    st.one_of(st.none(), st.integers(-(2**70), 2**70), Words, st.floats(-1e300, 1e300)),
)


def texts_of(intern: Interner) -> StoredTexts:
    return StoredTexts(lambda number: dict(intern.new).get(number))


def through_block(table: type[Table], arrived: list[Arrived]) -> list[Arrived]:
    intern = Interner()
    data = Encoder(table, intern).block(arrived)
    return Decoder(Layout.declared(table), texts_of(intern)).block(data)


def through_tail(table: type[Table], arrived: Arrived) -> Arrived:
    intern = Interner()
    data = pack_tail([Encoder(table, intern).tail(arrived)], [])
    (packed,) = unpack_tail(data).samples
    return Decoder(Layout.declared(table), texts_of(intern)).tail(packed)


def sample_of(rows: list[Row], table: type[Table], t_ns: int = 10**12) -> Sample:
    return Sample("test", table, t_ns, 1_000_000, tuple(rows))


def same(left: Value, right: Value) -> bool:
    """Equal and of one type, so that 1 and 1.0 and True are told apart."""
    return left == right and type(left) is type(right)


def any_value(quantum: float, text: bool) -> st.SearchStrategy[Value]:
    """What `Table.row` may put into such a column, whatever the source said."""
    if text:
        return st.one_of(Words, Absences, st.just(NOT_READ))
    numbers: st.SearchStrategy[Value] = st.one_of(
        st.integers(-(2**63), 2**64),
        st.integers(0, 1000),
        st.floats(-1e15, 1e15, allow_nan=False),
    )
    return st.one_of(numbers, numbers, Absences, st.just(NOT_READ), Words)


@st.composite
def tables_of_samples(draw: st.DrawFn) -> tuple[type[Table], list[Arrived]]:
    table = draw(st.sampled_from(TABLES))
    keys = draw(st.lists(st.sampled_from(("a", "b", "c")), min_size=0, max_size=5))
    arrived = []
    for number in range(draw(st.integers(1, 4))):
        rows = []
        for key in keys[: draw(st.integers(0, len(keys)))]:
            cells = {
                metric: draw(any_value(metric.quantum, metric.kind is Kind.TEXT))
                for metric in draw(st.lists(st.sampled_from(table.columns), max_size=6))
            }
            rows.append(table.row(key, 10**12 + draw(st.integers(-(10**9), 10**9)), cells))
        arrived.append(Arrived(number * 3 + 1, sample_of(rows, table, 10**12 + number)))
    return table, arrived


@settings(max_examples=150, deadline=None)
@given(tables_of_samples())
def test_samples_of_any_table_come_back_from_a_block(case: tuple[type[Table], list[Arrived]]):
    table, arrived = case
    assert through_block(table, arrived) == arrived


@settings(max_examples=150, deadline=None)
@given(tables_of_samples())
def test_samples_of_any_table_come_back_from_the_tail(case: tuple[type[Table], list[Arrived]]):
    table, arrived = case
    assert [through_tail(table, one) for one in arrived] == arrived


NUMBER_METRICS = {
    metric.quantum: metric
    for table in TABLES
    for metric in table.columns
    if metric.kind is not Kind.TEXT
}
"""One metric for each quantum that any has."""


@pytest.mark.parametrize("metric", NUMBER_METRICS.values(), ids=lambda metric: metric.id)
@settings(max_examples=200, deadline=None)
@given(values=st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=8))
def test_a_quantised_reading_comes_back_as_the_very_same_number(
    metric: Metric, values: list[float]
):
    """Bit for bit and type for type: the rules of a replay see what the live ones saw."""
    rows = [metric.table.row("k", 10**12, {metric: value}) for value in values]
    arrived = [
        Arrived(at + 1, sample_of([row], metric.table, 10**12 + at)) for at, row in enumerate(rows)
    ]
    for back in (
        through_block(metric.table, arrived),
        [through_tail(metric.table, a) for a in arrived],
    ):
        for one, row in zip(back, rows, strict=True):
            assert same(one.sample.rows[0].values[metric.index], row.values[metric.index])


def test_unquantised_numbers_of_hand_made_rows_come_back_too():
    odd: list[Value] = [0.1 + 0.2, 1, 2.5, True, -7, 10**25, "word", 1e-300]
    position = Core.freq_mhz.index
    rows = []
    for value in odd:
        cells: list[Value] = [NOT_READ] * len(Core.columns)
        cells[position] = value
        rows.append(Row("cpu0", 10**12, tuple(cells)))
    arrived = [Arrived(at + 1, sample_of([row], Core)) for at, row in enumerate(rows)]
    values = [one.sample.rows[0].values[position] for one in through_block(Core, arrived)]
    assert all(map(same, values, odd))
    for one, value in zip(arrived, odd, strict=True):
        assert same(through_tail(Core, one).sample.rows[0].values[position], value)


def test_truth_values_of_hand_made_rows_count_as_numbers():
    position = Core.busy_ns.index
    rows = []
    for value in (True, 10**7, False, 3):
        cells: list[Value] = [NOT_READ] * len(Core.columns)
        cells[position] = value
        rows.append(Row("cpu0", 10**12, tuple(cells)))
    arrived = [Arrived(at + 1, sample_of([row], Core)) for at, row in enumerate(rows)]
    assert through_block(Core, arrived) == arrived


def test_numbers_at_the_edge_of_64_bits_come_back_beside_small_ones():
    column = [0, 2**64 - 1, -(2**63), 5]
    rows = [Gpu.row("g", 10**12, {Gpu.energy_mj: value}) for value in column]
    arrived = [Arrived(at + 1, sample_of([row], Gpu)) for at, row in enumerate(rows)]
    assert through_block(Gpu, arrived) == arrived


def test_a_number_that_is_not_finite_reads_as_implausible():
    cells: list[Value] = [NOT_READ] * len(GpuUtilSample.columns)
    for bad in (math.nan, math.inf, -math.inf):
        cells[0] = bad
        arrived = Arrived(1, sample_of([Row("g", 10**12, tuple(cells))], GpuUtilSample))
        for back in (
            through_block(GpuUtilSample, [arrived])[0],
            through_tail(GpuUtilSample, arrived),
        ):
            value = back.sample.rows[0].values[0]
            assert isinstance(value, Absent)
            assert value.state is State.IMPLAUSIBLE


def test_rows_of_one_key_keep_their_order_within_a_sample():
    """Driver buffers give many rows an entity a read, each with a stamp of its own."""
    rows = [
        GpuUtilSample.row(key, 10**12 - 10**8 * back, {GpuUtilSample.util_pct: back})
        for key in ("GPU-a", "GPU-b", "GPU-a")
        for back in (3, 2, 1)
    ]
    arrived = [Arrived(1, sample_of(rows, GpuUtilSample)), Arrived(2, sample_of([], GpuUtilSample))]
    assert through_block(GpuUtilSample, arrived) == arrived


def test_a_column_that_the_file_does_not_have_is_not_read():
    row = Process.row("1@2", 10**12, {Process.pid: 1, Process.process: "python", Process.role: "m"})
    arrived = [Arrived(1, sample_of([row], Process))]
    intern = Interner()
    encoder = Encoder(Process, intern)
    declared = Layout.declared(Process)
    positions = tuple(-1 if at == Process.role.index else at for at in declared.positions)
    decoder = Decoder(declared._replace(positions=positions), texts_of(intern))
    expected = tuple(
        NOT_READ if at == Process.role.index else value for at, value in enumerate(row.values)
    )
    for back in (
        decoder.block(encoder.block(arrived))[0],
        decoder.tail(unpack_tail(pack_tail([encoder.tail(arrived[0])], [])).samples[0]),
    ):
        assert back.sample.rows[0].values == expected


def test_a_recorded_quantum_wins_over_the_declared_one():
    """A later version may know a source's resolution better; old files keep their own."""
    rows = [Gpu.row("g", 10**12, {Gpu.power_w: watts}) for watts in (100.1, 350.7, 349.9)]
    arrived = [Arrived(at + 1, sample_of([row], Gpu)) for at, row in enumerate(rows)]
    intern = Interner()
    data = Encoder(Gpu, intern).block(arrived)
    quanta = list(Layout.declared(Gpu).quanta)
    quanta[Gpu.power_w.index] = 0.2
    layout = Layout.declared(Gpu)._replace(quanta=tuple(quanta))
    back = Decoder(layout, texts_of(intern)).block(data)
    watts = [one.sample.rows[0].values[Gpu.power_w.index] for one in back]
    assert watts == [1001 * 0.2, 3507 * 0.2, 3499 * 0.2]


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_end_in_damaged(data: bytes):
    decoder = Decoder(Layout.declared(Gpu), StoredTexts(lambda number: "text"))
    with pytest.raises(Damaged):
        decoder.block(data)
    with pytest.raises(Damaged):
        decoder.block(zlib.compress(data + b"\xc1"))


def test_counts_are_checked_before_anything_is_allocated():
    encode = msgspec.msgpack.encode
    decoder = Decoder(Layout.declared(Gpu), StoredTexts(lambda number: "text"))
    columns: list[object] = [None] * len(Gpu.columns)
    bombs = [
        [10**9, 1, 1, 1, 1, [[]], 0, [], []],
        [4096, [0, *[1] * 4096], 1, 1, 1, [[0] * 150_000], 0, [], [[1, 0, columns]]],
        [1, 1, 1, 1, 1, [[5]], 0, [], [[1, 0, columns]]],
        [1, 1, 1, 1, 1, [[-1]], 0, [], [[1, 0, columns]]],
        [1, 1, 1 << 63, 1, 1, [[]], 0, [], []],
        [1, 1, 1, 1, 1, [[0]], 0, [], [[1, 1 << 62, columns]]],
        [1, 1, 1, 1, 1, [[0]], 0, [], [[1, 0, [[3, 10**6, 0, 0], *columns[1:]]]]],
        [1, 1, 1, 1, 1, [[0]], 0, [], [[1, 0, [[9, 1], *columns[1:]]]]],
        [1, 1, 1, 1, 1, [[0]], 0, [], [[1, 0, []]]],
    ]
    for bomb in bombs:
        with pytest.raises(Damaged):
            decoder.block(zlib.compress(encode(bomb)))
    msgspec.msgpack.decode(encode(bombs[0]), type=Block)  # the shape is right, the counts are not


def test_a_zip_bomb_is_not_inflated():
    decoder = Decoder(Layout.declared(Gpu), StoredTexts(lambda number: "text"))
    bomb = zlib.compress(b"\x90" * (64 * 1024 * 1024), 9)
    assert len(bomb) < 100_000
    with pytest.raises(Damaged, match="larger than"):
        decoder.block(bomb)


def test_lone_surrogates_and_endless_texts_do_not_stop_a_recording():
    row = Process.row("1@2", 10**12, {Process.process: "bad\udcff", Process.command: "x" * 200_000})
    arrived = [Arrived(1, sample_of([row], Process))]
    for back in (through_block(Process, arrived)[0], through_tail(Process, arrived[0])):
        values = back.sample.rows[0].values
        assert values[Process.process.index] == "bad?"
        command = values[Process.command.index]
        assert isinstance(command, str)
        assert len(command) == 65_536


def test_an_unknown_state_of_a_later_version_reads_as_not_read():
    columns = [[{"state": "asleep"}], *[[0]] * len(Gpu.columns)]
    packed = msgspec.msgpack.encode([[[1, 1, 1, 1, 1, 1, 1, [], columns]], []])
    (sample,) = unpack_tail(packed).samples
    decoder = Decoder(Layout.declared(Gpu), StoredTexts(lambda number: "text"))
    value = decoder.tail(sample).sample.rows[0].values[0]
    assert isinstance(value, Absent)
    assert value.state is State.NOT_READ
