"""The host-side work of the demo's programs: decoding, resizing, tokenising, in plain Python.

Nothing here waits or pretends: a second of work is a second of one core.
"""

from __future__ import annotations

import base64
import json
import random
import re
import time
import zlib
from typing import NamedTuple

SOURCE_PX = 96
TARGET_PX = 64
CHANNELS = 3
_TEXT = (
    "why is the answer late when the model is fast and the card is idle most of the time while "
    "one core decodes images resizes them and splits text into tokens before each forward pass"
)
_WORDS = tuple(_TEXT.split())
_TOKEN = re.compile(r"[A-Za-z]+|\d+|[^\sA-Za-z\d]")


class Request(NamedTuple):
    """One request as it comes over the wire: JSON with a compressed picture and a text."""

    body: bytes


class Picture(NamedTuple):
    """A decoded picture, rows of RGB bytes."""

    width: int
    height: int
    pixels: bytes


def make_requests(count: int, seed: int) -> list[Request]:
    """Build `count` different requests."""
    rng = random.Random(seed)
    return [_make_request(rng) for _ in range(count)]


def _make_request(rng: random.Random) -> Request:
    # Smooth pictures with some noise compress about as well as photographs do.
    slope = rng.uniform(0.5, 2.5)
    pixels = bytes(
        int(x * slope + y * 1.5 + c * 40 + rng.random() * 12) & 0xFF
        for y in range(SOURCE_PX)
        for x in range(SOURCE_PX)
        for c in range(CHANNELS)
    )
    body = {
        "width": SOURCE_PX,
        "height": SOURCE_PX,
        "picture": base64.b64encode(zlib.compress(pixels)).decode(),
        "text": " ".join(rng.choice(_WORDS) for _ in range(1600)),
    }
    return Request(json.dumps(body).encode())


def decode(request: Request) -> tuple[Picture, str]:
    """Parse the body and unpack the picture, undoing its row differences as PNG readers do."""
    body = json.loads(request.body)
    packed = zlib.decompress(base64.b64decode(body["picture"]))
    above = bytes(body["width"] * CHANNELS)
    rows = []
    for start in range(0, len(packed), len(above)):
        row = packed[start : start + len(above)]
        above = bytes([(value + other) & 0xFF for value, other in zip(row, above, strict=True)])
        rows.append(above)
    return Picture(body["width"], body["height"], b"".join(rows)), body["text"]


def resize(picture: Picture, size: int = TARGET_PX) -> list[float]:
    """Bilinear resize to `size` x `size`, scaled to 0..1, channels last."""
    out: list[float] = []
    pixels, stride = picture.pixels, picture.width * CHANNELS
    for y in range(size):
        from_y = y * (picture.height - 1) / (size - 1)
        top = int(from_y)
        bottom, part_y = min(top + 1, picture.height - 1), from_y - top
        for x in range(size):
            from_x = x * (picture.width - 1) / (size - 1)
            left = int(from_x)
            right, part_x = min(left + 1, picture.width - 1), from_x - left
            for c in range(CHANNELS):
                a = pixels[top * stride + left * CHANNELS + c]
                b = pixels[top * stride + right * CHANNELS + c]
                d = pixels[bottom * stride + left * CHANNELS + c]
                e = pixels[bottom * stride + right * CHANNELS + c]
                upper = a + (b - a) * part_x
                out.append((upper + (d + (e - d) * part_x - upper) * part_y) / 255.0)
    return out


def tokenise(text: str, vocabulary: dict[str, int]) -> list[int]:
    """Split into words, then each word greedily into the longest known pieces."""
    ids: list[int] = []
    for match in _TOKEN.finditer(text):
        word = match.group().lower()
        while word:
            cut = len(word)
            while cut > 1 and word[:cut] not in vocabulary:
                cut -= 1
            ids.append(vocabulary.setdefault(word[:cut], len(vocabulary)))
            word = word[cut:]
    return ids


def make_vocabulary() -> dict[str, int]:
    """Pieces of one to four letters of the words in use."""
    pieces = {word[i : i + n] for word in _WORDS for n in (1, 2, 3, 4) for i in range(len(word))}
    return {piece: number for number, piece in enumerate(sorted(pieces))}


def cpu_s_per_request(requests: list[Request]) -> float:
    """CPU seconds that one request takes on this core: best of a few, the first ones are slow."""
    vocabulary = make_vocabulary()
    best_s = float("inf")
    for request in requests[:6]:
        began = time.thread_time()
        picture, text = decode(request)
        resize(picture)
        tokenise(text, vocabulary)
        best_s = min(best_s, time.thread_time() - began)
    return best_s
