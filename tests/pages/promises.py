"""The promises of vecmill, each with a figure. Tests name the promises that they keep.

A test names promises with `@pytest.mark.promise("slug", ...)`, or a module with `pytestmark`. `promise_page`
writes `docs/contributing/promises.md` from this table and the marks.
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
        "Every accepted request gets exactly one response, with the embeddings of its texts in their order.",
        "0 texts lost, duplicated, swapped or late, of 1,000,000 different texts with the fake engine and "
        "100,000 with the real one, under all faults at once.",
    ),
    Promise(
        "counts-agree",
        "The counts of texts on `/metrics` add up at every scrape. When no request is open, they equal "
        "what the clients have counted.",
        "Admitted texts equal finished plus open texts at every scrape. A page is at most 1 s old.",
    ),
    Promise(
        "same-in-any-batch",
        "An embedding does not depend on the texts that share its engine call. A score of a reranker of "
        "lists depends on the documents of its own request, and on no other request.",
        "The largest difference of a value in fp32 is 1e-6.",
    ),
    Promise(
        "never-an-old-vector",
        "An embedding from the embedding cache is the one that would be computed now. Only the owner who "
        "brought a text finds it.",
        "0 hits after any of 16 changes of what an embedding depends on, or for another owner; 0 "
        "wrong values from 1,000 damaged files.",
    ),
    Promise(
        "reference-embeddings",
        "Tokens and embeddings are those of the reference implementation, in every writing system.",
        "The largest difference of a value over 1,200 texts is 1e-5.",
    ),
    Promise(
        "exact-chunks",
        "Chunks of a text have the text's own tokens and their places in it, and their embeddings, pooled or "
        "late, are those of the published formulas.",
        "Chunks without overlap, joined, are the text and its tokens. The largest difference of a value is "
        "1e-6 to vLLM's weighted mean, and 1e-5 to late chunking with sentence-transformers.",
    ),
    Promise(
        "truncation-told",
        "A response tells which of its inputs were cut, and how many tokens each lost. A number that was not "
        "counted to its end is told as a lower bound.",
        "For 500 texts of mixed lengths and tokenizers of every kind, the numbers are the tokenizer's, in "
        "every dialect. At most 1,000,000 characters of a request are read for them.",
    ),
    Promise(
        "finite-embeddings",
        "A response with status 200 has an embedding for each text, and all values are finite.",
        "0 other responses, when each engine call of thirty requests fails in turn.",
    ),
    Promise(
        "raw-bytes",
        "Embeddings in raw bytes are those of JSON, in every type and byte order, with vLLM's metadata.",
        "0 bytes differ. The header of 512 inputs is read by Python's http.client.",
    ),
    Promise(
        "findings-match",
        "`/v1/accuracy` shows what `vecmill check` found for the weights and the engine that are served.",
        "0 findings are shown after a change of a weight, a setting, the engine or the precision.",
    ),
    Promise(
        "space-identifies",
        "Vectors of equal `space` are comparable, whatever file, engine or name served them. Any change of "
        "the model that changes vectors changes the space.",
        "Each of 26 changes gives another space, and none of 13 that change no vector does.",
    ),
    Promise(
        "stored-vectors-verified",
        "`vecmill space verify` tells vectors of the model from those of another model, prompt or text.",
        "0 wrong verdicts over all formats, types and prompts. At most 16 row groups of a Parquet file are "
        "read.",
    ),
)

_LOAD = (
    Promise(
        "goodput-kept",
        "Under overload the server continues to do useful work, refuses the rest at once, and recovers.",
        "Requests come at 2 and at 10 times the capacity for 60 s. At least 95% of the capacity is "
        "delivered. Refusals take at most 20 ms. Accepted requests take less than 5 s in the median, and "
        "keep their deadline at p99. Memory stays constant. 5 s after the end all is normal. `make "
        "bench-overload` measures this.",
    ),
    Promise(
        "many-clients",
        "Many clients get at least as much done as one.",
        "2, 4, 8 and 32 clients with 2,048 mixed texts a request get at least 90% of the rate of one "
        "client. At most 2% of the computed texts are thrown away. `make bench-overload` measures this.",
    ),
    Promise(
        "interactive-first",
        "An interactive request waits little for bulk work, and bulk work keeps most of its rate.",
        "10 interactive requests a second run beside 4 clients with 256 mixed texts a request. Over all "
        "rounds, their p99 is longer than alone by at most two engine calls; single rounds vary around "
        "this. The bulk clients keep at least 80% of their rate. `make bench-beside` measures this.",
    ),
    Promise(
        "fair-keys",
        "A client with much work does not delay a client with little work.",
        "One key has 32 requests of 2,048 texts, another sends single texts. The median latency of the "
        "second is at most 3 times that without the first. `make bench-overload` measures this.",
    ),
    Promise(
        "nobody-shut-out",
        "A client with nothing waiting is not refused because of one other client, whatever that client "
        "sends and claims.",
        "0 such refusals in 10,000 random mixes of clients, sizes and claimed priorities on a simulated "
        "machine, and 0 in 60 s over HTTP beside a hostile client. There p99 is at most 5 times that of "
        "the same clients alone. `make bench-one-client` measures this.",
    ),
    Promise(
        "no-starvation",
        "No text waits for ever: no long text, no single text behind large requests, and no text of one "
        "model behind another model.",
        "A bulk request that would become late gets every second batch.",
    ),
    Promise(
        "models-share-cores",
        "Models of one server get equal core seconds while texts of all of them wait.",
        "The most that a model gets is at most 1.2 times the least, on a virtual clock for models of any "
        "speed and any mistaken warm-up, and over HTTP with 32 clients each; 1.3 with 8 clients each. "
        "`make bench-shared-models` measures this.",
    ),
    Promise(
        "short-wait",
        "The server accepts an interactive request only if it expects to answer it soon.",
        "The predicted wait is at most 2 s (`--target-wait-s`).",
    ),
    Promise(
        "all-or-nothing",
        "A request is accepted whole or refused whole, before any work.",
        "0 texts of refused requests reach an engine. A request larger than the queue gets 413, not 429.",
    ),
    Promise(
        "waits-for-room",
        "In a program of its own, the library refuses no call because others wait: calls wait for room, in "
        "order.",
        "2,500 calls at once of 64 texts each all get their answers, in a queue that holds one of them too.",
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
        "Under hostile input and under a flood of cheap requests, `/livez` answers at most 250 ms later "
        "than in an idle process.",
    ),
    Promise(
        "bounded-memory",
        "A long text takes a bounded amount of memory.",
        "A text of 8,192 tokens takes at most 2 GB beyond the weights with ModernBERT-base. `make "
        "bench-long` measures this.",
    ),
    Promise(
        "adapters-share",
        "Beside its base, a LoRA adapter takes the memory of the weights that it changes.",
        "A base with a vocabulary of 250,037 pieces and 12 layers of 384, and two adapters of all linear "
        "layers, take at most 1.5 times the memory of the base alone. `make bench-adapter-memory` measures "
        "this.",
    ),
    Promise(
        "idle-is-idle",
        "A server without requests uses next to no processor time.",
        "0 timers of the dispatcher run. With a memory budget, one timer waits for the next model that is to "
        "be dropped. The watchdog wakes twice a second, and the whole process used 0.2% of a core (`make "
        "bench-start`).",
    ),
)

_CLIENTS = (
    Promise(
        "slow-clients",
        "Silent and slow clients take nothing from others, and are disconnected in time.",
        "Beside 1,000 silent sockets, 50 clients that send 1 byte/s and 50 that read 1 kB/s, p99 of the "
        "other clients is at most 10% higher.",
    ),
    Promise(
        "departed-clients",
        "The waiting texts of a client that has left are never computed.",
        "0 such texts, when a request is cancelled at each point where it waits, in turn.",
    ),
)

_FAILURES = (
    Promise(
        "failure-contained",
        "If an engine call or the tokenizer fails, only the requests with the texts that cause the failure "
        "get an error.",
        "One failing text among n costs at most 2 log2(n) additional calls. In the test each call of "
        "thirty requests fails in turn.",
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
        "`/livez` shows that the process answers, `/readyz` that it can serve. Neither waits for work. A "
        "model that is loaded at its next request counts as served, and is told apart from one that failed.",
        "Within 1 s of any fault.",
    ),
)

_START_AND_STOP = (
    Promise(
        "verified-start",
        "A model serves nothing before it is loaded and its embeddings are verified, at every load.",
        "0 requests are answered before that. A wrong option, or no model that can be served, ends the "
        "process with status 2 and a message. Models that are loaded later are checked at the start too.",
    ),
    Promise(
        "clean-stop",
        "A stop answers every accepted request. What is not computed within `--drain-s` is answered with "
        "503.",
        "0 accepted requests lost and 0 connections reset in 50 rolling restarts under load on an "
        "inherited socket.",
    ),
    Promise(
        "no-leak",
        "Memory, file descriptors, threads and tasks do not grow in continuous operation.",
        "`make soak` runs 30 minutes at 70% of the capacity with 5% aborts and 2% invalid input, and "
        "states slope and noise of each figure.",
    ),
)

_INPUT = (
    Promise(
        "bounded-input",
        "Every size is checked before work: bodies, headers, texts, tokens, uploads.",
        "Input beyond a limit gets 4xx, and at most the limit is read into memory.",
    ),
    Promise(
        "no-decompression",
        "No compressed body is decompressed.",
        "It gets 415 before it is read.",
    ),
    Promise(
        "malformed-input",
        "Invalid input gets a documented 4xx response and leaves the server unharmed.",
        "0 responses with 5xx, 0 hangs and 0 undocumented bodies in 100,000 cases over HTTP and 10 "
        "minutes of coverage-guided fuzzing of each decoder (`make fuzz`).",
    ),
    Promise(
        "model-directories",
        "Whatever a model directory holds, its model either answers, or is refused by one sentence that "
        "names the file and the key. The other models are served.",
        "0 other exceptions, and at most 200 MiB and 5 s of processor time for each of 10,000 directories "
        "of 29 kinds. Each has one wrong, huge, negative or nested value, or a broken file.",
    ),
    Promise(
        "described-api",
        "`/openapi.json` describes what the server accepts and answers.",
        "0 differences in 20,000 generated requests.",
    ),
    Promise(
        "published-apis",
        "A response to a request of TEI's, Infinity's or OpenAI's clients matches the OpenAPI document that "
        "they have published. Where it does not, the reason is written down.",
        "0 other differences for each published field and status, and in 20,000 generated requests.",
    ),
)

_SECRETS_AND_MODELS = (
    Promise(
        "keys-checked",
        "With API keys, only the probes, `/metrics`, the description of the API, the files and the state "
        "of the console (`/console/assets/`, `/console/state.json`) and `/v1/cluster/auth` are open. No "
        "key is ever written.",
        "0 other open paths, and 0 keys in logs, metrics, errors and representations.",
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
        "0 unknown names, 0 panels without data, 0 alerts of other faults, and none for a model that is not "
        "loaded.",
    ),
    Promise(
        "owners-apart",
        "Files and batches belong to the owner of the key that created them.",
        "An owner sees 0 objects of others, and has an equal share of the space. Empty files count too. "
        "Hostile files of 60 MiB delay a one-line batch of another owner by at most 5 s.",
    ),
    Promise(
        "foreign-pages",
        "A web page of another origin can neither use nor read the server, not even after DNS rebinding.",
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
        "A batch continues after a stop or a kill of the process, and answers each line once.",
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
        "The spans of a traced request add up to its time, from reading its body to writing its response.",
        "The span of a request and the sum of the spans inside it differ by at most 5% under the load of "
        "32 clients. `make bench-trace` measures this.",
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
