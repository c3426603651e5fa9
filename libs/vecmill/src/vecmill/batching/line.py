"""The line of waiting requests of one priority: their order, and their jobs by token length. Pure.

Order. Clients share the engine equally, by fair queueing: each request gets a tag on a virtual clock, and the
lowest tag goes first. A request begins on the clock when it arrives, or when the request before it of the
same client ends, whichever is later. It ends its own core seconds later.

- In the lines of large requests the tag is this end, and the clock advances by the core seconds of the jobs
  that leave, divided by the number of clients that wait. So requests are computed one after another: a
  request that has begun is finished before others begin, unless others would end earlier with equal shares.
- In the line of small requests the tag is the beginning. The clock advances in the same way, but only by jobs
  of requests that should have begun, and never falls behind the tag of the first request. So requests of
  different clients go in the order of their arrival, and a client with several requests gets its turn however
  many new clients come.

Jobs. Each waiting job is at home in one request, and leaves the line with it or before. A request lists its
jobs with the longest first. A second index holds all jobs of the line by length, so that a batch can be
filled up with texts of similar length.

Sources: Demers, Keshav and Shenker, "Analysis and simulation of a fair queueing algorithm", SIGCOMM 1989, for
large requests; Goyal, Vin and Cheng, "Start-time Fair Queueing", SIGCOMM 1996, and the clock of Bennett and
Zhang, "Hierarchical packet fair queueing algorithms", SIGCOMM 1996, for small ones.
"""

from bisect import bisect_left, insort
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from vecmill.batching.ticket import Job, QueuedRequest

# Clients that have left are kept until the clock passes their last request. The line looks for clients to
# forget when it has so many more than twice the clients that it kept the last time.
_MOST_IDLE_CLIENTS = 64

_request_of: Callable[[tuple[float, int, QueuedRequest]], QueuedRequest] = itemgetter(2)


@dataclass(slots=True)
class _Client:
    """The waiting requests of one client, and the virtual time at which its last request ends."""

    ends_at: float = 0.0
    requests: int = 0
    waiting_s: float = 0.0


class Line:
    """The waiting requests and jobs of one priority; see the module docstring."""

    def __init__(self, *, ordered_by_end: bool) -> None:
        self.jobs = 0  # that wait
        self.tokens = 0
        self.waiting_s = 0.0  # core seconds
        self._ordered_by_end = ordered_by_end
        self._virtual_time = 0.0
        self._clients: defaultdict[str | None, _Client] = defaultdict(_Client)
        self._waiting_clients = 0
        self._most_clients = _MOST_IDLE_CLIENTS  # until idle ones are looked for
        self._order: list[tuple[float, int, QueuedRequest]] = []
        self._by_length: dict[int, OrderedDict[Job, None]] = {}
        self._lengths: list[int] = []

    def __len__(self) -> int:
        """Return the number of waiting jobs."""
        return self.jobs

    def __iter__(self) -> Iterator[Job]:
        """Iterate over the jobs, in the order of their requests."""
        return (job for request in self.requests() for job in request.waiting)

    def requests(self) -> Iterator[QueuedRequest]:
        """Iterate over the requests with waiting jobs, in order."""
        return map(_request_of, self._order)

    def first(self) -> QueuedRequest:
        """Return the first request. Raises `IndexError` if there is none."""
        return self._order[0][2]

    def shortest(self) -> Job:
        """Return the first waiting job of the smallest length. Raises `IndexError` if there is none."""
        return next(iter(self._by_length[self._lengths[0]]))

    def waiting_s_of(self, client: str | None) -> float:
        """Return the core seconds of the waiting jobs of `client`."""
        found = self._clients.get(client)
        return 0.0 if found is None else found.waiting_s

    def most_waiting_s(self) -> float:
        """Return the core seconds of the waiting jobs of the client that has the most."""
        # A copy, because the line may change meanwhile: callers that only guess do not hold the lock.
        return max([each.waiting_s for each in list(self._clients.values())], default=0.0)

    def tag_for(self, client: str | None, cost_s: float) -> float:
        """Return the tag that a request of `client` would get, with jobs of `cost_s` core seconds."""
        found = self._clients.get(client)
        begins_at = self._virtual_time if found is None else max(self._virtual_time, found.ends_at)
        return begins_at + cost_s if self._ordered_by_end else begins_at

    def place(self, request: QueuedRequest, cost_s: float) -> None:
        """Give `request` its tag. Its jobs are added afterwards."""
        client = self._clients[request.terms.client]
        begins_at = max(self._virtual_time, client.ends_at)
        client.ends_at = begins_at + cost_s
        request.tag = client.ends_at if self._ordered_by_end else begins_at

    def add(self, job: Job) -> None:
        """Add `job` to the request that is its home, at the end."""
        home = job.home
        client = self._clients[home.terms.client]
        if not home.waiting:
            insort(self._order, (home.tag, home.number, home))
            self._waiting_clients += not client.requests
            client.requests += 1
        home.waiting[job] = None
        home.waiting_s += job.cost_s
        client.waiting_s += job.cost_s
        if job.tokens not in self._by_length:
            self._by_length[job.tokens] = OrderedDict()
            insort(self._lengths, job.tokens)
        self._by_length[job.tokens][job] = None
        self.tokens += job.tokens
        self.waiting_s += job.cost_s
        self.jobs += 1

    def adopt(self, job: Job) -> None:
        """Add `job`, for which another request was charged, and charge the client of its new home."""
        self.add(job)
        client = self._clients[job.home.terms.client]
        client.ends_at = max(self._virtual_time, client.ends_at) + job.cost_s

    def remove(self, job: Job) -> None:
        """Remove `job` from the line and from its home."""
        home = job.home
        client = self._clients[home.terms.client]
        del home.waiting[job]
        home.waiting_s -= job.cost_s
        client.waiting_s -= job.cost_s
        same_length = self._by_length[job.tokens]
        del same_length[job]
        if not same_length:
            del self._by_length[job.tokens]
            del self._lengths[bisect_left(self._lengths, job.tokens)]
        self.tokens -= job.tokens
        self.waiting_s -= job.cost_s
        self.jobs -= 1
        if not home.waiting:
            self._leave(home, client)
        if not self.jobs:
            self._rest()

    def serve(self, job: Job) -> None:
        """Remove `job`, which an engine is about to compute, and advance the clock."""
        if not self._ordered_by_end:
            self._virtual_time = max(self._virtual_time, self._order[0][0])
        if self._ordered_by_end or job.home.tag <= self._virtual_time:
            self._virtual_time += job.cost_s / max(1, self._waiting_clients)
        self.remove(job)

    def drop(self, job: Job) -> None:
        """Remove `job`, which is not computed on behalf of its home, and credit the client with its cost."""
        self._clients[job.home.terms.client].ends_at -= job.cost_s
        self.remove(job)

    def count_longest(self, is_counted: Callable[[Job], bool]) -> int:
        """Return the number of waiting jobs of the lengths, from the largest down, that are counted."""
        count = 0
        for length in reversed(self._lengths):
            same_length = self._by_length[length]
            if not is_counted(next(iter(same_length))):
                break
            count += len(same_length)
        return count

    def near(self, length: int) -> Iterator[Job]:
        """Yield all jobs, closest to `length` tokens first, oldest first among equals.

        The line must not change during the iteration.
        """
        above = bisect_left(self._lengths, length)
        below = above - 1
        while below >= 0 or above < len(self._lengths):
            down = length - self._lengths[below] if below >= 0 else None
            up = self._lengths[above] - length if above < len(self._lengths) else None
            if up is None or (down is not None and down < up):
                yield from self._by_length[self._lengths[below]]
                below -= 1
            else:
                yield from self._by_length[self._lengths[above]]
                above += 1

    def _rest(self) -> None:
        """Forget the clients: nobody waits, so nobody has had more than another."""
        self._virtual_time = max([self._virtual_time, *[each.ends_at for each in self._clients.values()]])
        self._clients.clear()
        self._most_clients = _MOST_IDLE_CLIENTS
        self.waiting_s = 0.0  # without the rounding errors of all additions

    def _leave(self, request: QueuedRequest, client: _Client) -> None:
        del self._order[bisect_left(self._order, (request.tag, request.number))]
        request.waiting_s = 0.0
        client.requests -= 1
        if client.requests:
            return
        client.waiting_s = 0.0
        self._waiting_clients -= 1
        if len(self._clients) > self._most_clients:
            kept = [
                (name, each)
                for name, each in self._clients.items()
                if each.requests or each.ends_at > self._virtual_time
            ]
            self._clients = defaultdict(_Client, kept)
            self._most_clients = 2 * len(self._clients) + _MOST_IDLE_CLIENTS
