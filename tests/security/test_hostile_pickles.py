"""Weights files that try to run programs, to take memory, or to hang: each is refused, and nothing happens.

`audited` notes what Python does while such a file is opened: imports, calls of the operating system, compiled
code. torch writes the files that a pickler can make; the rest is made by hand.
"""

import gc
import os
import pickle  # noqa: TID251 - it writes the files, and reads none of others
import random
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fuzz.mutations import mutate
from support.pytorch_files import (
    FORMATS,
    MAGIC,
    dictionary,
    name,
    number,
    numbers,
    save_with_torch,
    storage,
    string,
    tensor,
    write_archive,
    write_file,
)
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.weights import Weights

CONTENT = struct.pack("<6f", *range(6))
MEMORY_BYTES = 80 * 2**20  # besides that of the file
SECONDS = 10.0
HOSTILE_EVENTS = (
    "os.", "subprocess.", "exec", "compile", "import", "socket.", "shutil.", "ctypes.", "marshal.", "pickle.",
    "pty.", "webbrowser.", "builtins.", "code.", "sys.set", "sys._", "gc.", "syslog.", "urllib.", "ftplib.",
)  # fmt: skip

# Names that a pickle may give to Python's unpickler, and what they would be called with.
CALLS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("os.system", ("touch {mark}",)),
    ("posix.system", ("touch {mark}",)),
    ("nt.system", ("touch {mark}",)),
    ("subprocess.Popen", (["touch", "{mark}"],)),
    ("subprocess.check_output", (["touch", "{mark}"],)),
    ("subprocess.run", (["touch", "{mark}"],)),
    ("builtins.eval", ("open('{mark}', 'a')",)),
    ("builtins.exec", ("open('{mark}', 'a')",)),
    ("builtins.compile", ("open('{mark}', 'a')", "x", "exec")),
    ("builtins.open", ("{mark}", "w")),
    ("builtins.getattr", ("x", "__class__")),
    ("builtins.setattr", ("x", "y", 1)),
    ("builtins.__import__", ("antigravity",)),
    ("builtins.map", (1, 2)),
    ("builtins.list", ((1,),)),
    ("builtins.dict", ()),
    ("builtins.bytearray", (2**40,)),
    ("builtins.range", (2**40,)),
    ("__builtin__.eval", ("open('{mark}', 'a')",)),
    ("__builtin__.execfile", ("{mark}",)),
    ("io.open", ("{mark}", "w")),
    ("io.FileIO", ("{mark}", "w")),
    ("pathlib.Path", ("{mark}",)),
    ("shutil.rmtree", ("{mark}",)),
    ("importlib.import_module", ("antigravity",)),
    ("runpy.run_path", ("{mark}",)),
    ("runpy._run_code", ("open('{mark}', 'a')", {})),
    ("pickle.loads", (b"cos\nsystem\n(S'touch {mark}'\ntR.",)),
    ("_pickle.loads", (b"cos\nsystem\n(S'touch {mark}'\ntR.",)),
    ("pickle.Unpickler", ()),
    ("marshal.loads", (b"x",)),
    ("types.CodeType", ()),
    ("types.FunctionType", ()),
    ("operator.attrgetter", ("system",)),
    ("operator.methodcaller", ("__call__",)),
    ("functools.partial", (1,)),
    ("functools.reduce", (1, 2)),
    ("itertools.repeat", (1,)),
    ("codecs.encode", ("x", "rot13")),
    ("_codecs.encode", ("x", "latin1")),
    ("copyreg._reconstructor", (1, 2, 3)),
    ("copy_reg._reconstructor", (1, 2, 3)),
    ("copyreg.__newobj__", (1,)),
    ("collections.defaultdict", (1,)),
    ("collections.OrderedDict.__init__", ()),
    ("collections.Counter", ("x",)),
    ("collections.namedtuple", ("A", "b")),
    ("socket.create_connection", (("127.0.0.1", 9),)),
    ("urllib.request.urlopen", ("http://127.0.0.1:9/",)),
    ("webbrowser.open", ("http://127.0.0.1:9/",)),
    ("ctypes.CDLL", ("libc.so.6",)),
    ("pty.spawn", ("sh",)),
    ("code.interact", ()),
    ("pdb.run", ("open('{mark}', 'a')",)),
    ("timeit.timeit", ("open('{mark}', 'a')",)),
    ("asyncio.run", (1,)),
    ("threading.Thread", ()),
    ("multiprocessing.Process", ()),
    ("site.main", ()),
    ("sys.exit", (0,)),
    ("os._exit", (0,)),
    ("os.execv", ("/bin/touch", ["touch", "{mark}"])),
    ("os.posix_spawn", ("/bin/touch", ["touch", "{mark}"], {})),
    ("os.putenv", ("LD_PRELOAD", "x")),
    ("numpy.core.multiarray._reconstruct", (1, (0,), b"b")),
    ("numpy._core.multiarray.scalar", (1, b"b")),
    ("numpy.fromfile", ("/etc/passwd",)),
    ("numpy.load", ("{mark}",)),
    ("numpy.testing._private.utils.runstring", ("open('{mark}', 'a')", {})),
    ("torch.load", ("{mark}",)),
    ("torch.hub.load", ("owner/name", "x")),
    ("torch.save", ("x", "{mark}")),
    ("torch.ops.load_library", ("{mark}",)),
    ("torch._utils._rebuild_tensor", (1, 0, (1,), (1,))),
    ("torch._utils._rebuild_tensor_v3", (1, 0, (1,), (1,))),
    ("torch._utils._rebuild_qtensor", ()),
    ("torch._utils._rebuild_sparse_tensor", ()),
    ("torch._utils._rebuild_parameter_with_state", ()),
    ("torch._utils._rebuild_device_tensor_from_numpy", ()),
    ("torch._utils._import_dotted_name", ("os.system",)),
    ("torch._tensor._rebuild_from_type_v2", ("x", int, (), {})),
    ("torch.storage._load_from_bytes", (b"cos\nsystem\n(S'touch {mark}'\ntR.",)),
    ("torch.storage.UntypedStorage", (2**40,)),
    ("torch.storage.TypedStorage", ()),
    ("torch.FloatStorage.from_file", ("/etc/passwd",)),
    ("torch.FloatStorage.__init__", ()),
    ("torch.UntypedStorage", (2**40,)),
    ("torch.Tensor", (2**20, 2**20)),
    ("torch.empty", (2**40,)),
    ("torch.Size", ((1,),)),
    ("torch.nn.modules.linear.Linear", ()),
    ("torch.jit.load", ("{mark}",)),
    ("torch.fx.graph_module.reduce_graph_module", ({}, "x")),
    ("torch._dynamo.guards.GuardBuilder.get", ("x",)),
    ("torch.utils.collect_env.run", ("touch {mark}",)),
    ("torch.utils.bottleneck.__main__.run_cprofile", ("x",)),
    ("torch.FloatStorage\n", ()),
    (" torch.FloatStorage", ()),
    ("vecmill.models.location.locate_model", ("owner/name",)),
    ("__main__.anything", ()),
    ("own.Class", ()),
    (".", ()),
    ("\x1b[2J.\x07", ()),
)


@dataclass(slots=True)
class Audit:
    """What Python did while `watching`."""

    events: list[str] = field(default_factory=list)
    watching: bool = False

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.watching and event.startswith(HOSTILE_EVENTS):
            self.events.append(f"{event} {arguments!r}")


AUDIT = Audit()


@pytest.fixture(scope="module", autouse=True)
def audited() -> Iterator[None]:
    sys.addaudithook(AUDIT.note)  # it stays, and notes nothing more
    yield
    AUDIT.watching = False


@pytest.fixture
def path(tmp_path: Path) -> Path:
    first = save_with_torch(tmp_path / "first.bin", {"a": torch.zeros(2, dtype=torch.bfloat16)})
    Weights.open(first).tensor("a", (2,)).read()  # imports what reading needs
    return tmp_path / "pytorch_model.bin"


def read(path: Path) -> None:
    """Open a file and read all its tensors."""
    weights = Weights.open(path)
    for stored in list(weights._file_of):
        weights._file_of[stored].get_tensor(stored)


def refuse(path: Path, content: bytes) -> str:
    """Return the message of the refusal. Nothing else happened, and it took little time."""
    path.unlink(missing_ok=True)  # a file that is emptied waits for the disk
    path.write_bytes(content)
    AUDIT.events.clear()
    began = time.process_time()
    AUDIT.watching = True
    try:
        with pytest.raises((CorruptModel, UnsupportedModel)) as caught:
            read(path)
    finally:
        AUDIT.watching = False
        took_s = time.process_time() - began
    assert AUDIT.events == []
    assert took_s < SECONDS
    message = caught.value.message
    assert len(message) < 1_000
    assert message.isprintable()
    return message


def instructions(value: Any) -> bytes:
    """The instructions of Python's pickler for a value, in protocol 2."""
    return pickle.dumps(value, 2)[2:-1]


def fill(value: Any, mark: Path) -> Any:
    if isinstance(value, str):
        return value.replace("{mark}", str(mark))
    if isinstance(value, bytes):
        return value.replace(b"{mark}", bytes(mark))
    if isinstance(value, list | tuple):
        return type(value)(fill(item, mark) for item in value)
    return value


# How a pickle calls what it names, or refers to it.
USES: dict[str, Callable[[bytes, bytes], bytes]] = {
    "called": lambda function, arguments: b"\x80\x02" + function + arguments + b"R.",
    "in a dictionary": lambda function, arguments: dictionary(
        {"a": tensor(), "b": function + arguments + b"R"}
    ),
    "as a hook": lambda function, arguments: dictionary(
        {"a": tensor().replace(name("collections.OrderedDict") + b")R", function + arguments + b"R")}
    ),
    "made": lambda function, arguments: b"\x80\x02" + function + arguments + b"\x81.",
    "as a storage": lambda function, arguments: dictionary({"a": tensor(pushed_storage=function)}),
    "as the type of a storage": lambda function, arguments: dictionary(
        {"a": tensor(pushed_storage=storage().replace(name("torch.FloatStorage"), function))}
    ),
    "as a state": lambda function, arguments: b"\x80\x02}" + function + arguments + b"Rb.",
    "noted": lambda function, arguments: b"\x80\x02" + function + b"q\x00" + arguments + b"h\x00)R.",
}


@pytest.mark.promise("no-foreign-code")
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("use", USES)
def test_names_are_refused_by_name(path: Path, form: str, use: str) -> None:
    mark = path.with_name("was_run")
    for full_name, values in CALLS:
        # In two lines, as GLOBAL has them.
        content = write_file(
            form, USES[use](name(full_name), instructions(fill(values, mark))), {"0": CONTENT}
        )
        assert f" names {full_name!a}"[:60].rstrip("'") in refuse(path, content) or "\n" in full_name
        assert not mark.exists()


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_files_do_run_programs_in_an_unpickler(path: Path, form: str) -> None:
    """Else the test above would prove nothing."""
    mark = path.with_name("was_run")
    program = USES["called"](name("os.system"), instructions((f"touch {mark}",)))
    assert "names 'os.system'" in refuse(path, write_file(form, program))
    assert not mark.exists()
    torch.load(path, weights_only=False) if form == "zip" else pickle.loads(program)
    assert mark.exists()


class Runs:
    """An object whose unpickling runs a program."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


@pytest.mark.promise("no-foreign-code")
@pytest.mark.parametrize("form", FORMATS)
def test_what_torch_saves_of_objects_that_run_programs_is_refused(path: Path, form: str) -> None:
    mark = path.with_name("was_run")
    weight = torch.zeros(2, 3)
    objects = (
        Runs(os.system, (f"touch {mark}",)),
        Runs(eval, (f"open({str(mark)!r}, 'a')",)),
        Runs(Runs, (), {"x": 1}),
        Runs(dict, (), None, None, iter([("a", Runs(os.system, (f"touch {mark}",)))])),
    )
    for hostile in objects:
        for value in (
            hostile,
            {"a": weight, "b": hostile},
            {"a": weight, hostile: weight},
            [weight, hostile],
        ):
            save_with_torch(path, value, form)
            refuse(path, path.read_bytes())
            assert not mark.exists()


def test_every_other_instruction_is_refused(path: Path) -> None:
    known = b"\x80cNJKMGXTU()]}aeusqrhjQRbt.\x85\x86\x87\x88\x89\x8a"
    for code in set(range(256)) - set(known):
        for before in (b"", b"(X\x01\x00\x00\x00a"):
            message = refuse(
                path, write_file("zip", b"\x80\x02" + before + bytes([code]) + b"\x01" * 20 + b".")
            )
            assert f"has the instruction {code:#04x}" in message


# Programs that take more from the stack or the memo than there is, or give something else than they should.
TRICKS: tuple[bytes, ...] = (
    b"", b".", b"a.", b"e.", b"s.", b"u.", b"t.", b"R.", b"b.", b"Q.", b"q\x00.", b"h\x00.",
    b"j\xff\xff\xff\xff.", b"(", b"(.", b"((.", b"N(.", b"NN.", b"}}.", b"(t", b"\x85.", b"\x86.",
    b"\x87.", b"N\x86.", b"NN\x87.", b"]N.", b"NNa.", b"}Na.", b"]]s.", b"]NNs.", b"}NNs.", b"}K\x01Ns.",
    b"})Ns.", b"}(Nu.", b"}(NNNu.", b"](NNu.", b"N(NNu.", b"}(NNe.", b"}q\x00h\x00h\x00s.",
    b"]q\x00h\x00a.", b"]q\x00(h\x00h\x00e.", b"}X\x01\x00\x00\x00aN", b"X\xff\xff\xff\xffabc.",
    b"T\xff\xff\xff\xffabc.", b"T\x00\x00\x00\x80abc.", b"X\x00\x00\x10\x00" + b"a" * 2**20 + b".",
    b"U\xffabc.", b"X\x02\x00\x00\x00\xff\xff.", b"U\x01\x80.", b"\x8a\xff\x01.", b"G\x00.", b"J\x00.",
    b"M\x00.", b"K", b"\x80", b"\x80\x00.", b"\x80\xff.", b"c", b"cos", b"cos\n", b"cos\nsystem",
    b"c" + b"a" * 10_000, b"c\n\n.", b"c" + b"a" * 300 + b"\nb\n.", b"NNR.", b"))R.", b"N)R.",
    b"ctorch\nFloatStorage\n)R.", b"ccollections\nOrderedDict\nNR.", b"ccollections\nOrderedDict\n]R.",
    b"ccollections\nOrderedDict\n}\x85R.", b"ccollections\nOrderedDict\n]Na\x85R.",
    b"ccollections\nOrderedDict\n])a\x85R.", b"ccollections\nOrderedDict\n](K\x01Nta\x85R.",
    b"ccollections\nOrderedDict\n](X\x01\x00\x00\x00aNta\x85R.", b"ccollections\nOrderedDict\n.",
    b"ctorch\nFloatStorage\n.", b"ctorch._utils\n_rebuild_tensor_v2\n)R.",
    b"ctorch._utils\n_rebuild_tensor_v2\nNR.", b"ctorch._utils\n_rebuild_parameter\n(N\x89NtR.",
    b"ctorch._utils\n_rebuild_parameter\n)R.", b"}Nb.", b"N}b.", b"]}b.", b"}]b.", b"NQ.", b")Q.",
    b"X\x07\x00\x00\x00storage\x85Q.", b"X\x06\x00\x00\x00module\x85Q.", b"(NNNNNtQ.", b"(lp0\n.",
    b"cos\nsystem\n.",
)  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
def test_tricks_with_the_stack_and_the_memo_are_refused(path: Path, form: str) -> None:
    for trick in TRICKS:
        refuse(path, write_file(form, b"\x80\x02" + trick))
        refuse(path, write_file(form, trick, {"0": CONTENT}))


# Programs that would take memory or time if nothing were limited: their length, and what they would make.
FLOODS: dict[str, Callable[[], bytes]] = {
    "dictionaries": lambda: b"}" * 2**20,
    "lists in lists": lambda: b"]" + b"]q\x00a" * 2**18,
    "tuples in tuples": lambda: b")" + b"\x85" * 2**20,
    "doubled tuples": lambda: b")q\x00" + b"h\x00h\x00\x86q\x00" * 2**16 + b".",
    "doubled tuples as a key": lambda: b"})q\x00" + b"h\x00h\x00\x86q\x00" * 10_000 + b"Ns.",
    "doubled lists": lambda: b"]q\x00" + b"](h\x00h\x00h\x00eq\x00" * 2**16 + b".",
    "marks": lambda: b"(" * 2**20,
    "notes": lambda: b"N" + b"".join(b"r" + struct.pack("<I", place) for place in range(2**18)),
    "strings": lambda: (b"X\x00\x10\x00\x00" + b"\xf0\x9f\x98\x80" * 1024) * 1_500,
    "numbers": lambda: (b"\x8a\xff" + b"\x7f" * 255) * 20_000,
    "a product of numbers": lambda: dictionary({"a": tensor((2**62,) * 16, (2**62,) * 16)}),
    "copied pairs": lambda: (
        b"\x80\x02]("
        + b"".join(string(str(place)) + b"N\x86" for place in range(10_000))
        + b"e\x85q\x00"
        + name("collections.OrderedDict")
        + b"q\x01"
        + b"h\x01h\x00R" * 700
    ),
    "names": lambda: name("torch.FloatStorage") * 50_000,
    "tensors": lambda: b"\x80\x02]" + tensor().replace(storage(), b"h\x00") * 2**12,
    "tensors and wide strings": lambda: (
        b"\x80\x02"
        + (b"X\x00\x10\x00\x00" + "\U0001f600".encode() + b"a" * 4_092) * 1_800
        + tensor((1,) * 16, (1,) * 16).replace(b"_rebuild_tensor_v2\n(", b"_rebuild_tensor_v2\nq\x00(")[:-1]
        + b"q\x01"
        + b"h\x00h\x01R" * 170_000
    ),
    "views": lambda: dictionary({str(place): tensor((0, place), (1, 1)) for place in range(25_000)}),
    "items": lambda: b"\x80\x02}(" + b"".join(string(str(place)) + b"N" for place in range(2**17)) + b"u.",
    "no end": lambda: b"N0" * 2**22,
    "a very long pickle": lambda: b"N" * (2**23 + 1),
}


def memory(name: str) -> int:
    """The memory of this process in bytes: VmRSS now, VmHWM at its peak."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


def refuse_in_little_memory(path: Path, content: bytes) -> None:
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins at the present size
    before = memory("VmRSS")
    refuse(path, content)
    assert memory("VmHWM") - before < len(content) + MEMORY_BYTES


# What these nest is nested by `test_deep_nesting_ends_like_any_other_refusal`, and doubled by other floods.
NESTED = ("lists in lists", "tuples in tuples")


@pytest.mark.linux
@pytest.mark.parametrize(
    "flood", [pytest.param(name, marks=[pytest.mark.full] * (name in NESTED)) for name in FLOODS]
)
def test_floods_take_no_more_memory_than_the_file(path: Path, flood: str) -> None:
    refuse_in_little_memory(path, write_file("zip", FLOODS[flood](), {"0": CONTENT}))


@pytest.mark.linux
def test_floods_in_several_pickles_take_no_more_memory_than_in_one(path: Path) -> None:
    """The format before PyTorch 1.6 has five pickles in a row."""
    flood = b"(" + b"}" * 500_000 + b"t"
    system = b"\x80\x02}" + string("little_endian") + b"\x88s" + string("a") + flood + b"s."
    start = pickle.dumps(MAGIC, 2) + pickle.dumps(1001, 2)
    refuse_in_little_memory(path, start + system + b"\x80\x02" + flood + b"." + b"\x80\x02" + flood + b".")


def test_deep_nesting_ends_like_any_other_refusal(path: Path) -> None:
    """Deeply nested values are also freed without a limit of the stack."""
    for opening in (b"\x85", b"]q\x00\x85", b"}q\x00\x85"):
        refuse(path, write_file("zip", b"\x80\x02)" + opening * 100_000 + b"."))


# ------------------------------------------------------------------ archives


def is_refused(path: Path, content: bytes) -> bool:
    """Whether an archive of `tensor` is refused. If not, its numbers are the right ones."""
    path.write_bytes(content)
    try:
        assert Weights.open(path).tensor("a", (2, 3)).read().tolist() == [[0, 1, 2], [3, 4, 5]]
    except (CorruptModel, UnsupportedModel):
        return True
    return False


def test_members_that_are_bombs_or_overlap_are_refused(path: Path) -> None:
    whole = write_file("zip", dictionary({"a": tensor()}), {"0": CONTENT})
    entries = [place for place in range(len(whole)) if whole[place : place + 4] == b"PK\x01\x02"]
    messages = set()
    for entry in entries:
        for first, layout, values in (
            (8, "<H", (1, 2, 64, 0xFFFF)),  # flags
            (10, "<H", (8, 12, 93, 99)),  # compressed
            (20, "<I", (0, 1, 5, 2**31, 2**32 - 2, 2**32 - 1)),
            (24, "<I", (0, 1, 5, 2**31, 2**32 - 2, 2**32 - 1)),
            (28, "<H", (0, 1, 0xFFFF)),
            (30, "<H", (1, 28, 0xFFFF)),
            (32, "<H", (1, 0xFFFF)),
            (34, "<H", (1,)),
            (42, "<I", (1, 3, 2**31, 2**32 - 1)),
        ):
            for value in values:
                changed = bytearray(whole)
                struct.pack_into(layout, changed, entry + first, value)
                messages.add(refuse(path, bytes(changed)))
        both = bytearray(whole)  # a member that holds the next one too
        struct.pack_into("<II", both, entry + 20, 200, 200)
        messages.add(refuse(path, bytes(both)))
    assert len(messages) > 8


def test_the_same_content_for_many_members_is_refused(path: Path) -> None:
    """The overlapping members of a zip bomb: one kernel, and a directory that points to it many times."""
    kernel = write_archive({"data.pkl": b"\x80\x02}."})
    start = kernel.index(b"PK\x01\x02")
    entry = kernel[start : kernel.index(b"PK\x05\x06")]
    for count in (2, 1_000):
        end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, count * len(entry), start, 0)
        assert "twice" in refuse(path, kernel[:start] + entry * count + end)
    others = b"".join(
        entry.replace(b"archive/data.pkl", f"archive/data/{place:03}".encode()) for place in range(100)
    )
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 101, 101, 101 * len(entry), start, 0)
    assert "is not where the archive states it" in refuse(path, kernel[:start] + entry + others + end)


def test_long_names_of_members_are_refused(path: Path) -> None:
    """Decoded, such a name takes twice the memory that it takes in the file."""
    members = {"data.pkl": dictionary({"a": tensor()}), "data/0": CONTENT}
    content = write_archive({**members, "\U0001f600" + "a" * 60_000: b""})
    assert "a member whose name has 60012 bytes" in refuse(path, content)
    path.write_bytes(write_archive({**members, "a" * 200: b""}, folder="b" * 251 + "/"))
    read(path)


def test_zip64_records_that_lie_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zipfile.ZIP64_LIMIT", 4)
    monkeypatch.setattr("zipfile.ZIP_FILECOUNT_LIMIT", 1)
    whole = write_file("zip", dictionary({"a": tensor()}), {"0": CONTENT})
    end_64 = whole.index(b"PK\x06\x06")
    locator = whole.index(b"PK\x06\x07")
    extras = [
        place for place in range(whole.index(b"PK\x01\x02"), end_64) if whole[place : place + 2] == b"\1\0"
    ]
    places = [end_64 + step for step in (16, 24, 32, 40, 48)] + [locator + step for step in (4, 8, 16)]
    places += [extra + step for extra in extras for step in (2, 4, 12, 20)]
    refused = 0
    for place in places:
        for value in (1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1):
            changed = bytearray(whole)
            size = min(8, len(changed) - place)
            changed[place : place + size] = struct.pack("<Q", value)[:size]
            if bytes(changed) != whole:
                refused += is_refused(path, bytes(changed))
    assert refused > 60


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("cases", [150, pytest.param(20_000, marks=pytest.mark.full)])
def test_mutated_files_are_refused_or_read(path: Path, form: str, cases: int) -> None:
    """A mutation in the numbers is not noticed; the hub's digest is there for that."""
    generator = torch.Generator().manual_seed(1)
    state = torch.nn.Linear(3, 2).state_dict()
    whole = save_with_torch(path, state | {"t": torch.randn(3, 4, generator=generator).T}, form).read_bytes()
    hand_made = write_file(form, dictionary({"a": tensor(), "b": tensor((3, 2), (1, 3))}), {"0": CONTENT})
    dice = random.Random(cases)
    outcomes: set[type[Exception] | None] = set()
    AUDIT.events.clear()
    for _ in range(cases):
        path.write_bytes(mutate(dice.choice((whole, hand_made)), dice))
        AUDIT.watching = True
        try:
            read(path)
            outcomes.add(None)
        except (CorruptModel, UnsupportedModel) as error:
            outcomes.add(type(error))
        finally:
            AUDIT.watching = False
    assert AUDIT.events == []
    assert {CorruptModel, UnsupportedModel} <= outcomes


def test_numbers_are_whole(path: Path) -> None:
    """Shapes and offsets of other types than int are refused: True is an int too, and so is a long one."""
    for wrong in (b"\x88", b"N", string("1"), b"G" + b"\x00" * 8, number(2**64), number(-1), numbers([1])):
        for pushed in (
            tensor().replace(number(0) + numbers([2, 3]), wrong + numbers([2, 3])),
            tensor().replace(numbers([2, 3]), b"(" + wrong + number(3) + b"t"),
            tensor().replace(numbers([3, 1]), b"(" + number(3) + wrong + b"t"),
            tensor().replace(numbers([2, 3]), wrong),
            tensor().replace(storage(), storage().replace(number(6) + b"tQ", wrong + b"tQ")),
        ):
            assert pushed != tensor()
            refuse(path, write_file("zip", dictionary({"a": pushed}), {"0": CONTENT}))


def test_tensors_may_overlap_but_never_leave_their_storage(path: Path) -> None:
    dice = random.Random(3)
    seen: set[bool] = set()
    for _ in range(400):
        shape = [dice.randint(0, 4) for _ in range(dice.randint(0, 3))]
        strides = [dice.randint(0, 4) for _ in shape]
        offset = dice.randint(0, 7)
        path.write_bytes(write_file("zip", dictionary({"a": tensor(shape, strides, offset)}), {"0": CONTENT}))
        inside = np.array(offset)
        for size, step in zip(shape, strides, strict=True):
            inside = inside[..., None] + np.arange(size) * step
        fits = offset <= 6 and inside.size <= 6 and (not inside.size or inside.max() < 6)
        seen.add(fits)
        if not fits:
            with pytest.raises((CorruptModel, UnsupportedModel)):
                Weights.open(path)
            continue
        found = Weights.open(path)._file_of["a"].get_tensor("a")
        assert np.array_equal(found, inside)
        assert found.shape == inside.shape
    assert seen == {True, False}
