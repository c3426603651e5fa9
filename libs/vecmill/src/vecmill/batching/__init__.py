"""From waiting texts to engine calls and back.

`ticket`, `queue` and `policy` are pure: no clock, no thread, no event loop. `dispatcher` and
`lanes` are the glue around them.
"""
