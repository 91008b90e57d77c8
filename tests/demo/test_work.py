"""The host-side work is real: it undoes what was packed and keeps what pictures and texts say."""

from __future__ import annotations

import pytest

from bottletop.demo import work


def test_decoding_gives_back_a_whole_picture_and_its_text() -> None:
    request = work.make_requests(1, seed=5)[0]
    picture, text = work.decode(request)
    assert len(picture.pixels) == picture.width * picture.height * work.CHANNELS
    assert len(text.split()) > 100


def test_resizing_keeps_corners_and_range() -> None:
    picture, _ = work.decode(work.make_requests(1, seed=5)[0])
    out = work.resize(picture, 8)
    assert len(out) == 8 * 8 * work.CHANNELS
    assert out[0] == pytest.approx(picture.pixels[0] / 255)
    assert out[-1] == pytest.approx(picture.pixels[-1] / 255)
    assert 0 <= min(out) <= max(out) <= 1


def test_a_flat_picture_stays_flat() -> None:
    flat = work.Picture(5, 5, bytes([51]) * 5 * 5 * work.CHANNELS)
    assert work.resize(flat, 7) == pytest.approx([0.2] * 7 * 7 * work.CHANNELS)


def test_tokens_spell_the_text() -> None:
    vocabulary = work.make_vocabulary()
    ids = work.tokenise("Why is the model idle? 42", vocabulary)
    spelled = {number: piece for piece, number in vocabulary.items()}
    assert "".join(spelled[number] for number in ids) == "whyisthemodelidle?42"


def test_requests_differ_and_are_the_same_each_time() -> None:
    first, second = work.make_requests(2, seed=5)
    assert first != second
    assert work.make_requests(2, seed=5) == [first, second]
