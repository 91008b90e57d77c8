"""Health and links of a GPU: what each kind of part and driver gives, what is said otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bottletop.model import Absent, Kind, State
from bottletop.store import Store
from bottletop.tables.gpu_health import GpuHealth, GpuLink

if TYPE_CHECKING:
    from nvml.host import Host, Reading

    from .conftest import MakeHost

ONE = "GPU-00000000-0000-0000-0000-000000000000"
TWO = "GPU-00000000-0000-0000-0000-000000000001"

TEMPERATURES = (
    GpuHealth.temp_shutdown_c,
    GpuHealth.temp_slowdown_c,
    GpuHealth.temp_mem_max_c,
    GpuHealth.temp_max_c,
)
MARGINS = (
    GpuHealth.tlimit_shutdown_c,
    GpuHealth.tlimit_slowdown_c,
    GpuHealth.tlimit_mem_max_c,
    GpuHealth.tlimit_max_c,
)
ROWS = (
    GpuHealth.rows_remapped_corrected,
    GpuHealth.rows_remapped_uncorrected,
    GpuHealth.row_remap_pending,
    GpuHealth.row_remap_failed,
)
PAGES = (
    GpuHealth.pages_retired_corrected,
    GpuHealth.pages_retired_uncorrected,
    GpuHealth.page_retirement_pending,
)
ECC = (
    GpuHealth.ecc_corrected,
    GpuHealth.ecc_uncorrected,
    GpuHealth.ecc_corrected_ever,
    GpuHealth.ecc_uncorrected_ever,
)

SICK = """
  recovery_action 4
  ecc_corrected 11
  ecc_uncorrected 2
  ecc_corrected_ever 1100
  ecc_uncorrected_ever 22
  rows_corrected 3
  rows_uncorrected 1
  rows_pending 1
  rows_failed 0
  pages_corrected 5
  pages_uncorrected 6
  pages_pending 1
  pcie_replays 70
  pcie_rollovers 7
  pcie_recoveries 8
  pcie_correctable 9
  pcie_naks_received 10
  pcie_receiver 12
  pcie_bad_tlp 13
  pcie_naks_sent 14
  pcie_bad_dllp 15
  pcie_nonfatal 16
  pcie_fatal 17
  pcie_unsupported 18
  pcie_lcrc 19
  bar1_total 131072
  bar1_used 77
"""


def first(host: Host) -> Reading:
    """The first read that brings health."""
    host.open()
    read = host.tick()
    while not read.rows(GpuHealth):
        read = host.tick()
    return read


def numbers(read: Reading, *metrics: object) -> list[float]:
    return [read.number(metric, ONE) for metric in metrics]  # type: ignore[arg-type]


def test_a_hopper_is_read_whole(gpu_host: MakeHost) -> None:
    read = first(gpu_host("gpu" + SICK))
    assert numbers(read, GpuHealth.recovery_action) == [4]
    assert numbers(read, *ECC) == [11, 2, 1100, 22]
    assert numbers(read, *ROWS) == [3, 1, 1, 0]
    assert numbers(read, *MARGINS) == [-8, -2, 0, 0]
    assert numbers(read, GpuHealth.pcie_replays, GpuHealth.pcie_replay_rollovers) == [70, 7]
    assert numbers(
        read,
        GpuHealth.pcie_recoveries,
        GpuHealth.pcie_corrected_errors,
        GpuHealth.pcie_naks_received,
        GpuHealth.pcie_receiver_errors,
        GpuHealth.pcie_bad_packets,
        GpuHealth.pcie_naks_sent,
        GpuHealth.pcie_bad_link_packets,
        GpuHealth.pcie_nonfatal_errors,
        GpuHealth.pcie_fatal_errors,
        GpuHealth.pcie_unsupported_requests,
        GpuHealth.pcie_lcrc_errors,
    ) == [8, 9, 10, 12, 13, 14, 15, 16, 17, 18, 19]
    assert read.number(GpuHealth.bar1_total_bytes, ONE) == 128 * 2**30
    assert read.number(GpuHealth.bar1_used_bytes, ONE) == 77 * 2**20
    for metric in (*TEMPERATURES, *PAGES):
        assert read.absent(metric, ONE).state is State.NOT_APPLICABLE
    assert read.absent(GpuHealth.c2c_links, ONE).state is State.UNSUPPORTED


def test_every_column_of_health_is_filled_or_says_why_not(gpu_host: MakeHost) -> None:
    for arch in (5, 7, 8, 10):
        (row,) = first(gpu_host(f"gpu\n  arch {arch}" + SICK)).rows(GpuHealth)
        states = {cell.state for cell in row.values if isinstance(cell, Absent)}
        assert states <= {State.UNSUPPORTED, State.NOT_APPLICABLE}


def test_a_volta_has_temperatures_and_retired_pages_and_no_margins(gpu_host: MakeHost) -> None:
    read = first(gpu_host("gpu\n  arch 5\n  cc 7 0" + SICK))
    assert numbers(read, *TEMPERATURES) == [95, 92, 100, 87]
    assert numbers(read, *PAGES) == [5, 6, 1]
    for metric in (*MARGINS, *ROWS):
        assert read.absent(metric, ONE).state is State.NOT_APPLICABLE


@pytest.mark.parametrize(("arch", "margins"), [(7, False), (8, True), (10, True)])
def test_limits_are_temperatures_or_margins_and_never_both(
    gpu_host: MakeHost, arch: int, margins: bool
) -> None:
    host = gpu_host(f"gpu\n  arch {arch}")
    read = first(host)
    given, withheld = (MARGINS, TEMPERATURES) if margins else (TEMPERATURES, MARGINS)
    numbers(read, *given)
    for metric in withheld:
        assert read.absent(metric, ONE).state is State.NOT_APPLICABLE
    asked = "nvmlDeviceGetTemperatureThreshold" in host.calls()
    assert asked is not margins


def test_thresholds_are_asked_once(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  arch 7\n  fail nvmlDeviceGetTemperatureThreshold timeout 0 5")
    assert first(host).absent(GpuHealth.temp_max_c, ONE).state is State.ERROR
    late = [read for read in host.ticks(45) if read.rows(GpuHealth)]
    assert numbers(late[-1], *TEMPERATURES) == [95, 92, 100, 87]
    assert host.calls()["nvmlDeviceGetTemperatureThreshold"].calls == 8


def test_a_negative_margin_announced_as_unsigned_is_still_negative(gpu_host: MakeHost) -> None:
    read = first(gpu_host("gpu\n  margins_unsigned 1"))
    assert numbers(read, *MARGINS) == [-8, -2, 0, 0]


def test_an_old_driver_gives_what_it_has_by_calls_and_names_no_action(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  arch 7" + SICK, without=("nvmlDeviceGetFieldValues",))
    read = first(host)
    assert numbers(read, *ECC) == [11, 2, 1100, 22]
    assert numbers(read, *ROWS) == [3, 1, 1, 0]
    assert numbers(read, GpuHealth.pcie_replays) == [70]
    assert "too old" in read.absent(GpuHealth.recovery_action, ONE).reason
    assert host.calls()["nvmlDeviceGetRemappedRows"].calls == 1  # four columns of one answer


def test_fields_that_a_driver_does_not_know_leave_the_others_alone(gpu_host: MakeHost) -> None:
    read = first(gpu_host("gpu\n  fields_up_to 180" + SICK))
    assert read.absent(GpuHealth.recovery_action, ONE).state is State.UNSUPPORTED
    assert read.absent(GpuHealth.pcie_lcrc_errors, ONE).state is State.UNSUPPORTED
    assert numbers(read, GpuHealth.pcie_fatal_errors, *ROWS) == [17, 3, 1, 1, 0]


def test_one_field_that_fails_blanks_only_itself_and_is_asked_again(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  fail field:4 unknown 0 9" + SICK)
    read = first(host)
    assert read.absent(GpuHealth.ecc_uncorrected, ONE).state is State.ERROR
    assert numbers(read, GpuHealth.ecc_corrected, GpuHealth.ecc_corrected_ever) == [11, 1100]
    later = [read for read in host.ticks(12) if read.rows(GpuHealth)]
    assert numbers(later[-1], GpuHealth.ecc_uncorrected) == [2]


def test_all_ones_with_success_are_believed_of_no_column(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  links 2\n  garbage nvmlDeviceGet*\ngpu")
    read = first(host)
    (row,) = read.rows(GpuHealth, ONE)
    found = {
        metric.name
        for metric, value in zip(GpuHealth.columns, row.values, strict=True)
        if metric.kind is not Kind.TEXT and not isinstance(value, Absent)
    }
    assert found == set()
    assert read.number(GpuHealth.ecc_corrected, TWO) == 0
    assert read.rows(GpuLink) == []  # a link count of all ones is no link count


@pytest.mark.parametrize("field", [3, 144, 230])
def test_a_sentinel_in_one_field_is_implausible_there_alone(gpu_host: MakeHost, field: int) -> None:
    read = first(gpu_host(f"gpu\n  garbage field:{field}" + SICK))
    (row,) = read.rows(GpuHealth)
    wrong = [
        cell for cell in row.values if isinstance(cell, Absent) and cell.state is State.IMPLAUSIBLE
    ]
    assert len(wrong) == 1


def test_what_mig_withholds_comes_back_when_mig_is_off(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  mig step 0 1 15 0" + SICK)
    assert first(host).absent(GpuHealth.row_remap_pending, ONE).state is State.UNSUPPORTED
    late = [read for read in host.ticks(35) if read.rows(GpuHealth)]
    assert numbers(late[-1], *ROWS) == [3, 1, 1, 0]


def test_a_lost_gpu_has_no_health_and_its_neighbour_keeps_its_own(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  links 2\n  lost 12 38" + SICK + "gpu\n  ecc_corrected 5")
    first(host)
    during = [read for read in host.ticks(28) if read.rows(GpuHealth)][-1]
    (row,) = during.rows(GpuHealth, ONE)
    assert {cell.state for cell in row.values if isinstance(cell, Absent)} == {State.LOST}
    assert not [cell for cell in row.values if not isinstance(cell, Absent)]
    assert during.rows(GpuLink) == []
    assert during.number(GpuHealth.ecc_corrected, TWO) == 5
    after = [read for read in host.ticks(30) if read.rows(GpuHealth)][-1]
    assert after.number(GpuHealth.ecc_corrected, ONE) == 11
    assert len(after.rows(GpuLink)) == 2


def test_a_gpu_that_stays_lost_says_so_as_often_as_health_is_read(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  lost 2.5")
    first(host)
    told = [bool(read.rows(GpuHealth)) for read in host.ticks(43)]
    assert 4 <= sum(told) <= 5


def test_gpus_take_turns_and_are_all_alive_in_the_store(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  links 1\n" * 6)
    host.open()
    store = Store()
    rounds = []
    for _ in range(45):
        read = host.tick()
        for sample in read.samples:
            store.ingest(sample)
        if read.rows(GpuHealth):
            rounds.append(read.sample(GpuHealth))
        view = store.view(host.clock.monotonic_ns())
        assert len(view.keys(GpuHealth)) == len(view.keys(GpuLink)) == 6
    assert [len(sample.rows) for sample in rounds if sample] == [6] * len(rounds)
    assert len(rounds) in (4, 5)
    last = rounds[-1]
    assert last is not None
    stamps = {row.t_ns for row in last.rows}
    assert len(stamps) == 4
    assert last.t_ns - min(stamps) <= 4e9


def test_rows_of_health_do_not_wait_long_for_one_another_when_reads_are_slow(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host("gpu\n" * 6)
    host.open()
    for read in host.ticks(12, seconds=3.5):
        sample = read.sample(GpuHealth)
        if sample is not None and sample.rows:
            assert sample.t_ns - min(row.t_ns for row in sample.rows) <= 4e9


# -- links ---------------------------------------------------------------------------------------


def test_links_are_read_one_by_one_with_the_errors_that_hopper_counts(gpu_host: MakeHost) -> None:
    host = gpu_host(
        """
        gpu
          links 3
          link 0 tx 1e9
          link 0 rx 2e9
          link 1 state 0
          link 1 replays 4
          link 1 recoveries 5
          link 1 crc 6
          link 2 state 2
          link 2 speed 26562
        """
    )
    read = first(host)
    assert [row.key for row in read.rows(GpuLink)] == [f"{ONE}/{link}" for link in range(3)]
    second = host.second(read.rows(GpuLink)[0].t_ns)
    assert read.number(GpuLink.tx_bytes, f"{ONE}/0") == pytest.approx(second * 1e9, abs=1024)
    assert read.number(GpuLink.rx_bytes, f"{ONE}/0") == pytest.approx(second * 2e9, abs=1024)
    assert read.value(GpuLink.gpu, f"{ONE}/1") == ONE
    assert [read.value(GpuLink.state, f"{ONE}/{link}") for link in range(3)] == [1, 0, 2]
    assert read.number(GpuLink.speed_bytes_per_s, f"{ONE}/2") == 26562e6
    bad = f"{ONE}/1"
    assert read.number(GpuLink.replay_errors, bad) == 4
    assert read.number(GpuLink.recovery_errors, bad) == 5
    assert read.number(GpuLink.crc_errors, bad) == 6
    for newer in (GpuLink.recovery_failures, GpuLink.effective_errors, GpuLink.symbol_errors):
        assert read.absent(newer, bad).state is State.UNSUPPORTED


def test_blackwell_counts_other_errors(gpu_host: MakeHost) -> None:
    host = gpu_host(
        """
        gpu
          arch 10
          links 1
          link 0 recoveries 5
          link 0 failures 1
          link 0 effective 2
          link 0 symbols 300
        """
    )
    read, link = first(host), f"{ONE}/0"
    assert read.number(GpuLink.recovery_errors, link) == 5
    assert read.number(GpuLink.recovery_failures, link) == 1
    assert read.number(GpuLink.effective_errors, link) == 2
    assert read.number(GpuLink.symbol_errors, link) == 300
    for older in (GpuLink.replay_errors, GpuLink.crc_errors):
        assert read.absent(older, link).state is State.UNSUPPORTED


def test_bytes_of_a_link_come_from_the_newer_counter_where_the_older_is_gone(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(
        """
        gpu
          arch 10
          links 1
          link 0 tx 1e9
          fail field:138 not-supported
          fail field:139 not-supported
        """
    )
    read = first(host)
    (row,) = read.rows(GpuLink)
    assert read.number(GpuLink.tx_bytes, row.key) == host.second(row.t_ns) * 1e9


def test_a_link_that_is_counted_but_not_there_has_no_row(gpu_host: MakeHost) -> None:
    read = first(gpu_host("gpu\n  links 3\n  fail field:165/1 not-supported"))
    assert [row.values[GpuLink.link.index] for row in read.rows(GpuLink)] == [0, 2]


def test_one_link_that_fails_leaves_the_others_alone(gpu_host: MakeHost) -> None:
    read = first(gpu_host("gpu\n  links 2\n  fail field:163/1 unknown"))
    assert read.number(GpuLink.crc_errors, f"{ONE}/0") == 0
    assert read.absent(GpuLink.crc_errors, f"{ONE}/1").state is State.ERROR
    assert read.number(GpuLink.replay_errors, f"{ONE}/1") == 0


def test_without_a_count_the_links_are_found_by_asking(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  links 5\n  fail field:91 not-supported\ngpu")
    read = first(host)
    assert len(read.rows(GpuLink)) == 5
    before = host.calls()["nvmlDeviceGetNvLinkState"].calls
    host.ticks(30)
    assert host.calls()["nvmlDeviceGetNvLinkState"].calls == before == 5 + 1 + 1


def test_a_count_that_fails_is_asked_again(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  links 2\n  fail field:91 timeout 0 5")
    assert first(host).rows(GpuLink) == []
    late = [read for read in host.ticks(12) if read.rows(GpuHealth)]
    assert len(late[-1].rows(GpuLink)) == 2


def test_health_and_eighteen_links_are_one_call(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  links 18")
    first(host)
    before = host.calls()["nvmlDeviceGetFieldValues"].calls
    host.ticks(20)
    # One a read, the limits every 5 s, health with links every 10 s.
    assert host.calls()["nvmlDeviceGetFieldValues"].calls - before == 20 + 4 + 2
