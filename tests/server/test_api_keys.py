"""Keys are known by their digests, belong to names that outlive them, and are told to nobody."""

import hashlib
import logging
import os
import time
from pathlib import Path

import pytest
from starlette.types import Scope

from vecmill.errors import InvalidConfig
from vecmill_server.base.errors import InvalidKey
from vecmill_server.service.api_keys import MOST_FILE_BYTES, UNNAMED, ApiKeys, KeyCheck

SECRET = "a-secret-of-the-test"


def digest(key: str) -> str:
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def keys_in(folder: Path, text: str, *unnamed: str) -> ApiKeys:
    path = folder / "keys"
    path.write_text(text, "utf-8")
    return ApiKeys(unnamed, path)


def owner(keys: ApiKeys, *sent: str) -> str | None:
    holder = keys.find_holder(key.encode() for key in sent)
    return None if holder is None else holder.owner


def look(keys: ApiKeys) -> None:
    """Look at the file as often as it takes to read a change: a second look finds it unchanged."""
    keys.look()
    keys.look()


def test_a_file_names_the_owners_of_keys_and_of_digests(tmp_path: Path) -> None:
    upper = digest("Ключ").upper().replace("SHA", "sha")
    text = f"\ufeff# name key\n\nsearch {digest('new')}\r\nsearch\t old \n  ingest {upper}\n"
    keys = keys_in(tmp_path, text)
    assert [owner(keys, key) for key in ("new", "old", "Ключ")] == ["search", "search", "ingest"]
    assert owner(keys, "wrong", "old") == "search"
    for wrong in ("", "new ", "search", "ne", digest("new"), "#", "name"):
        assert owner(keys, wrong) is None
    assert keys.owner_count == 2


def test_keys_of_the_option_have_one_owner_without_a_name(tmp_path: Path) -> None:
    keys = ApiKeys(("one", "two"))
    assert (owner(keys, "one"), owner(keys, "two"), keys.owner_count) == (UNNAMED, UNNAMED, 1)
    both = keys_in(tmp_path, "search one\n", "one", "two")
    assert (owner(both, "one"), owner(both, "two"), both.owner_count) == ("search", UNNAMED, 2)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no key"),
        ("# search key\n\n", "has no key"),
        (f"search a\n{SECRET}\n", "Line 2 .* a name and a key"),
        (f"search {SECRET} more\n", "priority in line 1 .* must be interactive or bulk"),
        (f"search {SECRET} bulk more\n", "Line 1 .* a name and a key"),
        (f"search {SECRET}\nsearch {SECRET} bulk\n", "key in line 2 .* another name or priority"),
        (f"se/arch {SECRET}\n", "name in line 1"),
        (f"{'n' * 65} {SECRET}\n", "name in line 1"),
        (f"{digest(SECRET)} search\n", "name in line 1"),
        (f"search sha256:{SECRET}\n", "Line 1 .* 64 hexadecimal"),
        (f"search {digest(SECRET)[:-1]}\n", "Line 1 .* 64 hexadecimal"),
        (f"search {SECRET}\ningest {digest(SECRET)}\n", "key in line 2 .* another name"),
        (f"search {SECRET}\n#{'x' * MOST_FILE_BYTES}", "larger than"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_without_showing_it(
    tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(InvalidConfig, match=complaint) as raised:
        keys_in(tmp_path, text)
    assert SECRET not in raised.value.message
    assert digest(SECRET)[7:] not in raised.value.message


def test_a_file_that_is_not_there_or_is_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="--api-key-file"):
        ApiKeys((), tmp_path / "none")
    with pytest.raises(InvalidConfig, match="--api-key-file"):
        ApiKeys((), tmp_path)
    (tmp_path / "binary").write_bytes(b"search \xff\n")
    with pytest.raises(InvalidConfig, match="not UTF-8"):
        ApiKeys((), tmp_path / "binary")


def test_keys_change_with_the_file(tmp_path: Path) -> None:
    keys = keys_in(tmp_path, "search old\n")
    look(keys)
    (tmp_path / "keys").write_text("search old\nsearch new\n")
    look(keys)
    assert (owner(keys, "old"), owner(keys, "new"), keys.owner_count) == ("search", "search", 1)
    # Replaced by a file of the same size and time, as some tools do.
    before = os.stat(tmp_path / "keys")
    (tmp_path / "next").write_text("search odd\nsearch new\n")
    os.utime(tmp_path / "next", ns=(before.st_atime_ns, before.st_mtime_ns))
    (tmp_path / "next").rename(tmp_path / "keys")
    look(keys)
    assert (owner(keys, "old"), owner(keys, "odd")) == (None, "search")


def test_a_broken_file_leaves_the_keys_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys, path = keys_in(tmp_path, f"search {SECRET}\n"), tmp_path / "keys"
    for broken in ("", "search\n", f"{SECRET}\n"):
        caplog.clear()
        path.write_text(broken)
        for _ in range(3):
            keys.look()
        assert owner(keys, SECRET) == "search"
        assert [record.levelno for record in caplog.records] == [logging.WARNING] * (broken != f"{SECRET}\n")
    path.unlink()
    look(keys)
    assert owner(keys, SECRET) == "search"
    path.write_text("search another\n")
    look(keys)
    assert (owner(keys, SECRET), owner(keys, "another")) == (None, "search")
    assert SECRET not in caplog.text


@pytest.mark.promise("keys-checked")
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_regular_file_is_refused_and_keeps_nobody_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    make = os.mkfifo if kind == "pipe" else os.mkdir
    make(tmp_path / "other")
    with pytest.raises(InvalidConfig, match="cannot be read"):
        ApiKeys((), tmp_path / "other")
    keys, path = keys_in(tmp_path, "search old\n"), tmp_path / "keys"
    path.unlink()
    make(path)
    look(keys)
    assert "the keys stay" in caplog.text
    # The revoked key is found revoked as soon as there is a file again.
    path.rmdir() if kind == "folder" else path.unlink()
    path.write_text("search new\n")
    look(keys)
    assert (owner(keys, "old"), owner(keys, "new")) == (None, "search")


def test_a_file_is_not_read_while_it_is_written(tmp_path: Path) -> None:
    keys, path = keys_in(tmp_path, f"search {SECRET}\ningest second-key\n"), tmp_path / "keys"
    text = "search a-new-key\ningest second-key\n"
    for size in (8, 9, 17, len(text)):  # in the middle of a key, and between two keys
        path.write_text(text[:size])
        keys.look()
        assert [owner(keys, key) for key in (SECRET, "second-key")] == ["search", "ingest"]
        for key in ("a-new-key"[: size - 7], "a-new-key"):
            assert owner(keys, key) is None
    keys.look()
    assert [owner(keys, key) for key in (SECRET, "a-new-key")] == [None, "search"]


async def test_the_file_is_looked_at_once_a_second(tmp_path: Path) -> None:
    pauses: list[float] = []
    (tmp_path / "keys").write_text("search old\n")

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 2:
            raise InterruptedError  # ends the watcher
        if len(pauses) == 1:
            (tmp_path / "keys").write_text("search new-key\n")

    keys = ApiKeys((), tmp_path / "keys", pause=pause)
    keys.watch()
    keys.watch()
    assert keys._watcher is not None
    with pytest.raises(InterruptedError):
        await keys._watcher
    assert (pauses, owner(keys, "new-key"), owner(keys, "old")) == ([1.0] * 3, "search", None)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Bearer \xff\xfe\x00")],
        [(b"authorization", "Bearer ключ".encode())],
        [(b"authorization", b"Bearer " + b"k" * 1024 * 1024)],
        [(b"api-key", b"k" * 1024 * 1024)],
        [(b"api-key", b"")],
    ],
)
def test_any_other_header_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    scope: Scope = {"type": "http", "method": "POST", "path": "/v1/embeddings", "headers": headers}
    with pytest.raises(InvalidKey):
        find_owner(scope)


def test_the_owner_of_the_key_of_a_request_is_found() -> None:
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/embeddings",
        "headers": [(b"authorization", f"Bearer {SECRET}".encode())],
    }
    assert find_owner(scope) == UNNAMED
    assert find_owner({**scope, "path": "/health", "method": "GET"}) is None


def find_owner(scope: Scope) -> str | None:
    """The owner that a server finds whose key is SECRET; `None` if the request needs no key."""
    holder = KeyCheck(ApiKeys((SECRET,))).find_holder(scope)
    return None if holder is None else holder.owner


def test_keys_without_a_name_share_files_but_not_their_turns() -> None:
    keys = ApiKeys(["one", "two"])
    first, second = keys.find_holder([b"one"]), keys.find_holder([b"two"])
    assert first is not None
    assert second is not None
    assert first.owner == second.owner
    assert first.client != second.client


@pytest.mark.promise("keys-checked", "loop-responsive")
def test_a_wrong_key_takes_the_same_time_among_ten_keys_and_among_a_hundred_thousand() -> None:
    def refusing_s(count: int) -> float:
        keys = ApiKeys(f"key-{number}" for number in range(count))
        assert owner(keys, f"key-{count - 1}") == UNNAMED
        return min(processor_time_of_refusals_s(keys) for _ in range(5))

    few_s, many_s = refusing_s(10), refusing_s(100_000)
    print(f"50 wrong keys: {few_s * 1e6:.0f} us among 10 keys, {many_s * 1e6:.0f} us among 100,000")
    assert many_s < 10 * few_s


def processor_time_of_refusals_s(keys: ApiKeys) -> float:
    began = time.thread_time()
    for number in range(50):
        assert owner(keys, f"wrong-{number}") is None
    return time.thread_time() - began


def test_a_file_of_a_hundred_thousand_digests_is_read(tmp_path: Path) -> None:
    lines = (f"owner-{number} {digest(str(number))} bulk\n" for number in range(100_000))
    keys = keys_in(tmp_path, "".join(lines))
    assert keys.owner_count == 100_000
    assert [owner(keys, key) for key in ("0", "99999", "100000")] == ["owner-0", "owner-99999", None]
