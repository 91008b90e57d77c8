"""Rule sensor-implausible."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.model import Absent, Confidence, Severity, State
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.clocks import BUSY_PCT
from bottletop.rules.entities import gpu_name
from bottletop.tables import Gpu
from bottletop.tables.gpu import OK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence, Metric
    from bottletop.store import View

SENSORS: tuple[tuple[Metric, str], ...] = (
    (Gpu.power_w, "power"),
    (Gpu.power_limit_w, "power limit"),
    (Gpu.temp_c, "temperature"),
    (Gpu.sm_clock_mhz, "SM clock"),
    (Gpu.util_pct, "utilisation"),
    (Gpu.mem_used_bytes, "memory"),
    (Gpu.fan_pct, "fan"),
)
BROKEN = (State.IMPLAUSIBLE, State.ERROR)
MOST_REASON = 40


class SensorImplausible(Rule):
    """A sensor of one GPU answers nonsense or errors, where its neighbours' answer well.

    What
        Power, temperature, clock, memory or fan of a GPU that works otherwise cannot be read, or
        reads what no part can have.
    Why
        Judgements that rest on it are not made, and whoever takes the number for real is misled: a
        missing power reading looks like an idle card.
    How judged
        The driver answers with an error or with a value outside what is possible (all ones, far
        above the card's limit, nothing at all while kernels run), for at least five of eight looks.
        What a card does not support counts only beside such an error, and only where another card
        of the same model supports it. Only the GPU with the sensor is meant.
    What to do
        Reload the driver or reboot; if it stays, update driver and VBIOS; then it is the board.
    When it is wrong
        Fans that the board's own controller turns may answer an error by design. A driver update
        can take a reading away for a whole model: then no neighbour has it.
    References
        open-gpu-kernel-modules issue 1193; nvtop and nvitop showing 4294967295 W and 16384 PiB for
        all-ones answers; polarsignals/gpu-metrics-agent issue 37.
    """

    code = "sensor-implausible"
    title = "a GPU sensor cannot be believed"
    severity = Severity.WARN
    role = Role.PATTERN
    scope = Gpu
    needs = (Gpu.index, Gpu.model, Gpu.health, *(metric for metric, _ in SENSORS))
    window_s = 10
    fire = KofN(5, 8)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "over_limit": Threshold(1.5, "", "judgement", "power over the enforced limit, as a factor"),
    }
    advice = (
        "Reload the driver or reboot; if it stays, update driver and VBIOS, and compare with the "
        "card in another slot."
    )
    refuted_by = "nvidia-smi -q -i GPU shows a plausible value for the same sensor, time and again."
    next_check = "nvidia-smi -q -d POWER,TEMPERATURE,CLOCK -i GPU, beside a healthy neighbour."

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Collect the sensors of this GPU that answer, but not well."""
        if not _answers(view, key):
            return Quiet()
        found = [
            (name, why, evidence(metric, key, why))
            for metric, name in SENSORS
            if (why := self._broken(view, key, metric))
        ]
        found += self._absurd_power(view, key, limits["over_limit"])
        if not found:
            return Quiet()
        found += [
            (name, "not given", evidence(metric, key, "not given, though its neighbours have it"))
            for metric, name in SENSORS
            if self._missing_here(view, key, metric)
        ]
        named = ", ".join(f"{name} ({why})" for name, why, _ in found[:2])
        more = f" and {len(found) - 2} more" if len(found) > 2 else ""
        beside = self._well_beside(view, key)
        text = f"readings of {gpu_name(view, key)} cannot be believed: {named}{more}"
        return Fires(
            text=f"{text}; {beside} read well" if beside else text,
            evidence=tuple(shown for _, _, shown in found),
            confidence=Confidence.HIGH if beside else Confidence.MEDIUM,
        )

    @staticmethod
    def _broken(view: View, key: str, metric: Metric) -> str:
        """How a sensor answers where it does not answer well, empty where it does."""
        value = view.last(metric, key)
        if not isinstance(value, Absent) or value.state not in BROKEN:
            return ""
        if value.state is State.IMPLAUSIBLE:
            return "not possible"  # the number itself, such as 4294967295, would be taken for real
        return value.reason[:MOST_REASON] or "error"

    @staticmethod
    def _absurd_power(view: View, key: str, factor: float) -> list[tuple[str, str, Evidence]]:
        """Power that a working card cannot draw: far over its limit, or none while kernels run."""
        power, limit = view.last(Gpu.power_w, key), view.last(Gpu.power_limit_w, key)
        busy = view.last(Gpu.util_pct, key)
        if not isinstance(power, (int, float)):
            return []
        if isinstance(limit, (int, float)) and 0 < factor * limit < power:
            shown = evidence(Gpu.power_w, key, power, threshold=round(factor * limit, 1))
            return [("power", f"{power:.0f} W over a limit of {limit:.0f} W", shown)]
        if power == 0 and isinstance(busy, (int, float)) and busy >= BUSY_PCT:
            return [("power", "none while it is busy", evidence(Gpu.power_w, key, "none"))]
        return []

    @staticmethod
    def _missing_here(view: View, key: str, metric: Metric) -> bool:
        """Whether only this card of its model lacks a reading."""
        value = view.last(metric, key)
        if not isinstance(value, Absent) or value.state is not State.UNSUPPORTED:
            return False
        model = view.text(Gpu.model, key)
        return any(
            isinstance(view.last(metric, other), (int, float))
            for other in view.keys(Gpu)
            if other != key and view.text(Gpu.model, other) == model
        )

    def _well_beside(self, view: View, key: str) -> str:
        """ "GPU 1", "2 others": GPUs whose sensors all answer well."""
        well = [
            other
            for other in view.keys(Gpu)
            if other != key
            and _answers(view, other)
            and not any(self._broken(view, other, metric) for metric, _ in SENSORS)
        ]
        if not well:
            return ""
        return gpu_name(view, well[0]) if len(well) == 1 else f"{len(well)} others"


def _answers(view: View, key: str) -> bool:
    """Whether a GPU is neither lost, asleep nor closed to us: its sensors are expected to read."""
    health = view.last(Gpu.health, key)
    return not isinstance(health, (int, float)) or health == OK
