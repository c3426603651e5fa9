"""Pictures are decoded in child processes, which may crash, hang, lie or be killed."""

import asyncio
import itertools
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from support import faulty_decoder
from support.drawn_pictures import draw_picture, write_picture
from support.faulty_decoder import CRASH, FLOOD, HANG, LIE
from vecmill.errors import InvalidRequest, LaneLost, MissingExtra, ShuttingDown, VecmillError
from vecmill.models.picture_settings import read_picture_settings
from vecmill.pictures import decoding_child, decoding_process
from vecmill.pictures.decoder_frames import REQUEST, RESPONSE, Answer, write_geometry
from vecmill.pictures.geometry import PictureGeometry
from vecmill.pictures.picture_decoder import PictureDecoder
from vecmill.pictures.picture_limits import PictureLimits
from vecmill.pictures.reading import read_picture, read_pixels

GEOMETRY = read_picture_settings(
    {"image_processor_type": "CLIPImageProcessor", "size": 16, "crop_size": 16},
    "file",
    image_size=16,
    processor="CLIPImageProcessor",
).geometry
LIMITS = PictureLimits()
GOOD = write_picture(draw_picture("RGB", 20, 30), "PNG")


@pytest.fixture
async def decoder() -> AsyncIterator[PictureDecoder]:
    found = PictureDecoder(LIMITS)
    yield found
    await found.close()


@pytest.fixture
def with_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_child, "_PROGRAM", faulty_decoder.MODULE)


@pytest.mark.parametrize("processes", [0, 1, 3])
async def test_a_hundred_pictures_at_once_have_their_own_pixels(processes: int) -> None:
    decoder = PictureDecoder(LIMITS, processes=processes)
    pictures = [write_picture(draw_picture("RGB", 20, 30 + seed, seed), "PNG") for seed in range(25)]
    found = await asyncio.gather(*(decoder.read(pictures, GEOMETRY) for _ in range(4)))
    await decoder.close()
    expected = [read_picture(picture, GEOMETRY, LIMITS) for picture in pictures]
    assert all(np.array_equal(pixels, expected) for pixels in found)


async def test_no_process_starts_before_the_first_picture(decoder: PictureDecoder) -> None:
    assert await decoder.read([], GEOMETRY) == []
    assert decoder.process_ids == ()
    with pytest.raises(InvalidRequest, match="is empty"):
        await decoder.read([b""], GEOMETRY)
    assert decoder.process_ids == ()
    await decoder.read([GOOD], GEOMETRY)
    assert len(decoder.process_ids) == 1


@pytest.mark.linux
async def test_a_child_yields_to_the_server_when_cores_or_memory_are_short(decoder: PictureDecoder) -> None:
    await decoder.read([GOOD], GEOMETRY)
    (pid,) = decoder.process_ids
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 5)
    assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "1000\n"


async def test_a_child_that_was_killed_is_replaced(decoder: PictureDecoder) -> None:
    expected = await decoder.read([GOOD], GEOMETRY)
    first = decoder.process_ids
    os.kill(first[0], signal.SIGKILL)
    assert np.array_equal(await decoder.read([GOOD], GEOMETRY), expected)
    assert decoder.process_ids != first


async def test_a_picture_survives_a_child_that_something_else_kills(decoder: PictureDecoder) -> None:
    expected = await decoder.read([GOOD], GEOMETRY)
    first = decoder.process_ids[0]
    os.kill(first, signal.SIGSTOP)  # so that the picture is certainly in it
    call = asyncio.create_task(decoder.read([GOOD], GEOMETRY))
    await asyncio.sleep(0)
    assert decoder.waiting_bytes
    os.kill(first, signal.SIGKILL)
    assert np.array_equal(await call, expected)


async def test_signals_that_end_a_group_leave_the_child(decoder: PictureDecoder) -> None:
    await decoder.read([GOOD], GEOMETRY)
    first = decoder.process_ids
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(first[0], number)
    await decoder.read([GOOD], GEOMETRY)
    assert decoder.process_ids == first


@pytest.mark.usefixtures("with_faults")
async def test_a_crash_is_the_error_of_its_picture_alone(decoder: PictureDecoder) -> None:
    other = asyncio.create_task(decoder.read([GOOD] * 5, GEOMETRY))
    found = await decoder.read_each([GOOD, GOOD, GOOD, CRASH, GOOD, LIE, FLOOD, GOOD], GEOMETRY)
    failed = {index: str(result) for index, result in enumerate(found) if isinstance(result, VecmillError)}
    message = "`picture` cannot be decoded: it ended the process that read it."
    assert failed == {3: message, 5: message, 6: message}
    assert len(await other) == 5


@pytest.mark.usefixtures("with_faults")
async def test_a_child_that_hangs_is_replaced() -> None:
    decoder = PictureDecoder(PictureLimits(max_seconds=0.1))
    found = await decoder.read_each([GOOD, HANG, GOOD], GEOMETRY)
    await decoder.close()
    assert str(found[1]) == "`picture` takes more than 0.1 seconds to decode."
    assert [isinstance(result, InvalidRequest) for result in found] == [False, True, False]


async def test_a_child_that_reads_nothing_hangs_too() -> None:
    decoder = PictureDecoder(PictureLimits(max_seconds=0.1))
    await decoder.read([GOOD], GEOMETRY)
    os.kill(decoder.process_ids[0], signal.SIGSTOP)
    with pytest.raises(InvalidRequest, match="takes more than"):
        await decoder.read([GOOD + bytes(5_000_000)], GEOMETRY)
    assert len(await decoder.read([GOOD], GEOMETRY)) == 1
    await decoder.close()


async def test_time_in_which_this_process_stood_still_does_not_count() -> None:
    hours = itertools.count(step=3600.0)
    decoder = PictureDecoder(LIMITS, clock=lambda: next(hours))
    assert len(await decoder.read([GOOD], GEOMETRY)) == 1
    await decoder.close()


def test_a_child_answers_until_a_request_is_cut_off() -> None:
    own, other = socket.socketpair()
    geometry = PictureGeometry((2, 2), 3, None)
    text = write_geometry(geometry)
    with own, other:
        for data in (GOOD, b"no picture"):
            own.sendall(REQUEST.pack(len(text), len(data)) + text + data)
        own.sendall(REQUEST.pack(len(text), 100) + text + b"cut")
        own.shutdown(socket.SHUT_WR)
        with other.makefile("rb") as requests:
            decoding_process.serve(requests, other, decoding_process.prepare(), LIMITS)
        other.shutdown(socket.SHUT_WR)
        with own.makefile("rb") as answers:
            assert RESPONSE.unpack(answers.read(RESPONSE.size)) == (Answer.PIXELS, 12)
            assert answers.read(12) == read_pixels(GOOD, geometry, LIMITS)
            kind, size = RESPONSE.unpack(answers.read(RESPONSE.size))
            assert kind == Answer.REFUSED
            assert answers.read(size).startswith(b"`picture` is no PNG")
            assert answers.read() == b""


async def test_closing_under_load_leaves_no_process_and_no_file() -> None:
    files = Path("/dev/fd")
    before = len(list(files.iterdir()))
    decoder = PictureDecoder(LIMITS, processes=2)
    await decoder.read([GOOD] * 20, GEOMETRY)
    pids = decoder.process_ids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    calls = [asyncio.create_task(decoder.read([GOOD] * 3, GEOMETRY)) for _ in range(3)]
    await asyncio.sleep(0)
    assert decoder.waiting_bytes > 9 * len(GOOD)
    await decoder.close()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(answer) for answer in answers} == {ShuttingDown}
    for pid in pids:
        with pytest.raises(ProcessLookupError):  # a zombie would be there
            os.kill(pid, 0)
    assert len(list(files.iterdir())) == before


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("/nowhere/python", "No such file or directory"),
        ("", "does not know"),
        ("/bin/false", "it ended at once"),
    ],
)
async def test_what_does_not_start_is_told_and_tried_again(
    decoder: PictureDecoder, monkeypatch: pytest.MonkeyPatch, program: str, reason: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", program)
        with pytest.raises(LaneLost, match=f"decodes pictures cannot be started: .*{reason}"):
            await decoder.read([GOOD], GEOMETRY)
    assert len(await decoder.read([GOOD], GEOMETRY)) == 1


async def test_a_child_that_finds_no_decoder_says_why(
    decoder: PictureDecoder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "PIL").mkdir()
    (tmp_path / "PIL" / "__init__.py").write_text("raise ImportError('a library is missing')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LaneLost, match="cannot be started: a library is missing"):
        await decoder.read([GOOD], GEOMETRY)


def test_without_pillow_there_is_no_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecmill.pictures.picture_decoder.PathFinder.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"vecmill\[images\]"):
        PictureDecoder()


@pytest.mark.linux
async def test_the_child_has_no_secrets_and_few_rights(
    decoder: PictureDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VECMILL_API_KEY", "a secret")
    await decoder.read([GOOD], GEOMETRY)
    process = Path(f"/proc/{decoder.process_ids[0]}")
    assert b"secret" not in (process / "environ").read_bytes()
    limits = (process / "limits").read_text()
    for name in ("open files", "file size", "core file size"):
        assert re.search(rf"Max {name} +0 +0 ", limits)
    memory = re.search(r"Max address space +(\d+)", limits)
    assert memory is not None
    assert LIMITS.memory_bytes < int(memory[1]) < LIMITS.memory_bytes + 60_000_000
    assert "numpy" not in (process / "maps").read_text()  # it would double the memory and the start


SCRIPT = """
import asyncio, os, sys
from vecmill.pictures.picture_decoder import PictureDecoder
from vecmill.pictures.geometry import PictureGeometry

geometry = PictureGeometry((4, 4), 3, None)

async def main():
    decoder = PictureDecoder()
    (pixels,) = await decoder.read([open(sys.argv[1], "rb").read()], geometry)
    with open(sys.argv[2], "w") as out:
        out.write(f"{decoder.process_ids[0]} {pixels.shape}")
    if sys.argv[3] == "waits":
        await asyncio.Event().wait()
    await decoder.close()

asyncio.run(main())
"""


@pytest.fixture
def script(tmp_path: Path) -> list[str]:
    """A program without a guard for its main module, in a folder with a module named as one of Python's."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "picture").write_bytes(GOOD)
    return [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "picture"), str(tmp_path / "out")]


def test_a_plain_script_without_standard_files_decodes(script: list[str], tmp_path: Path) -> None:
    (tmp_path / "struct.py").write_text("raise ImportError('the wrong module')")
    shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *script, "ends"]
    done = subprocess.run([*shell[:5], "-P", *shell[5:]], cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert (tmp_path / "out").read_text().endswith("(4, 4, 3)")


@pytest.mark.linux
def test_the_child_ends_with_its_parent(script: list[str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out")
    parent = subprocess.Popen([*script, "waits"])
    child = int((tmp_path / "out").read_text().split()[0])
    watched = os.pidfd_open(child)
    parent.kill()
    parent.wait()
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    assert poll.poll(20_000)
    os.close(watched)
