"""Batching: what waits, what is computed next, and the threads that compute it.

`scheduler` is pure: no clock, no thread, no event loop. It stands over `queue` and `line` (what waits),
`policy` (the choice of batches), `forecast` and `pace` (the predicted times). `dispatcher` connects it with
the event loop, `lanes` with the threads.

To follow one call, read `dispatcher`, `scheduler`, `lanes` and `containment`.
"""
