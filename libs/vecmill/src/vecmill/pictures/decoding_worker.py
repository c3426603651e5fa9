"""What decodes one picture after the other, on one thread: a child process that is replaced when it dies."""

from typing import Protocol

from vecmill.errors import LaneLost
from vecmill.pictures.decoding_child import ChildEnded, ChildFailed, ChildHangs, DecodingChild
from vecmill.pictures.geometry import PictureGeometry
from vecmill.pictures.picture_limits import PictureLimits, unreadable
from vecmill.pictures.reading import read_pixels
from vecmill.values.clock import Clock

# A child may have been killed by something else than the picture, such as the kernel when memory is short.
_ATTEMPTS = 2


class WorkerStopped(Exception):
    """The worker decodes nothing more."""


class PictureWorker(Protocol):
    """What decodes pictures for one thread. `stop` is for any thread, and waits for nothing."""

    def decode(self, data: bytes, geometry: PictureGeometry) -> bytes: ...

    def stop(self) -> None: ...

    def end(self) -> object: ...


class InProcessWorker:
    """Decodes in this process. A picture that crashes its decoder ends this process; time has no limit."""

    def __init__(self, limits: PictureLimits) -> None:
        self._limits = limits

    def decode(self, data: bytes, geometry: PictureGeometry) -> bytes:
        """Return the pixels of a file. Raises `InvalidRequest` for a picture that cannot be read."""
        return read_pixels(data, geometry, self._limits)

    def stop(self) -> None:
        """Do nothing: a picture that is being decoded is decoded to its end."""

    def end(self) -> None:
        """Do nothing."""


class DecodingWorker:
    """A child process, from the first picture on. All methods but `stop` are for one thread."""

    def __init__(self, limits: PictureLimits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        # Each thread sets one of them before it reads the other, so `stop` misses no child.
        self._child: DecodingChild | None = None
        self._is_stopped = False

    @property
    def pid(self) -> int | None:
        """The process id of the child; `None` before the first picture."""
        child = self._child
        return None if child is None else child.pid

    def decode(self, data: bytes, geometry: PictureGeometry) -> bytes:
        """Return the pixels of a file.

        Raises `InvalidRequest` for a picture that cannot be read, that ends two children, or that takes too
        long; `LaneLost` if no child starts; `WorkerStopped` after `stop`.
        """
        for _ in range(_ATTEMPTS):
            child = self._child or self._start()
            try:
                return child.decode(data, geometry)
            except ChildEnded:
                if self.end():
                    break
            except ChildHangs:
                self.end()
                break
        else:
            self._check_running()
            raise unreadable("cannot be decoded: it ended the process that read it")
        raise unreadable(f"takes more than {self._limits.max_seconds:g} seconds to decode")

    def stop(self) -> None:
        """Let the picture that is being decoded and all later ones fail. For any thread."""
        self._is_stopped = True
        child = self._child
        if child is not None:
            child.kill()

    def end(self) -> bool:
        """End the child, if there is one. Return whether it had all of its processor time."""
        child, self._child = self._child, None
        return child is not None and child.end()

    def _check_running(self) -> None:
        if self._is_stopped:
            raise WorkerStopped

    def _start(self) -> DecodingChild:
        self._check_running()
        try:
            child = self._child = DecodingChild(self._limits, self._clock)
        except OSError as error:
            raise _start_failure(error.strerror or error) from error
        try:
            self._check_running()
            child.wait_until_ready()
        except BaseException as error:
            self.end()
            self._check_running()
            match error:
                case ChildEnded():
                    raise _start_failure("it ended at once") from error
                case ChildHangs():
                    raise _start_failure("it does not get ready") from error
                case ChildFailed():
                    raise _start_failure(error) from error
            raise
        return child


def _start_failure(reason: object) -> LaneLost:
    return LaneLost(f"The process that decodes pictures cannot be started: {reason}.")
