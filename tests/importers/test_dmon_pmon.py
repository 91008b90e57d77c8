"""dmon and pmon: any choice of columns, dates in front, repeated headers, dashes for unknown."""

from __future__ import annotations

import pytest
from importlab import facts, read, state, values

from bottletop.importers import NotImportable
from bottletop.model import State
from bottletop.tables import Gpu, GpuHealth, GpuProcess
from bottletop.tables.gpu import COMPUTE, GRAPHICS, MPS

MIB = 1 << 20
OLD = """\
# gpu   pwr gtemp mtemp    sm   mem   enc   dec  mclk  pclk
# Idx     W     C     C     %     %     %     %   MHz   MHz
    0    26    65     -    98     4     0     0  4006  1404
    0     7    61     -   100    12     0     0   405   139
"""
ALL = """\
#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk\
   pclk  pviol  tviol     fb   bar1   ccpm  sbecc  dbecc    pci  rxpci  txpci
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %      %      %      %      %    MHz\
    MHz      %   bool     MB     MB     MB   errs   errs   errs   MB/s   MB/s
 20240104   13:54:35      0    250     60     55     98     40      0      0      0      0   2619\
   1200     90      1  70000     10      0      3      0      2    455    430
"""


def test_the_old_layout() -> None:
    found = read(OLD)
    assert found.format == "nvidia-smi dmon"
    assert values(found, Gpu.sm_clock_mhz) == [1404, 139]
    assert values(found, Gpu.mem_clock_mhz) == [4006, 405]
    assert values(found, Gpu.util_pct) == [98, 100]
    assert values(found, Gpu.power_w) == [26, 7]
    assert state(values(found, Gpu.temp_mem_c)[0]) is State.UNSUPPORTED
    assert found.assumed_s == 1.0


def test_all_groups_with_date_and_time() -> None:
    found = read(ALL)
    (fact,) = facts(found, Gpu)
    assert found.dated
    assert fact.values[Gpu.mem_used_bytes] == 70000 * MIB
    assert fact.values[Gpu.clock_event_reasons] == 0x20
    assert fact.values[Gpu.clock_event_known] == 0x20
    assert fact.rates == {
        Gpu.throttle_sw_power_ns: pytest.approx(0.9e9),
        Gpu.pcie_rx_bytes: 455e6,
        Gpu.pcie_tx_bytes: 430e6,
    }
    assert values(found, GpuHealth.ecc_corrected) == [3]
    assert values(found, GpuHealth.pcie_replays) == [2]
    assert "20 ms" in " ".join(found.limits)


def test_the_header_decides_where_a_column_stands_even_when_it_changes() -> None:
    found = read(OLD + "# gpu    sm   pwr\n# Idx     %     W\n    0    55    99\n")
    assert values(found, Gpu.util_pct) == [98, 100, 55]
    assert values(found, Gpu.power_w) == [26, 7, 99]


def test_the_csv_form_and_several_gpus() -> None:
    text = "#gpu, pwr, gtemp, sm\n#Idx, W, C, %\n0, 100, 50, 90\n1, 110, 51, 91\n0, 100, 50, 92\n"
    found = read(text)
    assert values(found, Gpu.util_pct) == [90, 91, 92]
    assert [fact.t_s for fact in found.facts] == [0, 0, 1]


def test_time_of_day_alone_is_enough_for_distances() -> None:
    head = "#Time        gpu    pwr     sm\n#HH:MM:SS    Idx      W      %\n"
    found = read(head + " 23:59:55      0    100     90\n 00:00:05      0    100     91\n")
    assert [fact.t_s for fact in found.facts] == [0, 10]
    assert found.assumed_s is None


def test_foreign_and_cut_lines_are_counted() -> None:
    found = read(OLD + "^C\nnvidia-smi: killed\n    0    26    6")
    assert len(facts(found, Gpu)) == 2
    assert "3 times" in " ".join(found.doubts)


def test_absurd_rates_are_implausible() -> None:
    text = "# gpu  sm rxpci txpci\n# Idx   %  MB/s  MB/s\n    0  50 -12 99999999999\n"
    fact = read(text).facts[0]
    assert state(fact.values[Gpu.pcie_rx_bytes]) is State.IMPLAUSIBLE
    assert state(fact.values[Gpu.pcie_tx_bytes]) is State.IMPLAUSIBLE
    assert not fact.rates


PMON = """\
# gpu         pid   type     sm    mem    enc    dec    jpg    ofa     fb   ccpm    command
# Idx           #    C/G      %      %      %      %      %      %     MB     MB    name
    0       1312     C     54      3      -      -      -      -     97      0    python
    0       1941   C+G      -      -      -      -      -      -      5      0    my player
    0       1942     G      1      0      -      -      -      -      5      0    Xorg
    0       1943   M+C      1      0      -      -      -      -      5      0    server
    1          -     -      -      -      -      -      -      -      -      -    -
    2          -     -      -      -      -      -      -      -      -      -
"""


def test_processes_with_and_without_work() -> None:
    found = read(PMON)
    assert found.format == "nvidia-smi pmon"
    assert values(found, GpuProcess.pid) == [1312, 1941, 1942, 1943]
    busy = values(found, GpuProcess.sm_util_pct)
    assert busy[0] == 54
    assert state(busy[1]) is State.UNSUPPORTED
    assert values(found, GpuProcess.mem_bytes)[0] == 97 * MIB
    assert values(found, GpuProcess.kind) == [COMPUTE, COMPUTE, GRAPHICS, MPS]
    assert values(found, GpuProcess.process)[1] == "my player"
    assert not found.doubts


def test_a_log_of_idle_gpus_only_has_nothing_to_judge() -> None:
    with pytest.raises(NotImportable, match="without any process"):
        read("\n".join([*PMON.splitlines()[:2], PMON.splitlines()[6]]))
