"""The cost of texts of one request with a shared prefix, if a call computes the prefix once.

A causal model computes the shared prefix of the texts of a call once (`values.positions`), such as the
instruction and the query before each document of a rerank request. So each further text of the request adds
only its own tokens to a call, and larger calls compute the prefix less often. Pure.
"""

import math
from collections.abc import Callable, Sequence
from operator import attrgetter

from vecmill.batching.ticket import Job

# The prefix is at most about this part of the tokens of a full call, if the request has enough texts.
SHARED_PARTS = 8

# Attention reads the prefix for each text. The slots of a call, its texts times its longest text, are at
# most so many times its tokens: a thousand short texts with a long prefix would take gigabytes.
MAX_SLOTS = 4


_tokens_of: Callable[[Job], int] = attrgetter("tokens")


def predict_tokens(lengths: Sequence[int], shares: Sequence[int]) -> list[int]:
    """Return the number of tokens that each text of a request adds to the calls that compute the request.

    `lengths` are the numbers of tokens of the texts, and `shares` are those of the prefix, or 0 for texts
    that do not begin with it.
    """
    prefix = max(shares)
    if not prefix:
        return list(lengths)
    own = [length - share for length, share in zip(lengths, shares, strict=True) if share]
    calls = _count_calls(own, prefix, SHARED_PARTS * prefix)
    part = min(prefix, math.ceil(prefix * calls / len(own)))
    return [length - share + part * bool(share) for length, share in zip(lengths, shares, strict=True)]


def added_tokens(first: Job, job: Job) -> int:
    """Return the number of tokens that `job` adds to a call that begins with the job `first`."""
    return job.tokens - (min(first.sequence.shared, job.sequence.shared) if job.home is first.home else 0)


def computed_lengths(jobs: Sequence[Job]) -> list[int]:
    """Return the number of tokens that a call computes for each of its jobs."""
    first, lengths = jobs[0], list(map(_tokens_of, jobs))
    if first.sequence.shared:
        for index in range(1, len(jobs)):
            lengths[index] = added_tokens(first, jobs[index])
    return lengths


def extend_limit(limit: int, first: Job, lanes: int) -> int:
    """Return the most tokens of a call that begins with the job `first`, if `limit` is that of other calls.

    The request is divided into calls of one size, as many for each of `lanes` lanes, so that no lane computes
    the prefix again for the few texts that are left. Lanes stay idle if their texts would take less time
    than half of the prefix. A limit that even the prefix exceeds stays: calls are short for another
    reason then.
    """
    shared = first.sequence.shared
    if not shared or limit < shared:
        return limit
    # A job that came with another request may be marked with another prefix.
    jobs = [ticket.job for ticket in first.home.tickets]
    own = [job.tokens - shared for job in jobs if job.sequence.shared == shared]
    calls = lanes * math.ceil(_count_calls(own, shared, max(limit, SHARED_PARTS * shared)) / lanes)
    calls = min(calls, max(1, 2 * sum(own) // shared))
    # With the text that crosses the end of its part, which is at most as long as the first.
    return first.tokens + math.ceil(sum(own) / calls) - 1


def most_slots(limit: int, first: Job) -> int:
    """Return the most slots of a call that begins with the job `first`, if `limit` is that of other calls."""
    return MAX_SLOTS * max(limit, SHARED_PARTS * first.sequence.shared)


def _count_calls(own: Sequence[int], shared: int, full: int) -> float:
    """Return the number of calls of `full` tokens for texts with these numbers of `own` tokens."""
    most_texts = max(1, MAX_SLOTS * full // (shared + max(own)))
    return max(1.0, sum(own) / (full - shared), len(own) / most_texts)
