"""OpenAI's Batch API: files of requests, and batches that run them, stored on disk.

How it works. A client uploads a file with one request a line (`uploads`), and creates a batch from the file.
The lines are checked (`validation`) and run in input order (`execution`) by the same dialects as HTTP
requests. The results are written to two files, one of responses and one of errors (`jsonl`). `scheduler` runs
the open batches. `store` stores everything in a folder that no other process may use:

    vecmill.sqlite3      the files, the batches, and the progress of each batch
    files/ID             the content of each file, including output files that are being written
    lock                 locked while a process uses the folder

    VALIDATING ──> IN_PROGRESS ──> FINALIZING ──┬─> COMPLETED
        │  │            │   └── window is over ─┼─> EXPIRED
        │  │        CANCELLING ─────────────────┴─> CANCELLED
        │  └──── cancelled before it began ───────> CANCELLED
        └──> FAILED (a line cannot be read)

A batch in progress whose results reach a limit on stored bytes becomes FINALIZING and then FAILED.

Rules, by which no line is lost or answered twice, at whatever point the process is killed:
1. The database row of a batch stores how many bytes of its input are done (`input_offset`), and the sizes of
   the responses and errors for them (`output_bytes`, `error_bytes`). One transaction changes all three.
2. Lines end in input order. Their results are written at the offsets in the row, and are synced to disk
   before the transaction begins. If the transaction fails, the next attempt overwrites them at the same
   offsets.
3. When a batch ends, both output files are truncated to the sizes in the row. Then one transaction makes them
   files that clients can fetch, and sets the final status. After a crash while finalizing, both steps are
   repeated.
4. The row of an upload is added after its content is synced to disk. Content that no row of a file or of an
   open batch refers to is removed at the next start.
5. `synchronous=FULL`: committed states survive a power failure. There are at most a few transactions a
   second, because lines are committed in groups.
6. Bytes are counted before they are written (`stored_bytes`), and each file counts more than its content. If
   the disk is full, a batch pauses and repeats the lines that are not committed.

Files are read in slices (`SliceTurns`), and the owners take turns at it. At least one batch of each owner is
checked, run or ended at any time, so no owner waits for the batches of another.

Batches have the lowest priority: their lines get a share of the engine, and their age does not raise
their priority. The number of texts in flight is limited to those answered within half a second
(`InFlightLimit`). After a temporary error, such as a full queue, a line is retried and does not fail.
"""
