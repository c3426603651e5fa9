"""Who asks, beside what a request asks for."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from vecmill.values.observer import Timeline
from vecmill.values.picture import Picture, PictureUrl
from vecmill.values.request_choices import Priority

# Gets the pictures of URLs. Raises `RequestError` for those that it cannot get, and `OverloadError`.
FetchPictures = Callable[[Sequence[PictureUrl]], Awaitable[Sequence[Picture]]]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, how urgently, and until when: what a request says beside what it asks for.

    The fields are those of `Request`. They travel beside the request, so that nobody has to copy it.
    `on_admission` is called when the texts have entered the queue. `room_s` are the seconds for which the
    request has waited for room. `fetch` gets pictures from their URLs; without it these are refused.
    """

    priority: Priority | None = None
    timeout_s: float | None = None
    client: str | None = None
    owner: str | None = None
    timeline: Timeline | None = field(default=None, compare=False, repr=False)
    on_admission: Callable[[], None] | None = field(default=None, compare=False, repr=False)
    room_s: float = 0.0
    fetch: FetchPictures | None = field(default=None, compare=False, repr=False)

    def after(self, waited_s: float) -> "Caller":
        """Return the same caller when it has waited so long for room, within its own time limit."""
        left_s = None if self.timeout_s is None else self.timeout_s - waited_s
        return replace(self, timeout_s=left_s, room_s=waited_s)
