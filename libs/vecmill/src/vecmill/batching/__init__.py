"""Batching: the queue of waiting texts, the choice of each batch, and the threads that run them.

`ticket`, `queue`, `line`, `pace`, `forecast` and `policy` are pure: no clock, no thread, no event loop.
`dispatcher` and `lanes` connect them with the event loop and the threads.
"""
