"""What GPM counts inside a GPU: the right numbers, or why there are none, for two calls a tick."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bottletop.model import Absent, State
from bottletop.tables.gpu import LOST, OK, Gpu
from bottletop.tables.gpu_activity import GpuActivity, GpuInstance
from nvml.host import scenario_path

if TYPE_CHECKING:
    from nvml.host import Host, Reading

    from .conftest import MakeHost

ONE = "GPU-00000000-0000-0000-0000-000000000000"
TWO = "GPU-00000000-0000-0000-0000-000000000001"

COUNTS = tuple(
    metric
    for metric in GpuActivity.columns
    if metric not in (GpuActivity.gpu, GpuActivity.interval_s)
)
GPM_CALLS = (
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
    "nvmlGpmSampleGet",
    "nvmlGpmMigSampleGet",
    "nvmlGpmMetricsGet",
)


def calls(host: Host, function: str) -> int:
    """How often the driver was asked so far."""
    asked = host.calls()
    return asked[function].calls if function in asked else 0


def kept(host: Host) -> int:
    """Sample buffers that the driver holds for us."""
    return calls(host, "nvmlGpmSampleAlloc") - calls(host, "nvmlGpmSampleFree")


def states(read: Reading, key: str) -> set[State]:
    """Why the counts of a GPU are absent; empty where one of them is a number."""
    values = [read.value(metric, key) for metric in COUNTS]
    return (
        {value.state for value in values if isinstance(value, Absent)}
        if all(isinstance(value, Absent) for value in values)
        else set()
    )


# -- values ------------------------------------------------------------------------------------


def test_counts_are_the_means_between_two_reads_and_the_first_read_has_none(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(
        """
        gpu
          gpm graphics 90
          gpm sm linear 0 0 10 100
          gpm occupancy square 2 0.5 60 20
          gpm tensor 30.04
          gpm fp64 1
          gpm fp32 2
          gpm fp16 3
          gpm integer 4
          gpm dram 55
          gpm context_switch 6
        """
    )
    host.open()
    first = host.tick()
    assert states(first, ONE) == {State.NOT_READ}
    assert first.value(GpuActivity.gpu, ONE) == ONE
    second = host.tick()
    assert second.number(GpuActivity.interval_s, ONE) == 1.0
    assert second.number(GpuActivity.sm_pct, ONE) == pytest.approx(15)
    assert second.number(GpuActivity.occupancy_pct, ONE) == pytest.approx(20)
    third = host.tick(2)
    assert third.number(GpuActivity.interval_s, ONE) == 2.0
    assert third.number(GpuActivity.sm_pct, ONE) == pytest.approx(30)
    assert third.number(GpuActivity.occupancy_pct, ONE) == pytest.approx(40)
    expected = {
        GpuActivity.graphics_pct: 90,
        GpuActivity.tensor_pct: 30.0,
        GpuActivity.fp64_pct: 1,
        GpuActivity.fp32_pct: 2,
        GpuActivity.fp16_pct: 3,
        GpuActivity.integer_pct: 4,
        GpuActivity.dram_pct: 55,
        GpuActivity.context_switch_pct: 6,
    }
    assert {metric: third.number(metric, ONE) for metric in expected} == pytest.approx(expected)


def test_a_row_is_stamped_at_the_end_of_its_interval(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  slow nvmlGpmSampleGet 30")
    host.open()
    host.tick()
    read = host.tick()
    (row,) = read.rows(GpuActivity)
    assert host.second(row.t_ns) == pytest.approx(2.06)
    assert read.number(GpuActivity.interval_s, ONE) == pytest.approx(1.03)


def test_links_are_bytes_a_second(gpu_host: MakeHost) -> None:
    host = gpu_host(
        """
        gpu
          pcie_rx 20e9
          pcie_tx 1e9
          gpm nvlink_rx 300e9
          gpm nvlink_tx 200e9
          gpm c2c_rx 50e9
          gpm c2c_tx 40e9
        gpu
        """
    )
    host.open()
    read = host.ticks(2)[-1]
    expected = {
        GpuActivity.pcie_rx_bytes_per_s: 20e9,
        GpuActivity.pcie_tx_bytes_per_s: 1e9,
        GpuActivity.nvlink_rx_bytes_per_s: 300e9,
        GpuActivity.nvlink_tx_bytes_per_s: 200e9,
        GpuActivity.c2c_rx_bytes_per_s: 50e9,
        GpuActivity.c2c_tx_bytes_per_s: 40e9,
    }
    # To the quantum, of which half may be lost.
    assert {m: read.number(m, ONE) for m in expected} == pytest.approx(expected, abs=512)
    assert read.absent(GpuActivity.c2c_rx_bytes_per_s, TWO).state is State.UNSUPPORTED
    assert read.number(GpuActivity.pcie_rx_bytes_per_s, TWO) == 0


def test_decoders_are_averaged_over_those_that_the_part_has(gpu_host: MakeHost) -> None:
    # One of seven is busy all the time, another for 40 %.
    host = gpu_host("gpu\n  gpm decoder 20\ngpu\n  decoders 2\n  gpm decoder 70")
    host.open()
    read = host.ticks(3)[-1]
    assert read.number(GpuActivity.decoder_pct, ONE) == pytest.approx(20)
    assert read.number(GpuActivity.decoder_pct, TWO) == pytest.approx(70)


# -- what a part or a driver does not have -------------------------------------------------------


def test_before_hopper_a_row_says_what_it_would_take_and_nothing_more_is_asked(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host("gpu\n  arch 8\n  cc 8 9\n  gpm sm 50\ngpu\n  gpm sm 50")
    host.open()
    read = host.ticks(12)[-1]
    assert states(read, ONE) == {State.UNSUPPORTED}
    assert "Hopper" in read.absent(GpuActivity.sm_pct, ONE).reason
    assert read.number(GpuActivity.sm_pct, TWO) == 50
    assert calls(host, "nvmlGpmQueryDeviceSupport") == 2
    assert calls(host, "nvmlGpmSampleGet") == 12
    assert kept(host) == 2


def test_a_driver_without_gpm_is_asked_once(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu", without=GPM_CALLS)
    host.open()
    read = host.ticks(12)[-1]
    assert states(read, ONE) == {State.UNSUPPORTED}
    assert "too old" in read.absent(GpuActivity.sm_pct, ONE).reason
    assert read.value(Gpu.health, ONE) == OK


def test_one_metric_that_is_not_supported_is_remembered_and_costs_no_other(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(
        """
        gpu
          gpm sm 50
          gpm context_switch 6
          gpm decoder 30
          fail gpm:174 not-supported 0 5
          fail gpm:31 not-supported
          fail gpm:5 timeout 0 5
        """
    )
    host.open()
    early, late = host.ticks(3)[-1], host.ticks(5)[-1]
    for read in (early, late):
        assert read.absent(GpuActivity.context_switch_pct, ONE).state is State.UNSUPPORTED
        assert read.number(GpuActivity.sm_pct, ONE) == 50
        # 100 % and 110 % of seven decoders; the second one's 100 % is not told.
        assert read.number(GpuActivity.decoder_pct, ONE) == pytest.approx(110 / 6, abs=0.05)
    assert early.absent(GpuActivity.tensor_pct, ONE).state is State.ERROR
    assert late.number(GpuActivity.tensor_pct, ONE) == 0


def test_a_driver_that_refuses_a_list_with_newer_metrics_is_asked_without_them(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host("gpu\n  gpm sm 50\n  gpm_metrics_up_to 97")
    host.open()
    read = host.ticks(6)[-1]
    assert read.number(GpuActivity.sm_pct, ONE) == 50
    newer = read.absent(GpuActivity.context_switch_pct, ONE)
    assert (newer.state, newer.reason) == (State.UNSUPPORTED, "this driver is too old for it")
    assert calls(host, "nvmlGpmMetricsGet") == 5 + 1


def test_what_is_denied_is_said_and_asked_rarely_since_it_may_be_granted(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host("gpu\n  gpm sm 50\n  fail nvmlGpmSampleGet no-permission 0 14.5")
    host.open()
    reads = host.ticks(18)
    assert [states(read, ONE) for read in reads[:15]] == [{State.DENIED}] * 15
    assert states(reads[15], ONE) == {State.NOT_READ}
    assert reads[16].number(GpuActivity.sm_pct, ONE) == 50
    assert calls(host, "nvmlGpmSampleGet") == 3 + 3
    assert "permit" in reads[3].absent(GpuActivity.sm_pct, ONE).reason


# -- faults ------------------------------------------------------------------------------------


def test_absurd_numbers_are_implausible_and_a_missing_one_is_no_zero(gpu_host: MakeHost) -> None:
    host = gpu_host(
        """
        gpu
          gpm sm 250
          gpm occupancy -5
          gpm tensor 100.4
          gpm dram nan
          gpm graphics inf
          gpm nvlink_rx 1e18
          gpm fp16 12
          garbage gpm:12
        """
    )
    host.open()
    read = host.ticks(2)[-1]
    sm = read.absent(GpuActivity.sm_pct, ONE)
    assert (sm.state, sm.raw) == (State.IMPLAUSIBLE, 250)
    assert read.absent(GpuActivity.nvlink_rx_bytes_per_s, ONE).state is State.IMPLAUSIBLE
    assert read.absent(GpuActivity.occupancy_pct, ONE).state is State.UNSUPPORTED
    assert read.number(GpuActivity.tensor_pct, ONE) == 100
    assert read.absent(GpuActivity.dram_pct, ONE).state is State.ERROR
    assert read.absent(GpuActivity.graphics_pct, ONE).state is State.ERROR
    assert read.absent(GpuActivity.fp32_pct, ONE).state is State.ERROR
    assert read.number(GpuActivity.fp16_pct, ONE) == 12


def test_a_read_that_fails_costs_itself_only(gpu_host: MakeHost) -> None:
    host = gpu_host(
        """
        gpu
          gpm sm 50
          fail nvmlGpmSampleGet timeout 2.5 3.5
          fail nvmlGpmMetricsGet unknown 5.5 6.5
        """
    )
    host.open()
    reads = host.ticks(8)
    assert [states(read, ONE) for read in reads] == [
        *({State.NOT_READ}, set(), {State.ERROR}, set(), set(), {State.ERROR}, set(), set())
    ]
    # The sample of second 2 is still a basis at second 4.
    assert reads[3].number(GpuActivity.interval_s, ONE) == 2.0
    assert reads[6].number(GpuActivity.interval_s, ONE) == 1.0


@pytest.mark.parametrize("asleep", [False, True])
def test_nothing_is_counted_over_a_pause(gpu_host: MakeHost, asleep: bool) -> None:
    host = gpu_host("gpu\n  gpm sm 50")
    host.open()
    host.ticks(3)
    if asleep:  # the wall clock alone tells of a suspend
        host.ask("skew", 0.0, 3600.0)
        host.clock.step(1)
    else:
        host.clock.step(12)
    assert states(host.read(), ONE) == {State.NOT_READ}
    assert host.tick().number(GpuActivity.sm_pct, ONE) == 50


def test_reads_in_quick_succession_do_not_ask_for_an_interval_too_short(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host("gpu\n  gpm sm 50")
    host.open()
    before = host.ticks(2)[-1]
    again = host.tick(0.05)
    assert again.rows(GpuActivity) == before.rows(GpuActivity)
    assert calls(host, "nvmlGpmMetricsGet") == 1
    assert host.tick(0.1).number(GpuActivity.interval_s, ONE) == pytest.approx(0.15)


def test_a_lost_gpu_counts_nothing_gives_its_buffers_back_and_begins_anew(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host("gpu\n  gpm sm 50\ngpu\n  gpm sm 60\n  lost 3.5 12")
    host.open()
    reads = host.ticks(5)
    assert reads[2].number(GpuActivity.sm_pct, TWO) == 60
    assert reads[3].value(Gpu.health, TWO) == LOST
    assert states(reads[3], TWO) == {State.LOST}
    assert reads[3].number(GpuActivity.sm_pct, ONE) == 50
    assert kept(host) == 2
    reads = host.ticks(13)
    back = next(i for i, read in enumerate(reads) if read.value(Gpu.health, TWO) == OK)
    assert states(reads[back], TWO) == {State.NOT_READ}
    assert reads[back + 1].number(GpuActivity.sm_pct, TWO) == 60
    assert kept(host) == 4
    host.close()
    assert kept(host) == 0


def test_buffers_are_given_back_when_the_driver_is_closed_and_taken_anew(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(
        "gpu\n  gpm sm 50\n  fail nvmlDeviceGetMemoryInfo_v2 uninitialized 3.5 4.5\ngpu"
    )
    host.open()
    host.ticks(3)
    assert kept(host) == 4
    with pytest.raises(Exception, match="ninitialized"):
        host.tick()
    assert kept(host) == 0
    host.clock.step(1)
    host.open()
    assert states(host.tick(), ONE) == {State.NOT_READ}
    assert host.tick().number(GpuActivity.sm_pct, ONE) == 50
    host.close()
    assert kept(host) == 0


def test_a_gpm_call_that_never_returns_holds_nothing_but_its_own_thread(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host("gpu\n  hang nvmlGpmSampleGet 2.5 100")
    host.open()
    host.ticks(2)
    host.clock.step(1)
    host.ask("begin_read")
    assert host.ask("end_read", 0.2) is None
    assert host.ask("own").nvml_calls > 0
    assert host.end() == 0


# -- cost --------------------------------------------------------------------------------------


def test_gpm_takes_two_calls_a_gpu_a_tick_and_its_buffers_once(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n" * 8)
    host.open()
    host.ticks(2)
    before = {name: calls(host, name) for name in GPM_CALLS}
    reads = host.ticks(10)
    asked = {name: calls(host, name) - before[name] for name in GPM_CALLS}
    assert asked == {
        **dict.fromkeys(GPM_CALLS, 0),
        "nvmlGpmSampleGet": 8 * 10,
        "nvmlGpmMetricsGet": 8 * 10,
    }
    assert kept(host) == 2 * 8
    assert all(len(read.rows(GpuActivity)) == 8 for read in reads)
    assert "nvmlDeviceGetMigDeviceHandleByIndex" not in host.calls()
    assert all(read.sample(GpuInstance) is None for read in reads)


def test_the_gpus_of_a_kept_scenario_are_counted(gpu_host: MakeHost) -> None:
    host = gpu_host(scenario_path("two-gpus"), start_s=30)
    host.open()
    read = host.ticks(2)[-1]
    assert len(read.rows(GpuActivity)) == 2
    assert all(not states(read, row.key) for row in read.rows(GpuActivity))
