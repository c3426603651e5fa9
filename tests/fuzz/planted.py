"""A decoder with a defect that random bytes do not reach, to see that guided fuzzing works."""


def read_planted(data: bytes) -> None:
    """Fail for data that begins with a word."""
    if data[:1] == b"m" and data[1:2] == b"a" and data[2:3] == b"g" and data[3:6] == b"ic!":
        raise IndexError("planted")
