"""What is shown of a command line is what was allowed, never what merely was there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bottletop.linux.command import MAX_SHOWN_CHARS, describe

SECRET = "s3cr3tTokenValue9"


def shown(*argv: str) -> str:
    return describe([part.encode() for part in argv], b"comm").shown


@pytest.mark.parametrize(
    "argv",
    [
        ("python3", "serve.py", "--api-key", SECRET),
        ("python3", "serve.py", f"--api-key={SECRET}"),
        ("python3", "serve.py", SECRET),
        ("python3", "serve.py", "--hf-token", SECRET, "--port", "8000"),
        ("python3", "-c", f"key='{SECRET}'"),
        ("python3", "-Xdev", "-c", SECRET, SECRET),
        ("bash", "-c", f"TOKEN={SECRET} ./run"),
        ("bash", "-lc", SECRET),
        ("node", "-e", SECRET),
        ("node", "server.js", "--require", SECRET),
        ("vllm", "serve", "Qwen/Qwen3-8B", "--enforce-eager", SECRET),
        ("vllm", "serve", "Qwen/Qwen3-8B", "extra", SECRET),
        ("curl", "-H", f"Authorization: Bearer {SECRET}", "http://localhost"),
        ("llama-server", "-m", "x.gguf", "--api-key", SECRET),
        ("unknown-tool", SECRET, "-p", SECRET, f"--password={SECRET}"),
        ("env", f"OPENAI_API_KEY={SECRET}", "python3"),
    ],
)
def test_values_that_nobody_allowed_are_not_shown(argv: tuple[str, ...]) -> None:
    described = describe([part.encode() for part in argv], b"comm")
    for text in (described.shown, described.name, described.title, described.script):
        assert SECRET not in text


@pytest.mark.parametrize(
    "value",
    [
        "sk-proj-abcdefgh12345678",
        "hf_AbCdEfGhIjKlMnOp",
        "ghp_0123456789abcdef0123",
        "eyJhbGciOiJIUzI1NiJ9.payload",
        "0123456789abcdef0123456789abcdef",
        "AKIAIOSFODNN7EXAMPLE",
    ],
)
def test_a_key_given_to_an_allowed_flag_is_still_not_shown(value: str) -> None:
    text = shown("vllm", "serve", value, "--model", value, f"--host={value}")
    assert value not in text
    assert "--model …" in text


def test_user_and_password_of_an_address_are_not_shown() -> None:
    text = shown("vllm", "serve", "x", "--model", f"s3://user:{SECRET}@bucket/m?sig={SECRET}")
    assert SECRET not in text
    assert "s3://bucket/m" in text


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (
            ("/usr/bin/python3.11", "/opt/bin/vllm", "serve", "Qwen/Qwen3-8B", "-tp", "2"),
            "python3.11 vllm serve Qwen/Qwen3-8B -tp 2",
        ),
        (
            ("python", "-m", "vllm.entrypoints.openai.api_server", "--model=/m/llama", "--port=1"),
            "python vllm.entrypoints.openai.api_server --model=/m/llama --port=1",
        ),
        (
            ("python", "-u", "-X", "dev", "-W", "error", "train.py", "--num_workers", "8"),
            "python train.py --num_workers 8",
        ),
        (
            ("llama-server", "-m", "/m/q.gguf", "-c", "8192", "-ngl", "99", "--metrics"),
            "llama-server -m /m/q.gguf -c 8192 -ngl 99 --metrics",
        ),
        (("uvicorn", "app:api", "--workers", "4"), "uvicorn app:api --workers 4"),
        (("torchrun", "--nproc-per-node", "8", "train.py"), "torchrun --nproc-per-node 8"),
        (("bash", "-O", "extglob", "./run.sh", "prod"), "bash run.sh"),
    ],
)
def test_what_helps_to_tell_servers_apart_is_shown(argv: tuple[str, ...], expected: str) -> None:
    assert shown(*argv) == expected


@pytest.mark.parametrize(
    ("argv", "comm", "name"),
    [
        (("python3", "/srv/app/serve.py"), b"python3", "serve.py"),
        (("python3", "-m", "http.server"), b"python3", "http.server"),
        (("python3", "-c", "pass"), b"python3", "python3"),
        (("python3", "-"), b"python3", "python3"),
        (("VLLM::EngineCore",), b"VLLM::EngineCor", "VLLM::EngineCore"),
        (("sglang::scheduler_TP0",), b"sglang::schedul", "sglang::scheduler_TP0"),
        (("gunicorn: worker [app]",), b"gunicorn: worke", "gunicorn: worker [app]"),
        (("/usr/bin/llama-server", "-m", "x"), b"llama-server", "llama-server"),
        (("-bash",), b"bash", "bash"),
        ((), b"kworker/0:1", "kworker/0:1"),
    ],
)
def test_the_name_is_what_a_person_would_call_it(
    argv: tuple[str, ...], comm: bytes, name: str
) -> None:
    assert describe([part.encode() for part in argv], comm).name == name


def test_a_title_that_carries_arguments_is_cut_to_its_first_word() -> None:
    described = describe([b"worker: run --api-key=" + SECRET.encode()], b"worker")
    assert described.title == "worker:"
    assert SECRET not in described.shown


def test_a_broken_byte_is_replaced_and_the_rest_kept() -> None:
    described = describe([b"/usr/bin/kio_http\xc3", b"--port", b"80"], b"kio_http\xc3")
    assert described.shown == "kio_http� --port 80"


@given(st.lists(st.binary(max_size=80), max_size=12), st.binary(max_size=16))
def test_any_bytes_give_short_printable_text(argv: list[bytes], comm: bytes) -> None:
    described = describe(argv, comm)
    for text in (described.shown, described.name, described.title, described.script):
        assert len(text) <= MAX_SHOWN_CHARS
        assert not any(char < " " or "\x7f" <= char <= "\x9f" for char in text)
    assert described.name
