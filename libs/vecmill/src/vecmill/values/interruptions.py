"""What ends a task, a generator or the process: all that a call may raise without having failed.

A library may raise anything else. The panics of libraries in Rust (`pyo3_runtime.PanicException`) are no
`Exception`, so whoever contains the failures of a call lets the interruptions pass, and then catches
`BaseException`.
"""

import asyncio

INTERRUPTIONS = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)
