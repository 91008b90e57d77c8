"""The simulated driver itself, asked through nvidia-ml-py in a child process."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from nvml.build import build, read_stats
from nvml.clock import StepClock, create_clock
from nvml.host import environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PRELUDE = """
import json, os
from pathlib import Path
import pynvml as n
from nvml.clock import StepClock
clock = StepClock(Path(os.environ["NVML_SIM_CLOCK"]))
n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
def answer(value):
    print(json.dumps(value))
def code(call, *args):
    try:
        call(*args)
    except n.NVMLError as error:
        return error.value
    return 0
"""


@pytest.fixture
def ask(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Runs Python against a scenario and returns what it answered."""

    def run(scenario: str, program: str) -> Any:
        library = build(tmp_path_factory.getbasetemp())
        (tmp_path / "s.scn").write_text(textwrap.dedent(scenario))
        env = environment(
            library,
            tmp_path / "s.scn",
            clock=create_clock(tmp_path / "clock"),
            stats=tmp_path / "stats",
        )
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(program)],
            env=env,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return json.loads(done.stdout)

    return run


def test_samples_are_those_newer_than_last_seen(ask: Callable[..., Any]) -> None:
    seen = ask(
        "gpu\n  busy linear 0 0 10 100\n  buffer util 500 4",
        """
        def samples(last):
            kind, found = n.nvmlDeviceGetSamples(gpu, n.NVML_GPU_UTILIZATION_SAMPLES, last)
            return [(s.timeStamp, s.sampleValue.uiVal) for s in found]
        clock.step(4)
        first = samples(0)
        newer = samples(first[1][0])
        nothing = code(n.nvmlDeviceGetSamples, gpu, n.NVML_GPU_UTILIZATION_SAMPLES, first[-1][0])
        answer([first, newer, nothing])
        """,
    )
    first, newer, nothing = seen
    boot_us = 5_000_000_000
    # Four are kept: each the mean of its half second, stamped at the end of it.
    assert first == [
        [boot_us + 2_500_000, 23],
        [boot_us + 3_000_000, 28],
        [boot_us + 3_500_000, 33],
        [boot_us + 4_000_000, 38],
    ]
    assert newer == first[2:]
    assert nothing == 6


def test_counters_agree_with_the_gauges_they_integrate(ask: Callable[..., Any]) -> None:
    energy, throttled, policy, received = ask(
        """
        gpu
          power linear 0 100 10 300
          reasons step 0 0 2 0x4 5 0x24 7 0
          pcie_rx square 1 0.25 4e9 0
        """,
        """
        clock.step(10)
        fields = n.nvmlDeviceGetFieldValues(gpu, [74, 269, 198])
        policy = n.nvmlDeviceGetViolationStatus(gpu, n.NVML_PERF_POLICY_THERMAL).violationTime
        answer([n.nvmlDeviceGetTotalEnergyConsumption(gpu), fields[0].value.ullVal, policy,
                fields[2].value.ullVal])
        """,
    )
    assert energy == 2_000_000
    assert throttled == 5_000_000_000
    assert policy == 2_000_000_000
    assert received == 10_000_000_000


def test_faults_follow_the_clock_and_their_share(ask: Callable[..., Any]) -> None:
    codes, halves = ask(
        """
        gpu
          fail nvmlDeviceGetPowerUsage timeout 2 4
          fail nvmlDeviceGetFanSpeed unknown every 1 2
        """,
        """
        seen = []
        for _ in range(5):
            seen.append(code(n.nvmlDeviceGetPowerUsage, gpu))
            clock.step(1)
        answer([seen, [code(n.nvmlDeviceGetFanSpeed, gpu) for _ in range(4)]])
        """,
    )
    assert codes == [0, 0, 10, 10, 0]
    assert halves == [999, 0, 999, 0]


def test_a_lost_gpu_still_says_who_it_is(ask: Callable[..., Any]) -> None:
    name, power, opened = ask(
        "gpu\n  name Test\n  lost 1",
        """
        clock.step(2)
        answer([n.nvmlDeviceGetName(gpu), code(n.nvmlDeviceGetPowerUsage, gpu),
                code(n.nvmlDeviceGetHandleByIndex, 0)])
        """,
    )
    assert (name, power, opened) == ("Test", 15, 15)


def test_a_call_to_a_gpu_that_sleeps_is_on_record(ask: Callable[..., Any], tmp_path: Path) -> None:
    ask(
        "gpu\n  sleeps 1 3\ngpu\n  pci 00000000:1B:00.0",
        """
        for _ in range(5):
            n.nvmlDeviceGetName(gpu)
            n.nvmlDeviceGetHandleByPciBusId(b"0000:1b:00.0")
            clock.step(1)
        answer(0)
        """,
    )
    stats = read_stats(tmp_path / "stats")
    assert stats["wakes GPU 0"].calls == 2
    assert "wakes GPU 1" not in stats


def test_slow_calls_step_the_clock_and_are_accounted(
    ask: Callable[..., Any], tmp_path: Path
) -> None:
    ask(
        "gpu\n  slow nvmlDeviceGetPowerUsage 7.5",
        """
        n.nvmlDeviceGetPowerUsage(gpu)
        n.nvmlDeviceGetPcieThroughput(gpu, 0)
        answer(0)
        """,
    )
    stats = read_stats(tmp_path / "stats")
    assert stats["nvmlDeviceGetPowerUsage"].ns == 7_500_000
    assert stats["nvmlDeviceGetPcieThroughput"].longest_ns == 20_000_000
    assert StepClock(tmp_path / "clock").t_ns == 27_500_000


def test_process_utilisation_is_a_share_of_the_gpus_own(ask: Callable[..., Any]) -> None:
    records, nobody = ask(
        "gpu\n  busy step 0 80 5 0\n  process 11 1 0.75\n  process 12 1 0.25\n  process 13 1 0",
        """
        clock.step(3)
        found = n.nvmlDeviceGetProcessUtilization(gpu, 0)
        clock.step(3)
        answer([[(r.pid, r.smUtil) for r in found],
                code(n.nvmlDeviceGetProcessUtilization, gpu, found[0].timeStamp)])
        """,
    )
    assert records == [[11, 60], [12, 20]]
    assert nobody == 6


@pytest.mark.parametrize(
    "line",
    [
        *("nonsense 1", "gpu 1 2", "gpu\n  busy", "gpu\n  busy step 3 1 2 1", "gpu\n  pid ${NOPE}"),
        *("gpu\n  link 0 tx 1", "gpu\n  links 37", "gpu\n  links 1\n  link 0 busy 1"),
    ],
)
def test_a_scenario_with_a_fault_is_refused_by_line(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, line: str
) -> None:
    (tmp_path / "s.scn").write_text("driver 1.2\n" + line + "\n")
    done = subprocess.run(
        [sys.executable, "-c", "import pynvml; pynvml.nvmlInit()"],
        env=environment(build(tmp_path_factory.getbasetemp()), tmp_path / "s.scn"),
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert f"s.scn:{1 + len(line.splitlines())}:" in done.stderr


GPM = """
def metrics(one, other, *numbers):
    get = n.c_nvmlGpmMetricsGet_t()
    get.version, get.numMetrics = n.NVML_GPM_METRICS_GET_VERSION, len(numbers)
    get.sample1, get.sample2 = one, other
    for slot, number in zip(get.metrics, numbers):
        slot.metricId = number
    n.nvmlGpmMetricsGet(get)
    return [(slot.nvmlReturn, slot.value) for slot in get.metrics[:len(numbers)]]
one, other = n.nvmlGpmSampleAlloc(), n.nvmlGpmSampleAlloc()
"""


def test_gpm_metrics_are_means_between_samples_that_lie_apart(ask: Callable[..., Any]) -> None:
    found, close, backwards, mixed, freed = ask(
        """
        gpu
          mig 1
          gpm sm linear 0 0 10 100
          pcie_rx 2097152
          mig_device 3 0 1g.10gb 9728 16 1
          fail gpm:3 no-permission
        """,
        GPM
        + textwrap.dedent(
            """
            n.nvmlGpmSampleGet(gpu, one)
            clock.step(0.05)
            n.nvmlGpmSampleGet(gpu, other)
            close = code(metrics, one, other, 2)
            clock.step(1.95)
            n.nvmlGpmSampleGet(gpu, other)
            found = metrics(one, other, 2, 21, 3, 100, 999)
            backwards = code(metrics, other, one, 2)
            clock.step(1)
            n.nvmlGpmMigSampleGet(gpu, 3, other)
            mixed = code(metrics, one, other, 2)
            n.nvmlGpmSampleFree(other)
            freed = code(n.nvmlGpmSampleGet, gpu, other)
            answer([found, close, backwards, mixed, freed])
            """
        ),
    )
    assert found[:2] == [[0, 10.0], [0, 2.0]]
    assert [answer for answer, _ in found[2:]] == [4, 3, 3]
    assert (close, backwards, mixed, freed) == (2, 2, 2, 2)


def test_a_mig_device_answers_for_itself_while_it_is_there(ask: Callable[..., Any]) -> None:
    uuid, ids, name, slices, used, pids, refused, empty, gone = ask(
        """
        gpu
          name H
          mig 1
          mig_device 3 1 1g.10gb 9728 16 1 0 5
          process 7 100 1 instance 3 1
          process 8 100 1 instance 4 0
        """,
        """
        device = n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
        attributes = n.nvmlDeviceGetAttributes_v2(device)
        seen = [
            n.nvmlDeviceGetUUID(device),
            [n.nvmlDeviceGetGpuInstanceId(device), n.nvmlDeviceGetComputeInstanceId(device)],
            n.nvmlDeviceGetName(device),
            [attributes.multiprocessorCount, attributes.gpuInstanceSliceCount],
            n.nvmlDeviceGetMemoryInfo(device).used,
            [p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(device)],
            code(n.nvmlDeviceGetPowerUsage, device),
            code(n.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 1),
        ]
        clock.step(6)
        answer([*seen, code(n.nvmlDeviceGetUUID, device)])
        """,
    )
    assert uuid == "MIG-00000000-0000-0000-0000-000000000001"
    assert (ids, name, slices) == ([3, 1], "H MIG 1g.10gb", [16, 1])
    assert (used, pids) == (100 * 2**20, [7])
    assert (refused, empty, gone) == (2, 6, 6)


def test_scopes_are_links_and_the_module_and_fail_one_by_one(ask: Callable[..., Any]) -> None:
    sent, down, power, module, unknown, counted = ask(
        """
        gpu
          power 300
          power_module 500
          links 2
          link 1 tx 1048576
          link 1 state 0
          fail field:139/1 timeout
        """,
        """
        clock.step(4)
        def field(number, scope=0):
            (value,) = n.nvmlDeviceGetFieldValues(gpu, [(number, scope)])
            return value.nvmlReturn or value.value.ullVal
        answer([[field(138, link) for link in (0, 1, 2)],
                [field(139, 0), field(139, 1), n.nvmlDeviceGetNvLinkState(gpu, 1)],
                [field(186), field(186, 1)], field(185, 1), field(186, 7), field(91)])
        """,
    )
    assert sent == [0, 4096, 2]  # KiB; the third link is an invalid argument
    assert down == [0, 10, 0]
    assert power == [300_000, 500_000]
    assert module == 500_000
    assert unknown == 3
    assert counted == 2


def test_what_is_below_zero_is_not_supported_and_margins_may_be_negative(
    ask: Callable[..., Any],
) -> None:
    fields, threshold, margin = ask(
        "gpu\n  ecc_corrected -1\n  pcie_replays 7\n  temp_max -1",
        """
        values = n.nvmlDeviceGetFieldValues(gpu, [3, 94, 29, 142, 194])
        answer([[v.nvmlReturn for v in values],
                code(n.nvmlDeviceGetTemperatureThreshold, gpu, 3), values[4].value.siVal])
        """,
    )
    assert fields == [3, 0, 3, 0, 0]
    assert threshold == 3
    assert margin == -2
