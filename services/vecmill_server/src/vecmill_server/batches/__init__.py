"""Bulk work in OpenAI's shape: files of requests, and batches that answer them, kept on disk.

How it works. A client uploads a file of lines, each a request (`uploads`), and makes a batch of it. The
batch's lines are checked (`validation`), answered in input order (`work`) by the same dialects as HTTP
requests, and written to two files, answers and errors. `jobs` runs the batches that are open; `store` keeps
everything in a folder that one process has to itself:

    vecmill.sqlite3      what files and batches there are, and how far each batch is
    files/ID             the content of each file, answers and errors that are being written included
    lock                 held while a process uses the folder

    VALIDATING ──> IN_PROGRESS ──> FINALIZING ──┬─> COMPLETED
        │  │            │   └── window is over ─┼─> EXPIRED
        │  │        CANCELLING ─────────────────┴─> CANCELLED
        │  └──── cancelled before it began ───────> CANCELLED
        └──> FAILED (a line cannot be read)

Rules, by which no line is lost or answered twice, wherever the process is killed:
1. A batch's row says how much of its input is done (`input_offset`), and how many bytes of answers and of
   errors belong to that (`output_bytes`, `error_bytes`). These change in one transaction, and only together.
2. Lines end in input order. Their bytes are written at the ends that the row tells, and are on the disk
   before the transaction begins. What was written without it is overwritten by the next attempt, at the same
   place.
3. A batch ends by cutting both files to what the row tells, then, in one transaction, becoming files that
   clients can fetch and setting the final status. A batch that was finalizing does both again.
4. An upload becomes a file by a row that is added after its content is on the disk. Content without a row,
   or the row of an open batch, is removed at the next start.
5. `synchronous=FULL`: what a client was told stays true through a loss of power. There are a few
   transactions a second at most, since lines are committed many at a time.

A batch gives way: its lines have a share of the engine, and go before nobody by age, however few or many
their texts are; so many are in flight as come back within half a second (`window`). Whatever another attempt
may heal, such as a full queue, is tried again; it does not fail the line.
"""
