"""Files in a store, as an upload keeps them."""

from vecmill_server.batches.folder import new_file_id
from vecmill_server.batches.objects import FileObject, FilePurpose
from vecmill_server.batches.store import Store

NOW = 1_700_000_000


def keep_file(
    store: Store, content: bytes = b"0123456789", *, owner: str = "", expires_at: int | None = None
) -> FileObject:
    """A new file of an owner."""
    file_id = new_file_id()
    with store.folder.create(file_id) as written:
        written.write(content)
        store.folder.seal(written)
    record = FileObject(file_id, FilePurpose.BATCH, "in.jsonl", len(content), NOW, expires_at, owner)
    store.add_file(record)
    return record
