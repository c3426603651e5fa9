"""What texts of one request that begin with the same tokens cost, if a call computes the beginning once.

A causal model computes the common beginning of the texts of a call once (`values.positions`), such as the
instruction and the query before each document of a rerank request. So each further text of the request adds
only its own tokens to a call, and larger calls compute the beginning less often. Pure.
"""

from collections.abc import Sequence

from vecmill.batching.ticket import Job
from vecmill.values.batch import TokenSequence

# The beginning is at most this part of the tokens of a full call, if the request has enough texts.
SHARED_PARTS = 5


def predict_tokens(sequences: Sequence[TokenSequence]) -> list[int]:
    """Return the number of tokens that each text of a request adds to the calls that compute the request."""
    shared = sequences[0].shared
    if not shared:
        return list(map(len, sequences))
    own = [len(sequence) - shared for sequence in sequences]
    calls = max(1.0, sum(own) / ((SHARED_PARTS - 1) * shared))
    part = min(shared, -(-int(shared * calls) // len(sequences)))
    return [tokens + part for tokens in own]


def added_tokens(first: Job, job: Job) -> int:
    """Return the number of tokens that `job` adds to a call that begins with the job `first`."""
    return job.tokens - (min(first.sequence.shared, job.sequence.shared) if job.home is first.home else 0)


def computed_lengths(jobs: Sequence[Job]) -> list[int]:
    """Return the number of tokens that a call computes for each of its jobs."""
    first, *others = jobs
    return [first.tokens, *(added_tokens(first, job) for job in others)]


def extend_limit(limit: int, first: Job, lanes: int) -> int:
    """Return the most tokens of a call that begins with the job `first`, if `limit` is that of other calls.

    The texts of its request are still divided among `lanes` lanes. A limit that even the beginning exceeds
    stays: calls are short for another reason then.
    """
    shared = first.sequence.shared
    if not shared or limit < shared:
        return limit
    own = sum(job.tokens - job.sequence.shared for job in first.home.waiting)
    return min(max(limit, SHARED_PARTS * shared), shared + -(-own // lanes))
