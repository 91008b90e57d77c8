"""Rule recovery-required."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.model import Absent, Confidence, Severity
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.entities import gpu_place
from bottletop.tables import Gpu, GpuHealth
from bottletop.tables.gpu import HEALTH, LOST, RESET_REQUIRED
from bottletop.tables.gpu_health import RECOVERY_ACTION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.store import View

GPU_RESET, NODE_REBOOT, DRAIN_P2P, DRAIN_RESET, IMEX_RESET, BUS_RESET, SYSTEM_REBOOT = range(1, 8)
WHAT_TO_DO = {
    GPU_RESET: "Stop what runs on it, then nvidia-smi --gpu-reset -i GPU (root).",
    NODE_REBOOT: "Move its work to another node and reboot this one.",
    DRAIN_P2P: "Stop the jobs whose GPUs exchange data with it, and start them again without it.",
    DRAIN_RESET: "Let running work end, start none, then nvidia-smi --gpu-reset -i GPU (root).",
    IMEX_RESET: "Restart the IMEX service of its NVLink domain, then the jobs that use it.",
    BUS_RESET: "Stop what runs on it and have its PCIe slot reset, or reboot.",
    SYSTEM_REBOOT: "Reboot the machine; where that does not help, take its power away first.",
}
"""By recovery action."""
LOST_ADVICE = (
    "Read the kernel log for the Xid before it; reboot. If it comes back: temperature, power "
    "connectors and supply, seating, SBIOS. nvidia-smi -lgc with low clocks tells power apart."
)


class RecoveryRequired(Rule):
    """The driver says that a GPU does not work on without a reset, or has lost it.

    What
        The driver cannot reach a GPU any more, refuses it until it is reset, or asks for a recovery
        action. Other GPUs of the host are not affected.
    Why
        Nothing that is read of such a GPU says anything about speed, and every process on it fails
        or hangs. The driver's own action is the best advice there is: counters may all read zero
        while it asks for a reset.
    How judged
        The state in which the driver answers for this GPU (lost, reset required), and NVML field
        230 where the driver has it. An older driver without the field is not asked and counts as
        asking for nothing. While it holds, nothing else is said of this GPU.
    What to do
        What the driver asks for: a reset, a drain, a reboot. For a lost GPU read the kernel log,
        check temperature, power connectors and supply, seating and SBIOS, in this order.
    When it is wrong
        A GPU that was taken away on purpose (passed to a virtual machine, unplugged, driver
        reloaded) is lost to us too. One that is back is reported no longer after a few seconds.
    References
        NVML errors GPU_IS_LOST and RESET_REQUIRED, field NVML_FI_DEV_GET_GPU_RECOVERY_ACTION;
        scitix/sichek issue 121; k8s-device-plugin issue 231; open-gpu-kernel-modules issue 507.
    """

    code = "recovery-required"
    title = "GPU lost or in need of a reset"
    severity = Severity.CRIT
    role = Role.PATTERN
    scope = Gpu
    needs = (Gpu.index, Gpu.pci_bus_id, Gpu.health, Gpu.util_pct, GpuHealth.recovery_action)
    window_s = 30
    fire = KofN(1, 1)
    clear = KofN(3, 3)
    thresholds: ClassVar[Mapping[str, Threshold]] = {}
    mutes = (
        "clocks-held-low",
        "decode-bound",
        "gpu-busy-low-efficiency",
        "gpu-contended",
        "gpu-idle-no-demand",
        "gpu-starved-cpu",
        "gpu-starved-external",
        "gpu-starved-io",
        "gpu-util-sawtooth",
        "h2d-bound",
        "pcie-link-degraded",
        "power-brake",
        "power-cap-at-limit",
        "power-cap-below-limit",
        "power-limit-lowered",
        "sensor-implausible",
        "thermal-throttle",
    )
    advice = LOST_ADVICE
    refuted_by = "nvidia-smi -i GPU shows live readings, and a small CUDA program runs on it."
    next_check = "dmesg -T | grep -iE 'xid|nvrm' shows what came before it; nvidia-smi -q -i GPU."

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Take the state in which the driver answers, and what it asks for."""
        del limits
        health = view.last(Gpu.health, key)
        if health == LOST:
            return self._fires(view, key, f"is lost{_why(view, key)}", HEALTH[LOST], LOST_ADVICE)
        action = view.last(GpuHealth.recovery_action, key)
        asked = int(action) if isinstance(action, (int, float)) else 0
        wanted = RECOVERY_ACTION.get(asked, f"action {asked}")
        do = WHAT_TO_DO.get(asked, WHAT_TO_DO[GPU_RESET])
        if health == RESET_REQUIRED:
            also = f" ({wanted})" if asked else ""
            said = f"works no further until it is reset, says the driver{also}"
            return self._fires(view, key, said, HEALTH[RESET_REQUIRED], do)
        if asked:
            said = f"needs recovery: the driver asks for {wanted}"
            return self._fires(view, key, said, "", do)
        return Quiet()

    def _fires(self, view: View, key: str, said: str, state: str, advice: str) -> Fires:
        shown = evidence(Gpu.health, key, state)
        if not state:
            asked = int(view.number(GpuHealth.recovery_action, key))
            shown = evidence(
                GpuHealth.recovery_action, key, RECOVERY_ACTION.get(asked, f"action {asked}")
            )
        return Fires(
            text=f"{gpu_place(view, key)} {said}",
            evidence=(shown,),
            confidence=Confidence.HIGH,
            advice=advice,
        )


def _why(view: View, key: str) -> str:
    """What the driver said of a lost GPU, where that says more."""
    util = view.last(Gpu.util_pct, key)
    why = util.reason if isinstance(util, Absent) else ""
    return f": {why}" if why and "is lost" not in why.lower() and len(why) <= 60 else ""
