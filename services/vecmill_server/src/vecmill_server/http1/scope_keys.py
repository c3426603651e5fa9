"""The keys of an ASGI scope by which a connection hands functions and times to the application.

They are absent where the application runs without this protocol.
"""

# A function that sets the number of seconds in which the client must send the body.
BODY_TIME = "vecmill.body_time"
# `RequestCycle.watch_client`.
CLIENT_WATCH = "vecmill.client_watch"
# The time when the head of the request was complete, on the monotonic clock; only for traces.
HEAD_AT = "vecmill.head_at"
