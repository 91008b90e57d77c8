"""Rule decode-bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.model import Confidence, Severity
from bottletop.rules import load
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.entities import gpu_name
from bottletop.tables import Gpu, GpuActivity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Metric
    from bottletop.store import View


class DecodeBound(Rule):
    """The video decoders are full while the SMs wait.

    What
        The GPU's video decoder works all the time, and its SMs for a small part of it.
    Why
        A video pipeline is as fast as its decoder; GPU utilisation, which counts kernels only,
        shows an idle card.
    How judged
        Decoder utilisation at least 95 % while the SMs are at most 30 % busy over 10 s: from GPM
        where there is one (Hopper and newer), else from the driver's decoder utilisation, which is
        looked at every 10 s, beside its busy time.
    What to do
        Spread streams over more GPUs, decode at a lower resolution or frame rate, skip frames that
        are not used, or decode a part on the CPU.
    When it is wrong
        The driver's number is the mean of all decoders on some parts and of one on others.
    References
        nvmlDeviceGetDecoderUtilization; GPM metrics 30-37.
    """

    code = "decode-bound"
    title = "video decoding holds the GPU back"
    severity = Severity.ADVICE
    role = Role.PATTERN
    scope = Gpu
    needs = (
        *load.NEEDS,
        Gpu.index,
        Gpu.dec_util_pct,
        GpuActivity.decoder_pct,
        GpuActivity.sm_pct,
    )
    window_s = 10
    fire = KofN(8, 10)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "decoder": Threshold(95, "%", "judgement", "decoder utilisation that counts as full"),
        "decoder_near": Threshold(80, "%", "judgement", "below this it ends"),
        "sm": Threshold(30, "%", "judgement", "activity up to which the SMs count as waiting"),
    }
    advice = (
        "Spread streams over more GPUs, lower resolution or frame rate before decoding, skip "
        "frames that are not used, or decode a part on the CPU."
    )
    refuted_by = "Throughput does not rise when fewer or smaller streams are decoded."
    next_check = "nvidia-smi dmon -s u -i GPU shows the decoder's column beside sm."

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Compare decoders and SMs. Raises `Missing` where neither source has the decoders."""
        decoder, source = self._decoder(view, key)
        if decoder < limits["decoder"]:
            return Quiet(near=decoder >= limits["decoder_near"])
        busy = load.load(view, key, self.window_s, at_least_s=self.window_s - 2).busy
        active = _mean(view, GpuActivity.sm_pct, key, self.window_s)
        sm, metric = (100 * busy, Gpu.util_pct) if active is None else (active, GpuActivity.sm_pct)
        if sm > limits["sm"]:
            return Quiet()
        return Fires(
            text=(
                f"video decoders of {gpu_name(view, key)} are {decoder:.0f} % busy while its SMs "
                f"wait ({sm:.0f} % busy)"
            ),
            evidence=(
                evidence(source, key, round(decoder, 1), threshold=limits["decoder"]),
                evidence(metric, key, round(sm, 1), threshold=limits["sm"], span_s=self.window_s),
            ),
            confidence=Confidence.MEDIUM if active is None else Confidence.HIGH,
        )

    def _decoder(self, view: View, key: str) -> tuple[float, Metric]:
        active = _mean(view, GpuActivity.decoder_pct, key, self.window_s)
        if active is not None:
            return active, GpuActivity.decoder_pct
        return view.number(Gpu.dec_util_pct, key), Gpu.dec_util_pct


def _mean(view: View, metric: Metric, key: str, span_s: float) -> float | None:
    values = [value for value in view.series(metric, key, span_s).values if value == value]
    return sum(values) / len(values) if values else None
