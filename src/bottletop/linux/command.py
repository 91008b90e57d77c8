"""What a command line says, and what of it may be shown.

Command lines carry API keys, tokens and prompts. So nothing is shown because it is there: only the
program, the script or module, known subcommands with their model or app, and flags named in the
tables below. What matches none of them is left out without a trace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MAX_SHOWN_CHARS = 160
MAX_VALUE_CHARS = 64

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*t?\Z")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish", "ash"})
_OTHER_INTERPRETERS = frozenset({"node", "bun", "deno", "ruby", "perl", "java"})


def _named(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Flags with a value. Underscores and dashes are the same: vLLM, SGLang and torchrun accept both.
_VALUE_FLAGS = _named("""
    model model-path model-id model-name served-model-name tokenizer tokenizer-path revision
    model-repository model-store model-dir lora-modules chat-template load-format
    tensor-parallel-size tp tp-size tensor-parallel pipeline-parallel-size pp pp-size
    data-parallel-size dp dp-size expert-parallel-size ep-size num-shard nnodes nproc-per-node
    nproc node-rank rank local-rank world-size rdzv-backend num-processes num-machines
    distributed-executor-backend device devices backend worker-class attention-backend
    dtype quantization kv-cache-dtype precision mixed-precision load-in
    max-model-len max-num-seqs max-num-batched-tokens gpu-memory-utilization swap-space
    cpu-offload-gb block-size max-seq-len max-seq-len-to-capture mem-fraction-static
    chunked-prefill-size max-running-requests context-length schedule-policy
    schedule-conservativeness
    max-batch-prefill-tokens max-total-tokens max-input-length max-input-tokens
    max-concurrent-requests
    max-batch-size max-batch-total-tokens waiting-served-ratio cuda-graphs cuda-graph-max-bs
    ctx-size n-gpu-layers gpu-layers threads threads-batch threads-http parallel batch-size
    ubatch-size n-predict split-mode tensor-split main-gpu cache-type-k cache-type-v flash-attn
    numa poll prio cpu-mask cpu-range
    port host http-port grpc-port metrics-port prometheus-port uds listen bind
    workers num-workers worker-connections prefetch-factor num-threads threads-per-worker replicas
    batch batch-timeout limit-concurrency backlog timeout-keep-alive loop http
    speculative-model num-speculative-tokens runner-type task
    """)
_SWITCHES = _named("""
    enforce-eager enable-prefix-caching no-enable-prefix-caching enable-chunked-prefill
    no-enable-chunked-prefill disable-log-stats disable-log-requests enable-metrics metrics
    disable-metrics trust-remote-code async-scheduling disable-cuda-graph disable-radix-cache
    enable-torch-compile enable-dp-attention enable-expert-parallel disable-overlap-schedule
    mlock no-mmap mmap cont-batching no-cont-batching slots no-slots embedding embeddings reranking
    fp16 bf16 half compile eval train pin-memory no-cuda cpu amp reload preload
    standalone use-deepspeed no-kv-offload
    """)
_SHORT_LLAMA = _named("m c t tb b ub n np fa ngl hf hff ts sm mg ctk ctv md cd ngld alias")
_SHORT: Mapping[str, frozenset[str]] = {
    "llama-server": _SHORT_LLAMA,
    "llama-cli": _SHORT_LLAMA,
    "llama-bench": _SHORT_LLAMA | {"p", "r"},
    "llamafile": _SHORT_LLAMA,
    "vllm": frozenset({"tp", "pp", "dp"}),
    "gunicorn": frozenset({"w", "b", "k"}),
    "torchrun": frozenset(),
}
# Programs whose leading words are commands, models, apps or scripts: how many of them may be shown.
_WORDS: Mapping[str, int] = {
    "vllm": 2,
    "sglang": 2,
    "ollama": 1,
    "uvicorn": 1,
    "hypercorn": 1,
    "granian": 1,
    "gunicorn": 1,
    "fastapi": 2,
    "torchrun": 1,
    "accelerate": 2,
    "deepspeed": 1,
    "trtllm-serve": 2,
    "lmdeploy": 3,
    "bentoml": 2,
    "ray": 1,
    "serve": 2,
    "litellm": 0,
    "openclaw": 2,
    "text-generation-server": 2,
    "transformers": 2,
    "celery": 0,
}

_PLAIN_WORD = re.compile(r"[\w@./:+,=~\[\]-]+\Z")
_TITLE = re.compile(r"[\w@./:+,=~()\[\]# -]+\Z")
_USER_INFO = re.compile(r"(?<=//)[^/@\s]*@")
_QUERY = re.compile(r"[?#].*")
_SECRET = re.compile(
    r"""(?:sk-|sk_|rk_|pk_|hf_|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|nvapi-|eyJ|
    AIza|ya29\.|pypi-|npm_)[\w.=-]{8,} | (?=\S*\d)(?=\S*[A-Za-z])[A-Za-z0-9_+=]{32,}\Z""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, taken apart. All texts are clean and free of secrets."""

    program: str
    """Basename of the first argument."""
    script: str
    """Script or module that an interpreter runs, without its folder; empty for other programs."""
    title: str
    """Title that the program gave itself in place of its arguments; empty where it did not."""
    name: str
    """The shortest name a person would use: title, script, or command name."""
    shown: str
    """Program, script and the flags that are safe to show."""


def describe(argv: Sequence[bytes], comm: bytes) -> Command:
    """Take a command line apart. `comm` names what has none: kernel threads, zombies."""
    comm_name = clean(comm, 64) or "?"
    if not argv or not argv[0].strip():
        return Command(comm_name, "", "", comm_name, comm_name)
    title = _title_of(argv)
    if title:
        return Command(comm_name, "", title, title, title)
    words = [clean(argument, 1024) for argument in argv]
    program = _base(words[0]).lstrip("-") or comm_name
    rest: Sequence[str] = words[1:]
    if _PYTHON.match(program):
        script, rest = _python_script(rest)
    elif program in _SHELLS or program in _OTHER_INTERPRETERS:
        script, rest = _first_word(rest, program)
    else:
        script = ""
    main = script or program
    parts = [program, *([script] if script else []), *_safe_words(main, rest)]
    parts += _safe_flags(main, rest)
    named = script if script and script != "-c" else comm_name if script else program
    shown = clean(" ".join(parts), MAX_SHOWN_CHARS)
    return Command(program, "" if script == "-c" else script, "", clean(named, 64), shown)


def _title_of(argv: Sequence[bytes]) -> str:
    """The title of a process that overwrote its arguments: one string, no path of a program."""
    if len([part for part in argv if part.strip()]) != 1:
        return ""
    raw = clean(argv[0], 128)
    looks_like_title = "::" in raw or ": " in raw or ("[" in raw and " " in raw)
    if not looks_like_title or raw.startswith("/"):
        return ""
    if "--" in raw or not _TITLE.match(raw) or any(_SECRET.search(word) for word in raw.split()):
        return clean(raw.split()[0].partition("=")[0], 64)
    return raw


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _python_script(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Script or module after the interpreter's own options, and what follows it."""
    index = 0
    while index < len(words):
        word = words[index]
        if not word.startswith("-"):
            return _base(word), words[index + 1 :]
        if word == "-":
            return "", words[index + 1 :]
        if word.startswith("--"):
            index += 2 if word == "--check-hash-based-pycs" else 1
            continue
        for at, letter in enumerate(word[1:], 1):
            attached = word[at + 1 :]
            if letter == "c":
                return "-c", ()
            if letter == "m":
                module = attached or (words[index + 1] if index + 1 < len(words) else "")
                return module, words[index + (1 if attached else 2) :]
            if letter in "XW":
                index += 0 if attached else 1
                break
        index += 1
    return "", ()


def _first_word(words: Sequence[str], program: str) -> tuple[str, Sequence[str]]:
    """Script of a shell or another interpreter. Code given on the command line stays unseen."""
    shell = program in _SHELLS
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.startswith(("-", "+") if shell else "-"):
            # A script handed over as an open file has no name worth showing.
            return "" if word.startswith("/dev/fd/") else _base(word), words[index:]
        if shell:
            if not word.startswith("--") and "c" in word:
                return "-c", ()
            index += word[1:] in ("o", "O")
        elif word in ("-e", "--eval", "-p", "--print"):
            return "-c", ()
    return "", ()


def _main_name(main: str) -> str:
    """`vllm.entrypoints.openai.api_server` counts as vllm; somebody's own vllm.py does not."""
    return main if main.endswith((".py", ".js", ".mjs", ".sh")) else main.partition(".")[0]


def _safe_words(main: str, words: Iterable[str]) -> Iterator[str]:
    """Leading subcommand, model or app of a program that is known to take them."""
    left = _WORDS.get(_main_name(main), 0)
    for word in words:
        if left <= 0 or word.startswith("-"):
            return
        left -= 1
        yield _safe_value(word)


def _safe_flags(main: str, words: Sequence[str]) -> Iterator[str]:
    short = _SHORT.get(_main_name(main), frozenset())
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.startswith("-"):
            continue
        flag, equals, value = word.partition("=")
        name = flag.lstrip("-").replace("_", "-")
        is_long = flag.startswith("--")
        if is_long and name in _SWITCHES and not equals:
            yield flag
        elif (name in _VALUE_FLAGS) if is_long else (name in short):
            if equals:
                yield f"{flag}={_safe_value(value)}"
            elif index < len(words) and not words[index].startswith("-"):
                yield f"{flag} {_safe_value(words[index])}"
                index += 1
            else:
                yield flag


def _safe_value(value: str) -> str:
    """A flag's value without user info, query strings or anything that looks like a key."""
    value = _USER_INFO.sub("", value)
    if "//" in value:
        value = _QUERY.sub("", value)
    if not _PLAIN_WORD.match(value) or _SECRET.search(value):
        return "…"
    if len(value) > MAX_VALUE_CHARS:
        # The end of a path tells models apart, its beginning does not.
        value = "…" + value[-(MAX_VALUE_CHARS - 1) :]
    return value
