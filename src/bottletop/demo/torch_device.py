"""Forward passes on a real GPU through torch, for `--real-gpu`. Runs in the child, never in the
monitor, so torch is looked up only when a device is made."""

from __future__ import annotations

import importlib
import time
from typing import Any

from bottletop.probe import stage

SIZE = 4096


class NoRealGpu(Exception):
    """There is no GPU that torch could use; the message says what is missing."""


class TorchDevice:
    """Half-precision matrix products, as many as fill the asked time on this card."""

    def __init__(self) -> None:
        """Make the matrices and time a product. Raises `NoRealGpu`."""
        try:
            torch: Any = importlib.import_module("torch")
        except ImportError as error:
            raise NoRealGpu("--real-gpu needs torch: pip install 'bottletop[torch]'") from error
        if not torch.cuda.is_available():
            raise NoRealGpu(f"torch {torch.__version__} finds no CUDA GPU here")
        self._torch = torch
        self._left = torch.randn(SIZE, SIZE, dtype=torch.float16, device="cuda")
        self._right = torch.randn(SIZE, SIZE, dtype=torch.float16, device="cuda")
        self._out = torch.empty_like(self._left)
        self._multiply(20)
        began = time.monotonic()
        self._multiply(200)
        self._s_per_product = (time.monotonic() - began) / 200

    def forward(self, seconds: float) -> None:
        """One pass of about `seconds` of GPU time."""
        with stage("forward"):
            self._multiply(max(1, round(seconds / self._s_per_product)))

    def _multiply(self, count: int) -> None:
        for _ in range(count):
            self._torch.mm(self._left, self._right, out=self._out)
        self._torch.cuda.synchronize()
