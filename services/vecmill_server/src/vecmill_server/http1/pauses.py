"""The pauses of clients between a response and their next request, and what a stop makes of them.

How it works. A server that stops closes a connection without a request. If the client sends its next request
at this moment, the request is lost. A client in a closed loop sends it soon after its last response: after
the time that it takes to read the response and to think. The server cannot know this time, but the pauses
that its clients have made until now show it.

Rules:
1. A stop keeps a connection without a request for `PAUSE_FACTOR` times the longest pause of all connections,
   counted from its last response, or from the moment when it was made.
2. It does so for at least `LEAST_PATIENCE_S`, since a client that has just had its first response has made no
   pause yet, and for at most `MOST_PATIENCE_S`.
3. A pause that is longer than `MOST_PATIENCE_S` does not count: no stop would wait for its end.
4. The longest pause is one for all connections, because many clients send few requests on each.
"""

MOST_PATIENCE_S = 1.0
LEAST_PATIENCE_S = 0.25
# The next pause of a client that thinks for random times may be longer than all those before.
PAUSE_FACTOR = 2.0


class Pauses:
    """The longest pause of the connections of one server, described in the docstring of this module."""

    __slots__ = ("longest_s",)

    def __init__(self) -> None:
        self.longest_s = 0.0

    def note(self, seconds: float) -> None:
        """Note that a client has sent a request so long after its last response."""
        if self.longest_s < seconds <= MOST_PATIENCE_S:
            self.longest_s = seconds

    @property
    def patience_s(self) -> float:
        """The seconds for which a stop waits for the next request of a connection."""
        return min(MOST_PATIENCE_S, max(LEAST_PATIENCE_S, PAUSE_FACTOR * self.longest_s))
