"""Interpreter for the pickles of PyTorch weights files.

It knows the instructions of PyTorch's pickles (protocol 2, also as Python 2 wrote it). It imports nothing,
and calls nothing but the functions of `pickled`. The numbers of bytes, instructions and nested marks and the
length of strings are limited, so the stack and the memo take little memory whatever the pickle contains. The
limits apply to all pickles of a file together.

Source of the rules: CPython 3.11, `pickle.py` and `pickletools.py`.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any

from vecmill.models.pytorch.pickled import (
    DamagedFile,
    RefusedContent,
    Storage,
    call,
    find_name,
    make_storage,
    set_item,
    show,
)

# A tensor takes about 25 instructions, two of which are calls, and 150 bytes.
MAX_PICKLE_BYTES = 8 * 2**20
MAX_INSTRUCTIONS = 2**19
# A call counts as several instructions, because its result takes more memory than other values.
_CALL_INSTRUCTIONS = 8
_MAX_STRING_BYTES = 4_096
_MAX_NAME_BYTES = 256
_MAX_MARKS = 64
_PROTOCOL = 2

Instruction = Callable[["Unpickler"], None]


class Unpickler:
    """The state of one run: the stack, the stacks below its marks, the memo and the position in `data`.

    `data` begins with one pickle or several, and may go on after them. `storages` are the storages that the
    pickles refer to, by key.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data[:MAX_PICKLE_BYTES]
        self.position = 0
        self.storages: dict[str, Storage] = {}
        self._instructions_left = MAX_INSTRUCTIONS
        self.stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def load(self) -> Any:
        """Return the value of the pickle at `position`, and move `position` to the end of the pickle.

        Raises `DamagedFile` for a broken pickle, `RefusedContent` for instructions and names that weights do
        not need and for pickles that are too long.
        """
        self._memo = {}
        while True:
            self._spend(1)
            code = self._take(1)[0]
            if code == _STOP:
                return self._end()
            instruction = _INSTRUCTIONS.get(code)
            if instruction is None:
                raise RefusedContent(f"has the instruction {code:#04x}, which weights do not need")
            instruction(self)

    def _end(self) -> Any:
        value = self._pop()
        if self.stack or self._below:
            raise DamagedFile("its pickle leaves values on the stack")
        return value

    def _spend(self, instructions: int) -> None:
        self._instructions_left -= instructions
        if self._instructions_left < 0:
            raise RefusedContent(f"has pickles of more than {MAX_INSTRUCTIONS} instructions")

    def _take(self, size: int) -> memoryview:
        start, self.position = self.position, self.position + size
        if self.position > len(self._data):
            raise DamagedFile("its pickle has no end")
        return self._data[start : self.position]

    def _take_number(self, layout: struct.Struct) -> int:
        (number,) = layout.unpack(self._take(layout.size))
        return int(number)

    def _take_line(self) -> str:
        """Take the bytes up to the end of the line."""
        rest = bytes(self._data[self.position : self.position + _MAX_NAME_BYTES])
        line, end, _ = rest.partition(b"\n")
        if not end and len(rest) < _MAX_NAME_BYTES:
            raise DamagedFile("its pickle has no end")
        if not end:
            raise RefusedContent(f"has a name of more than {_MAX_NAME_BYTES} bytes: {show(line)}")
        self.position += len(line) + 1
        return line.decode("utf-8", "backslashreplace")

    def _pop(self) -> Any:
        if not self.stack:
            raise DamagedFile("its pickle takes a value from an empty stack")
        return self.stack.pop()

    def _top(self, kind: type[Any]) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise DamagedFile(f"its pickle changes a value that is not a {kind.__name__}")
        return self.stack[-1]

    # ---------------------------------------------------------------- values

    def set_protocol(self) -> None:
        """Check the version of the pickle's language."""
        version = self._take(1)[0]
        if version != _PROTOCOL:
            raise RefusedContent(f"has a pickle of protocol {version}; PyTorch writes protocol {_PROTOCOL}")

    def push_name(self) -> None:
        """Push the value of a name."""
        module = self._take_line()
        self.stack.append(find_name(module, self._take_line()))

    def push_long(self) -> None:
        """Push an integer of up to 255 bytes."""
        size = self._take(1)[0]
        self.stack.append(int.from_bytes(self._take(size), "little", signed=True))

    def push_float(self) -> None:
        """Push a float."""
        (number,) = struct.unpack(">d", self._take(8))
        self.stack.append(number)

    def push_string(self, layout: struct.Struct) -> None:
        """Push a string whose length has `layout`."""
        size = self._take_number(layout)
        if not 0 <= size <= _MAX_STRING_BYTES:
            raise RefusedContent(f"has a string of {size} bytes")
        try:
            self.stack.append(bytes(self._take(size)).decode("utf-8"))
        except UnicodeDecodeError as error:
            raise DamagedFile("its pickle has a string that is not UTF-8") from error

    def push_number(self, layout: struct.Struct) -> None:
        """Push an integer of `layout`."""
        self.stack.append(self._take_number(layout))

    # ------------------------------------------------- tuples, lists and dictionaries

    def push_mark(self) -> None:
        """Begin the items of a tuple, a list or a dictionary."""
        if len(self._below) == _MAX_MARKS:
            raise RefusedContent(f"nests more than {_MAX_MARKS} lists")
        self._below.append(self.stack)
        self.stack = []

    def pop_items(self) -> list[Any]:
        """Take the values above the last mark, and the mark."""
        if not self._below:
            raise DamagedFile("its pickle ends a list that did not begin")
        items, self.stack = self.stack, self._below.pop()
        return items

    def push_tuple(self, size: int) -> None:
        """Replace the last `size` values by a tuple of them."""
        items = [self._pop() for _ in range(size)]
        self.stack.append(tuple(reversed(items)))

    def push_items(self) -> None:
        """Replace the values above the mark by a tuple of them."""
        items = self.pop_items()
        self.stack.append(tuple(items))

    def append_item(self) -> None:
        """Append the last value to the list before it."""
        value = self._pop()
        self._top(list).append(value)

    def append_items(self) -> None:
        """Append the values above the mark to the list before it."""
        items = self.pop_items()
        self._top(list).extend(items)

    def set_one_item(self) -> None:
        """Set an item of the dictionary before the last two values."""
        value, key = self._pop(), self._pop()
        set_item(self._top(dict), key, value)

    def set_items(self) -> None:
        """Set the items above the mark, keys and values in turn, of the dictionary before it."""
        items = self.pop_items()
        target = self._top(dict)
        if len(items) % 2:
            raise DamagedFile("its pickle has a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            set_item(target, key, value)

    # ------------------------------------------------------------ memo and functions

    def keep(self, layout: struct.Struct) -> None:
        """Note the last value under a number."""
        number = self._take_number(layout)
        if not self.stack:
            raise DamagedFile("its pickle notes a value of an empty stack")
        self._memo[number] = self.stack[-1]

    def push_kept(self, layout: struct.Struct) -> None:
        """Push the value that was noted under a number."""
        number = self._take_number(layout)
        if number not in self._memo:
            raise DamagedFile("its pickle uses a value that it has not noted")
        self.stack.append(self._memo[number])

    def push_storage(self) -> None:
        """Replace a persistent id by its storage."""
        storage = make_storage(self._pop())
        if self.storages.setdefault(storage.key, storage) != storage:
            raise DamagedFile(f"storage {show(storage.key)} has two types or two sizes")
        self.stack.append(storage)

    def call_function(self) -> None:
        """Replace a function and its arguments by the result."""
        arguments, function = self._pop(), self._pop()
        self._spend(_CALL_INSTRUCTIONS)
        match arguments:
            case (list() as pairs,):  # copied by an OrderedDict of Python 2, perhaps again and again
                self._spend(len(pairs))
        self.stack.append(call(function, arguments))

    def drop_state(self) -> None:
        """Drop the attributes of an OrderedDict: versions of modules, which weights do not need."""
        state = self._pop()
        self._top(dict)
        if not isinstance(state, dict):
            raise RefusedContent("sets the state of an object")


_BYTE, _SHORT, _INT, _UNSIGNED = (struct.Struct(layout) for layout in ("<B", "<H", "<i", "<I"))
_STOP = ord(".")


def _pushing(value: Any) -> Instruction:
    return lambda unpickler: unpickler.stack.append(value)


# Every instruction that a pickle may have besides STOP.
_INSTRUCTIONS: Mapping[int, Instruction] = {
    0x80: Unpickler.set_protocol,
    ord("c"): Unpickler.push_name,
    ord("N"): _pushing(None),
    0x88: _pushing(True),
    0x89: _pushing(False),
    ord("J"): lambda unpickler: unpickler.push_number(_INT),
    ord("K"): lambda unpickler: unpickler.push_number(_BYTE),
    ord("M"): lambda unpickler: unpickler.push_number(_SHORT),
    0x8A: Unpickler.push_long,
    ord("G"): Unpickler.push_float,
    ord("X"): lambda unpickler: unpickler.push_string(_UNSIGNED),
    ord("T"): lambda unpickler: unpickler.push_string(_INT),
    ord("U"): lambda unpickler: unpickler.push_string(_BYTE),
    ord("("): Unpickler.push_mark,
    ord(")"): _pushing(()),
    0x85: lambda unpickler: unpickler.push_tuple(1),
    0x86: lambda unpickler: unpickler.push_tuple(2),
    0x87: lambda unpickler: unpickler.push_tuple(3),
    ord("t"): Unpickler.push_items,
    ord("]"): lambda unpickler: unpickler.stack.append([]),
    ord("a"): Unpickler.append_item,
    ord("e"): Unpickler.append_items,
    ord("}"): lambda unpickler: unpickler.stack.append({}),
    ord("s"): Unpickler.set_one_item,
    ord("u"): Unpickler.set_items,
    ord("q"): lambda unpickler: unpickler.keep(_BYTE),
    ord("r"): lambda unpickler: unpickler.keep(_UNSIGNED),
    ord("h"): lambda unpickler: unpickler.push_kept(_BYTE),
    ord("j"): lambda unpickler: unpickler.push_kept(_UNSIGNED),
    ord("Q"): Unpickler.push_storage,
    ord("R"): Unpickler.call_function,
    ord("b"): Unpickler.drop_state,
}
