"""What inference servers say of themselves on their metric pages."""

from __future__ import annotations

from bottletop.model import Table, counter, enumeration, gauge, text

ANSWERS, BUSY, DENIED, GONE = range(4)
SERVER_STATE = {ANSWERS: "answers", BUSY: "busy", DENIED: "asks for a token", GONE: "gone"}


class Server(Table):
    """One endpoint of the target. Key: the address it listens on.

    Counters add up what all workers behind the address have said, from the first page on; a column
    that the server does not export is absent.
    """

    name = "server"
    entity = "address"
    period_s = 2.0

    engine = text("which server it is, by the names of its metrics")
    url = text("the page that is read")
    state = enumeration(SERVER_STATE, "busy: it accepted and did not answer in time")
    models = text("models it names, comma separated")
    workers = gauge("", "processes behind the address that have answered, where pages tell")
    scrape_s = gauge("s", "time that the last page took", quantum=0.0001)
    page_bytes = gauge("B", "size of the last page")
    running = gauge("", "requests in the batch now")
    waiting = gauge("", "requests in the queue now", trend=True)
    kv_used_pct = gauge(
        "%", "fill of the KV cache; of the fullest where there are several", quantum=0.1
    )
    preemptions = counter("", "requests that were preempted for want of KV cache")
    prompt_tokens = counter("", "prompt tokens processed")
    generation_tokens = counter("", "tokens generated")
    generation_tokens_per_s = gauge(
        "1/s", "the server's own gauge of tokens generated", quantum=0.1
    )
    requests = counter("", "requests that ended well")
    failed = counter("", "requests that failed")
    rejected = counter("", "requests that were not admitted")
    cache_queries = counter("", "tokens looked up in the prefix cache")
    cache_hits = counter("", "tokens found in the prefix cache")
    steps = counter("", "engine steps, or batches that were run")
    inferences = counter("", "items in these batches")
    ttft_ns = counter("ns", "time to first token, summed over requests")
    ttft_count = counter("", "requests in that sum")
    inter_token_ns = counter("ns", "time between tokens, summed")
    inter_token_count = counter("", "tokens in that sum")
    request_ns = counter("ns", "time of whole requests, summed")
    request_count = counter("", "requests in that sum")
    parts = gauge("", "label sets added up in it: ranks, engines, models")
    unknown = text("prefixes of metrics on the page that no catalogue knows")
