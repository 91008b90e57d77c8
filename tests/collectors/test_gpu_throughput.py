"""The one call that blocks: only where nothing else tells of PCIe, one GPU at a time, rarely."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bottletop.model import State
from bottletop.tables.gpu import Gpu

if TYPE_CHECKING:
    from nvml.host import Host

    from .conftest import MakeHost

ONE = "GPU-00000000-0000-0000-0000-000000000000"
CALL = "nvmlDeviceGetPcieThroughput"
BLIND = """
gpu
  arch 8
  cc 8 9
  pcie_rx 2e9
  pcie_tx 3e8
  fail field:197 not-supported
  fail field:198 not-supported
"""


def looks(host: Host) -> int:
    stat = host.calls().get(CALL)
    return stat.calls if stat else 0


def test_a_part_without_counters_and_gpm_is_looked_at_rarely_and_in_turn(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(BLIND)
    host.open()
    reads = host.ticks(3)
    assert reads[-1].number(Gpu.pcie_rx_rate_bytes_per_s, ONE) == pytest.approx(2e9)
    assert reads[-1].absent(Gpu.pcie_tx_rate_bytes_per_s, ONE).state is State.NOT_READ
    assert looks(host) == 1
    read = host.ticks(32)[-1]
    assert read.number(Gpu.pcie_tx_rate_bytes_per_s, ONE) == pytest.approx(3e8)
    host.ticks(80)
    assert looks(host) == 4  # at 2, 32, 62 and 92 s or a little later


def test_one_gpu_a_read_is_looked_at(gpu_host: MakeHost) -> None:
    host = gpu_host(BLIND * 4)
    host.open()
    before, most = 0, 0
    for _ in range(70):
        host.tick()
        most, before = max(most, looks(host) - before), looks(host)
    assert most == 1
    assert before == 4 * 3


@pytest.mark.parametrize(
    "scenario",
    [
        "gpu\n  arch 8",  # byte counters
        BLIND.replace("arch 8", "arch 9"),  # GPM
        BLIND.replace("arch 8", "arch 0"),  # who knows
        BLIND.replace("field:197 not-supported", "field:197 timeout"),  # they may come back
    ],
)
def test_where_something_better_tells_of_it_the_call_is_never_made(
    gpu_host: MakeHost, scenario: str
) -> None:
    host = gpu_host(scenario)
    host.open()
    read = host.ticks(40)[-1]
    assert looks(host) == 0
    assert read.absent(Gpu.pcie_rx_rate_bytes_per_s, ONE).state is State.NOT_APPLICABLE


def test_counters_of_32_bits_do_not_count_as_something_better(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  arch 8\n  pcie_rx 2e9\n  pcie_counter_bits 32")
    host.open()
    assert host.ticks(3)[-1].number(Gpu.pcie_rx_rate_bytes_per_s, ONE) == pytest.approx(2e9)


def test_a_look_that_is_refused_is_not_repeated(gpu_host: MakeHost) -> None:
    host = gpu_host(BLIND + f"\n  virtualisation 2\n  fail {CALL} not-supported")
    host.open()
    read = host.ticks(130)[-1]
    assert looks(host) == 2  # once a direction
    assert "vGPU guest" in read.absent(Gpu.pcie_rx_rate_bytes_per_s, ONE).reason


def test_a_driver_that_is_slow_already_is_not_looked_at(gpu_host: MakeHost) -> None:
    host = gpu_host(BLIND + "  slow nvmlDeviceGetMemoryInfo_v2 200 4\n")
    host.open()
    host.ticks(10)
    before = looks(host)
    host.ticks(90)
    assert looks(host) == before == 1


def test_a_look_of_long_ago_is_not_shown_as_fresh(gpu_host: MakeHost) -> None:
    host = gpu_host(BLIND + f"\n  fail {CALL} timeout 20")
    host.open()
    assert host.ticks(3)[-1].number(Gpu.pcie_rx_rate_bytes_per_s, ONE) == pytest.approx(2e9)
    assert host.ticks(130)[-1].absent(Gpu.pcie_rx_rate_bytes_per_s, ONE).state is State.ERROR


def test_a_throughput_of_all_ones_is_not_believed(gpu_host: MakeHost) -> None:
    host = gpu_host(BLIND + f"\n  garbage {CALL}")
    host.open()
    absent = host.ticks(3)[-1].absent(Gpu.pcie_rx_rate_bytes_per_s, ONE)
    assert absent.state is State.IMPLAUSIBLE
