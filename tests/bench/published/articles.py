"""The figures of four published articles, all measured on other hardware.

INFINITY_DOCS    the documentation of Infinity 0.0.25, "Benchmarking details": bulk requests, bge-small, on an
                 Intel Cascade Lake machine (GCP g2-standard-16)
COMET            Comet, Jacques Verre, "How to 10x Throughput When Serving Hugging Face Models Without a GPU":
                 BERT step by step, from a GCP e2-standard-4 to a compute-optimised machine
HUGGING_FACE     Hugging Face, January 2022, "Case Study: Millisecond Latency using Hugging Face Infinity and
                 modern CPUs": a DistilBERT that classifies, on Ice Lake (Amazon EC2 C6i)
MANTIS           Mantis, Matthew Upson, February 2023, "Why we're switching to Hugging Face Inference
                 Endpoints, and maybe you should too": a RoBERTa that classifies, on Ice Lake
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

INFINITY_DOCS = 'Infinity 0.0.25, "Benchmarking details", on Intel Cascade Lake (GCP g2-standard-16)'
COMET = 'Comet, "How to 10x Throughput When Serving Hugging Face Models Without a GPU", on GCP e2-standard-4'
HUGGING_FACE = 'Hugging Face, "Case Study: Millisecond Latency using Hugging Face Infinity", Amazon EC2 C6i'
MANTIS = 'Mantis, "Why we\'re switching to Hugging Face Inference Endpoints", on Intel Ice Lake'

# INFINITY_DOCS: seconds for 10 requests of 256 texts, 115,000 tokens each.
BULK_REQUESTS, BULK_TEXTS, BULK_TOKENS = 10, 256, 115_000
BULK_S: Mapping[str, float] = MappingProxyType(
    {
        "infinity-optimum-int8": 100.490,
        "infinity-optimum (onnx)": 125.342,
        "fastembed (onnx)": 125.770,
        "sentence-transformers (torch)": 256.884,
        "infinity (torch)": 353.065,
        "TEI (candle)": 1104.357,
    }
)

# HUGGING_FACE: requests per second by tokens, batches of one, two physical cores. The article has figures for
# these eight points only. The other 184 are in a spreadsheet.
GRID_CORES = (1, 2, 4, 8)
GRID_LENGTHS = (8, 16, 32, 64, 128, 256, 384, 512)
GRID_BATCHES = (1, 2, 4, 8, 16, 32)
FIGURE_CORES, FIGURE_BATCH = 2, 1
HUGGING_FACE_INFINITY: Mapping[int, float] = MappingProxyType(
    {8: 248, 16: 212, 32: 150, 64: 97, 128: 55, 256: 27, 384: 17, 512: 12}
)
HUGGING_FACE_TRANSFORMERS: Mapping[int, float] = MappingProxyType(
    {8: 49, 16: 50, 32: 40, 64: 28, 128: 18, 256: 9, 384: 5, 512: 4}
)


@dataclass(frozen=True, slots=True)
class PublishedLatency:
    """The latency over 1,000 requests in ms, its standard deviation in ms, and their time in seconds.

    `container_ms` is the latency of the author's former container.
    """

    mean_ms: float
    stdev_ms: float | None = None
    total_s: float | None = None
    container_ms: float | None = None


# MANTIS: by number of vCPUs.
ENDPOINT_REQUESTS = 1_000
ENDPOINT: Mapping[int, PublishedLatency] = MappingProxyType(
    {
        1: PublishedLatency(296),
        2: PublishedLatency(156, 51, 158),
        4: PublishedLatency(80, 30, 80, container_ms=200),
        8: PublishedLatency(43, 31, 43),
    }
)
