"""Mutations of bytes for tests without a fuzzer: bits, slices, repetitions and values at the edges."""

import random

EDGES = (
    b"", b"\x00", b"\xff", b"-1", b"0", b"9" * 400, b"1e999", b"NaN", b"null", b"true", b"{}", b"[]",
    b"[[[[[", b'""', b"\r\n", b"\r\n\r\n", b"\n", b"\xed\xa0\x80", b"\\ud800", b"\xef\xbb\xbf",
    b"\x80\x80\x80\x80", b"%00", b"../", b":", b";", b'"', b",", b"=" * 70, b"--edge", b"--edge--",
)  # fmt: skip


def mutate(data: bytes, dice: random.Random) -> bytes:
    """Return `data` with one to six mutations."""
    found = bytearray(data)
    for _ in range(dice.randint(1, 6)):
        _mutate_once(found, dice)
    return bytes(found)


def _mutate_once(data: bytearray, dice: random.Random) -> None:
    start = dice.randrange(len(data) + 1)
    stop = min(len(data), start + dice.choice([0, 1, 1, 2, 4, 20, 200]))
    match dice.randrange(6):
        case 0:
            data[start:stop] = dice.choice(EDGES)
        case 1:
            data[start:stop] = dice.randbytes(stop - start)
        case 2:
            del data[start:stop]
        case 3:
            data[start:start] = data[start:stop] * dice.choice([1, 2, 50])
        case 4 if start < len(data):
            data[start] ^= 1 << dice.randrange(8)
        case _:
            other = dice.randrange(len(data) + 1)
            data[start:stop] = data[other : other + stop - start]
