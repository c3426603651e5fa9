"""The promises of vecmill, each with a figure. Tests name the promises that they keep.

A test names promises with `@pytest.mark.promise("slug", ...)`, or a module with `pytestmark`. `promise_page`
writes `docs/promises.md` from this table and the marks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise: the sentence that is promised, and the figure that a test measures, on two cores."""

    slug: str
    sentence: str
    figure: str


_ANSWERS = (
    Promise(
        "answered-once",
        "Every accepted request gets exactly one response, with its own embeddings in its own order.",
        "1,000,000 different texts through the fake engine and 100,000 through the real engine, under all"
        " faults at once: 0 lost, 0 duplicated, 0 swapped, 0 late.",
    ),
    Promise(
        "counts-agree",
        "The counts of texts on `/metrics` are copied in one step, and add up at every scrape. Without open "
        "requests they equal the counts of the clients.",
        "Admitted texts minus finished and open texts: 0 at every scrape. A page is at most 1 s old when it "
        "is asked for.",
    ),
    Promise(
        "same-in-any-batch",
        "An embedding does not depend on the texts that share its engine call.",
        "Largest difference of a value in fp32: 1e-6.",
    ),
    Promise(
        "reference-embeddings",
        "Tokens and embeddings are those of the reference implementation, in every writing system.",
        "1,200 texts: largest difference of a value 1e-5.",
    ),
    Promise(
        "finite-embeddings",
        "No response with status 200 has a value that is not finite, or a missing or additional embedding.",
        "0 such responses, with a fault in each engine call of thirty requests in turn.",
    ),
)

_LOAD = (
    Promise(
        "goodput-kept",
        "Under overload the server continues to do useful work, refuses the rest at once, and recovers.",
        "Open loop at 2 and 10 times the capacity for 60 s: at least 95% of the capacity is delivered, "
        "refusals within 20 ms, p99 of the accepted requests within their deadline, their median below 5 "
        "s, memory constant, normal again 5 s after the end. `make bench-overload` measures this.",
    ),
    Promise(
        "many-clients",
        "Many clients get at least as much done as one.",
        "1, 2, 4, 8 and 32 clients of 2,048 mixed texts: at least 90% of the rate of one client, at most "
        "2% of the computed texts thrown away. `make bench-overload` measures this.",
    ),
    Promise(
        "interactive-first",
        "An interactive request waits little for bulk work, and bulk work keeps most of its rate.",
        "10 interactive requests a second beside 4 clients of 256 mixed texts: at p99 they wait for at most "
        "two engine calls more than alone, and the bulk clients get at least 80% of their rate alone. "
        "`make bench-beside` measures this.",
    ),
    Promise(
        "fair-keys",
        "A client with much work does not delay a client with little work.",
        "One key with 32 requests of 2,048 texts, another with single texts: the median of the second is "
        "at most 3 times its median alone. `make bench-overload` measures this.",
    ),
    Promise(
        "nobody-shut-out",
        "A client with nothing waiting is not refused because of one other client, whatever that one sends "
        "and claims.",
        "10,000 random mixes of clients, sizes and claimed priorities on a simulated machine: 0 such "
        "refusals. 60 s over HTTP beside a client that is hostile in every way: 0 refusals, p99 at most 5 "
        "times that of the same clients alone. `make bench-one-client` measures this.",
    ),
    Promise(
        "no-starvation",
        "No text waits for ever: neither long texts, nor single texts behind large requests, nor one "
        "model behind another.",
        "A bulk request that would become late gets every second batch.",
    ),
    Promise(
        "short-wait",
        "The server accepts interactive work only if it expects to start the work soon.",
        "Target: 2 s.",
    ),
    Promise(
        "all-or-nothing",
        "A request is accepted whole or refused whole, before any work.",
        "0 texts of refused requests reach an engine. A request larger than the queue is refused for good.",
    ),
    Promise(
        "deadlines-kept",
        "Work past its deadline is answered with 504 and is never computed.",
        "0 expired texts in a batch.",
    ),
    Promise(
        "time-to-return",
        "A client that gets a 429 learns when to retry.",
        "Every 429 has `Retry-After`, from measured speed.",
    ),
    Promise(
        "loop-responsive",
        "No input and no flood of requests stalls the event loop.",
        "The longest gap of `/livez` under hostile input, or under a flood of cheap requests, is at most 250 "
        "ms longer than that of an idle process.",
    ),
    Promise(
        "bounded-memory",
        "A long text takes a bounded amount of memory.",
        "8,192 tokens on the shape of ModernBERT-base: at most 2 GB beyond the weights. `make bench-long` "
        "measures this.",
    ),
    Promise(
        "idle-is-idle",
        "A server without requests uses no processor time.",
        "0 running timers of the dispatcher.",
    ),
)

_CLIENTS = (
    Promise(
        "slow-clients",
        "Silent and slow clients take nothing from others, and are disconnected in time.",
        "1,000 silent sockets, 50 clients that send 1 byte/s and 50 that read 1 kB/s: p99 of the others "
        "at most 10% higher.",
    ),
    Promise(
        "departed-clients",
        "The waiting texts of a client that has left are never computed.",
        "0 such texts, with the request cancelled at each of its awaits in turn.",
    ),
)

_FAILURES = (
    Promise(
        "failure-contained",
        "If an engine call fails, only the requests with the texts that cause the failure get an error.",
        "At most 2 log2(n) additional calls for one failing text among n; each call of thirty requests "
        "fails in turn.",
    ),
    Promise(
        "memory-halved",
        "A batch that does not fit into device memory is computed in parts.",
        "0 texts lost.",
    ),
    Promise(
        "lost-lane-noticed",
        "A worker thread that hangs is noticed and replaced, and its requests are answered. Whatever a call "
        "raises, its thread goes on, unless the device is lost.",
        "Each call of thirty requests hangs in turn: 0 requests without a response.",
    ),
    Promise(
        "honest-health",
        "`/livez` shows that the process answers, `/readyz` that it can serve. Neither waits for work.",
        "Within 1 s of any fault.",
    ),
)

_START_AND_STOP = (
    Promise(
        "verified-start",
        "A server serves nothing before its model is loaded and its embeddings are verified.",
        "0 requests answered before. A wrong setting ends the process with status 2 and an error message.",
    ),
    Promise(
        "clean-stop",
        "A stop answers every accepted request.",
        "50 rolling restarts under load on an inherited socket: 0 accepted requests lost, 0 resets.",
    ),
    Promise(
        "no-leak",
        "Memory, file descriptors, threads and tasks do not grow in continuous operation.",
        "30 minutes at 70% of the capacity with 5% aborts and 2% invalid input; `make soak` states slope "
        "and noise.",
    ),
)

_INPUT = (
    Promise(
        "bounded-input",
        "Every size is checked before work: bodies, headers, texts, tokens, uploads.",
        "Beyond the limit 4xx; at most the limit is read into memory.",
    ),
    Promise(
        "no-decompression",
        "No compressed body is decompressed.",
        "415, before the body is read.",
    ),
    Promise(
        "malformed-input",
        "Invalid input gets a documented 4xx response and leaves the server unharmed.",
        "100,000 cases over HTTP and 10 minutes of coverage-guided fuzzing of each decoder (`make fuzz`):"
        " 0 responses with 5xx, 0 hangs, 0 undocumented bodies.",
    ),
    Promise(
        "model-directories",
        "Whatever a model directory holds, its model loads and answers or is refused by one sentence that"
        " names the file and the key. The other models are served.",
        "10,000 directories of 29 kinds, each with one wrong, huge, negative or nested value, or a broken"
        " file: at most 200 MiB and 5 s of processor time for each, 0 other exceptions.",
    ),
    Promise(
        "described-api",
        "`/openapi.json` describes what the server accepts and answers.",
        "20,000 generated requests: 0 differences.",
    ),
)

_SECRETS_AND_MODELS = (
    Promise(
        "keys-checked",
        "With API keys, only probes, metrics and the API description are open, and no key is ever written.",
        "0 keys in logs, metrics, errors and representations.",
    ),
    Promise(
        "private-logs",
        "Logs contain no text of a client, and request ids only of a safe form.",
        "0 texts in the log.",
    ),
    Promise(
        "bounded-metrics",
        "The number of metric series does not depend on what clients send.",
        "0 additional series.",
    ),
    Promise(
        "alerts-true",
        "The Grafana board and the alert rules name only metrics and labels that the server exposes. Each "
        "alert fires on the fault that it is for.",
        "0 unknown names, 0 panels without data, and 0 other alerts on each fault.",
    ),
    Promise(
        "owners-apart",
        "Files and batches belong to the owner of the key that created them.",
        "0 objects of others are seen, and each owner has an equal share of the space, for which empty files "
        "count too. Hostile files of 60 MiB of one owner delay a one-line batch of another by 5 s at most.",
    ),
    Promise(
        "foreign-pages",
        "A web page of another origin, or with a DNS-rebound host name, can neither use nor read the server.",
        "0 requests of such pages reach a route.",
    ),
    Promise(
        "no-foreign-code",
        "No code of a model runs unless the operator trusts the model. Weights files are never executed.",
        "0 imports and calls that could run such code.",
    ),
    Promise(
        "known-licences",
        "Every package that is installed for serving has a licence that is listed as allowed.",
        "0 packages without such a licence; `make licences` lists all licences.",
    ),
    Promise(
        "safe-names",
        "Names in requests never become file paths, and file names in a model stay inside its folder.",
        "0 files outside the folder are opened.",
    ),
)

_BATCHES_AND_FILES = (
    Promise(
        "batches-survive",
        "A batch continues after a stop or a kill of the process, each line answered once.",
        "0 lines lost or repeated.",
    ),
    Promise(
        "full-disk",
        "A full or failing disk is reported, and leaves nothing half-written.",
        "0 incomplete files left.",
    ),
)

_TRACES = (
    Promise(
        "traces-complete",
        "The spans of a traced request add up to its time, the reading of its body and the writing of its "
        "response included.",
        "Difference between the span of a request and the sum of the spans inside it: at most 5% under the "
        "load of 32 clients. `make bench-trace` measures this.",
    ),
)

GROUPS: Mapping[str, tuple[Promise, ...]] = MappingProxyType(
    {
        "Answers": _ANSWERS,
        "Load": _LOAD,
        "Clients": _CLIENTS,
        "Failures": _FAILURES,
        "Start and stop": _START_AND_STOP,
        "Input": _INPUT,
        "Secrets and models": _SECRETS_AND_MODELS,
        "Batches and files": _BATCHES_AND_FILES,
        "Traces": _TRACES,
    }
)

PROMISES: Mapping[str, Promise] = MappingProxyType(
    {promise.slug: promise for promises in GROUPS.values() for promise in promises}
)
