"""Several files on one clock: one GPU under all its names, at its own pace, nothing made up."""

from __future__ import annotations

from importlab import query, read

from bottletop.importers import join
from bottletop.importers.join import START_NS
from bottletop.model import NS_PER_S, Absent, Row
from bottletop.tables import Gpu, GpuHealth, GpuProcess

CSV = "timestamp, index, utilization.gpu [%], power.draw [W]"
TABLE = (
    "timestamp, index, uuid, pci.bus_id, power.default_limit [W], clocks.max.sm [MHz]",
    "2024/01/01 00:00:00.000, {n}, GPU-{n}, 00000000:0{n}:00.0, 700.00 W, 1980 MHz",
)
DMON = "#Date Time gpu sm pclk rxpci\n#YYYYMMDD HH:MM:SS Idx % MHz MB/s\n"


def line(s: int, gpu: int = 0) -> str:
    return f"2024/01/01 00:{s // 60:02d}:{s % 60:02d}.100, {gpu}, 9{gpu} %, 300.00 W"


def cells(row: Row, *metrics: object) -> list[object]:
    return [row.values[metric.index] for metric in metrics]  # type: ignore[attr-defined]


def test_a_gpu_is_one_under_index_address_and_uuid() -> None:
    series = read(query([line(s, gpu) for s in range(5) for gpu in (0, 1)], CSV))
    facts = read(query([TABLE[1].format(n=n) for n in (0, 1)], TABLE[0]))
    health = read("GPU 00000000:01:00.0\n    GPU Recovery Action : Reset\n")
    joined = join([series, facts, health])
    gpus = {row.key for sample in joined.samples if sample.table is Gpu for row in sample.rows}
    assert gpus == {"GPU-0", "GPU-1"}
    (sick,) = {row.key for s in joined.samples if s.table is GpuHealth for row in s.rows}
    assert sick == "GPU-1"


def test_what_never_changes_is_carried_over_and_what_moves_is_not() -> None:
    series = read(query([line(s) for s in range(5)], CSV))
    facts = read(query([TABLE[1].format(n=0)], TABLE[0]))
    last = join([series, facts]).samples[-1].rows[0]
    assert cells(last, Gpu.power_limit_default_w, Gpu.sm_clock_max_mhz) == [700, 1980]
    alone = join([series]).samples[-1].rows[0]
    assert isinstance(alone.values[Gpu.power_limit_default_w.index], Absent)


def test_two_logs_of_the_same_gpu_complete_one_another() -> None:
    series = read(query([line(s) for s in range(5)], CSV))
    dmon = read(DMON + "".join(f"20240101 00:00:0{s} 0 95 1410 100\n" for s in range(5)))
    last = join([series, dmon]).samples[-1].rows[0]
    assert last.values[Gpu.power_w.index] == 300
    assert last.values[Gpu.sm_clock_mhz.index] == 1410


def test_a_rate_becomes_a_counter_over_the_time_it_held() -> None:
    dmon = read(DMON + "".join(f"20240101 00:00:{s:02d} 0 95 1410 100\n" for s in (0, 1, 3)))
    rows = [sample.rows[0] for sample in join([dmon]).samples]
    assert [row.values[Gpu.pcie_rx_bytes.index] for row in rows] == [0, 100e6, 300e6]


def test_dates_set_the_clock_and_files_without_begin_with_the_first_reading() -> None:
    series = read(query([line(s) for s in (10, 11)], CSV))
    bare = read(query(["0, 79, 1 MiB"], "gpu_uuid, pid, used_gpu_memory [MiB]"))
    joined = join([series, bare])
    assert joined.wall_ns == 1_704_067_210_100_000_000
    first = min(sample.t_ns for sample in joined.samples if sample.table is GpuProcess)
    assert first == START_NS
    assert any("no dates" in note for note in joined.notes)


def test_each_table_has_the_pace_of_its_slowest_entity() -> None:
    slow = read(query([line(s) for s in range(0, 300, 60)], CSV))
    fast = read(query([line(s, 1) for s in range(0, 300, 5)], CSV))
    joined = join([slow, fast])
    assert joined.periods[Gpu] == 60
    # The slow GPU does not end between two of its lines.
    assert all(len(sample.rows) == 2 for sample in joined.samples if sample.table is Gpu)


def test_what_was_read_once_stays_in_force() -> None:
    series = read(query([line(s) for s in range(90)], CSV))
    apps = read(query(["GPU-0, 79, 1 MiB"], "gpu_uuid, pid, used_gpu_memory [MiB]"))
    joined = join([series, apps])
    assert joined.periods[GpuProcess] * NS_PER_S >= joined.end_ns - START_NS


def test_a_lost_gpu_stays_lost_until_the_log_shows_it_again() -> None:
    said = "Unable to determine the device handle for GPU 0000:09:00.0: GPU is lost."
    lines = [line(s) for s in range(30)]
    joined = join([read(query([*lines[:3], said, *lines[3:]], CSV))])
    last = joined.samples[-1]
    (lost,) = [row for row in last.rows if row.key == "00000000:09:00.0"]
    assert lost.t_ns == last.t_ns


def test_the_only_gpu_owns_processes_that_name_none() -> None:
    gpu = read(query(["NVIDIA X, 16376, 14360"], "name, memory.total [MiB], memory.used [MiB]"))
    apps = read(query(["79, [N/A]"], "pid, used_gpu_memory [MiB]"))
    rows = [row for s in join([gpu, apps]).samples if s.table is GpuProcess for row in s.rows]
    assert rows[0].key == "NVIDIA X/79"
    assert rows[0].values[GpuProcess.gpu.index] == "NVIDIA X"


def test_a_clock_that_was_set_back_does_not_break_the_order() -> None:
    lines = [line(s) for s in (10, 11, 5, 6, 12)]
    times = [sample.t_ns for sample in join([read(query(lines, CSV))]).samples]
    assert times == sorted(times)
