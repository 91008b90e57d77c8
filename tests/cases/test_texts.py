"""Known cases as people posted them: texts and tables of nvidia-smi through `report --from`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bottletop.cli import main

DATA = Path(__file__).parent / "data"


class Report:
    """What `report --from` gave, in both forms."""

    def __init__(self, document: dict[str, Any], text: str, code: int) -> None:
        self.document, self.text, self.code = document, text, code
        self.findings = {finding["code"]: finding for finding in document["findings"]}

    @property
    def said(self) -> str:
        """Verdict and findings, without what could not be seen."""
        return self.text.partition("NOT SEEN")[0]


@pytest.fixture
def judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)

    def run(*names: str) -> Report:
        paths = [str(DATA / name) for name in names]
        main(["report", "--json", "--from", *paths])
        document = json.loads(capsys.readouterr().out)
        code = main(["report", "--from", *paths])
        return Report(document, capsys.readouterr().out, code)

    return run


def test_full_utilisation_at_139_mhz_on_battery(judged: Any) -> None:
    found = judged("unplugged-dmon.txt")
    finding = found.findings["clocks-held-low"]
    assert finding["severity"] == "warn"
    for words in ("100 % busy", "139 MHz", "6 W", "performance state forced low"):
        assert words in finding["text"]
    assert "on battery" in finding["advice"]
    assert "AC adapter not seen" in finding["advice"]
    assert "thermal" not in found.said
    assert "compute" not in found.said
    assert found.code == 1


def test_rows_remapped_long_ago_are_no_fault(judged: Any) -> None:
    found = judged("remapped-q.txt")
    assert {finding["severity"] for finding in found.findings.values()} <= {"info"}
    assert "unhealthy" not in found.text
    assert found.code == 0


def test_a_driver_that_asks_for_a_reset_is_heard_although_all_counters_are_zero(
    judged: Any,
) -> None:
    found = judged("reset-asked-q.txt")
    finding = found.findings["recovery-required"]
    assert finding["severity"] == "crit"
    assert "reset" in finding["text"]
    assert "healthy" not in found.said
    assert found.code == 1


def test_unified_memory_is_the_systems_and_no_reading_is_lost(judged: Any) -> None:
    found = judged("unified.csv", "unified-meminfo.txt")
    assert "shared 121.7 GiB (system memory)" in found.text
    for words in ("0 MiB", "0% memory"):
        assert words not in found.text
    (gpu,) = found.document["gpus"]
    assert (gpu["util_pct"], gpu["temp_c"]) == (0, 35)
    assert gpu["power_w"] == pytest.approx(11.17, abs=0.05)
    assert gpu["mem_used_bytes"] is None
    assert "[N/A]" in gpu["absent"]["mem_used_bytes"]


def test_memory_that_is_not_told_of_a_process_is_no_number(judged: Any) -> None:
    found = judged("wsl-gpu.csv", "wsl-apps.csv")
    assert "14360 of 16376 MiB" in found.text
    assert "pid 79: GPU mem n/a" in found.text
    assert "17179869184" not in found.text
    (process,) = found.document["gpu_processes"]
    assert process["mem_bytes"] is None


def test_a_fan_that_reads_err_is_that_cards_sensor_and_no_zero(judged: Any) -> None:
    found = judged("fan-error.txt")
    finding = found.findings["sensor-implausible"]
    assert finding["severity"] == "warn"
    assert "GPU 0" in finding["text"]
    first, second = found.document["gpus"]
    assert (first["fan_pct"], first["power_w"]) == (None, None)
    assert (second["fan_pct"], second["power_w"]) == (0, 12)
    assert finding["scope"] == first["gpu"]


def test_a_lost_card_has_its_address(judged: Any) -> None:
    found = judged("lost.txt")
    finding = found.findings["recovery-required"]
    assert finding["severity"] == "crit"
    assert finding["scope"] == "00000000:C1:00.0"
    assert "lost" in finding["text"]


@pytest.mark.parametrize(
    ("name", "code", "scope", "words"),
    [
        ("capped-at-60-percent.csv", "power-cap-below-limit", "GPU 0", "60 %"),
        ("stuck-state.csv", "clocks-held-low", "GPU 3", "P8 under load, GPU 2 runs P0"),
        ("riser.csv", "h2d-bound", "GPU 1", "x1 Gen2"),
    ],
)
def test_series_that_the_driver_gave_say_the_same_as_logs(
    name: str, code: str, scope: str, words: str, judged: Any
) -> None:
    finding = judged(name).findings[code]
    assert finding["scope"] == scope
    assert words in finding["text"]


def test_an_idle_link_is_no_finding_in_a_log_either(judged: Any) -> None:
    found = judged("idle-link.csv")
    assert {finding["severity"] for finding in found.findings.values()} <= {"info"}
    assert "downgraded" not in found.text
