"""An SVG of the screen as a PNG with the right widths, without a browser.

Textual's SVG gives each run of text a length and leaves the font to the viewer. A renderer spreads
the difference over all characters of a run, so a run that mixes glyphs of two fonts (braille comes
from another font than letters) is drawn with both at the wrong width. Runs are therefore split.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

FONT = "DejaVu Sans Mono"
FONT_FOLDERS = ("/usr/share/fonts/truetype/dejavu", "/usr/share/fonts/dejavu-sans-mono-fonts")

_TEXT = re.compile(
    r'<text class="(?P<cls>[^"]*)" x="(?P<x>[^"]*)" y="(?P<y>[^"]*)" '
    r'textLength="(?P<length>[^"]*)" clip-path="(?P<clip>[^"]*)">(?P<text>[^<]*)</text>'
)
_RUNS = re.compile("[\u2800-\u28ff]+|[^\u2800-\u28ff\xa0]+(?:\xa0[^\u2800-\u28ff\xa0]+)*")


def split_runs(svg: str) -> str:
    """Give every run of one kind of glyph its own place and length; drop blank runs."""
    return _TEXT.sub(_split, svg).replace("Fira Code", FONT)


def _split(match: re.Match[str]) -> str:
    text = html.unescape(match["text"])
    if not text:
        return ""
    x, cell = float(match["x"]), float(match["length"]) / len(text)
    return "".join(
        f'<text class="{match["cls"]}" x="{x + run.start() * cell:.2f}" y="{match["y"]}" '
        f'textLength="{len(run[0]) * cell:.2f}" clip-path="{match["clip"]}">'
        f"{html.escape(run[0])}</text>"
        for run in _RUNS.finditer(text)
    )


def png(svg: str) -> bytes:
    """Render. Raises RuntimeError where no font with the needed glyphs is installed."""
    import resvg_py

    folders = [folder for folder in FONT_FOLDERS if Path(folder).is_dir()]
    if not folders:
        raise RuntimeError(f"needs the font {FONT} (Debian: fonts-dejavu-core)")
    return bytes(
        resvg_py.svg_to_bytes(svg_string=split_runs(svg), monospace_family=FONT, font_dirs=folders)
    )
