"""What the connections of a server are given: their limits, the byte budget, and the writer of refusals."""

import resource

from vecmill.errors import VecmillError
from vecmill_server.base.byte_budget import ByteBudget
from vecmill_server.base.error_responses import error_response
from vecmill_server.base.headers import HeaderList
from vecmill_server.base.settings import ServerSettings
from vecmill_server.http1.connection_limits import ConnectionLimits, ConnectionShare
from vecmill_server.telemetry.metrics.definitions import NO_ROUTE
from vecmill_server.telemetry.metrics.server_metrics import ServerMetrics

# The files that the process opens besides connections: models, batches, threads, refused connections.
OTHER_FILES = 256


def share_connections(
    settings: ServerSettings, metrics: ServerMetrics, budget: ByteBudget, *, is_traced: bool = False
) -> ConnectionShare:
    """Return what all connections of a server with these settings share."""

    def refuse(error: VecmillError) -> tuple[int, HeaderList, bytes]:
        response = error_response(error)
        metrics.request_done(NO_ROUTE, response.status, 0.0)
        metrics.error_answered(response.reason)
        return response.status, response.headers, response.body

    return ConnectionShare(limit_connections(settings), budget, refuse, is_traced=is_traced)


def limit_connections(settings: ServerSettings) -> ConnectionLimits:
    """Return the limits in `settings`. The process must be able to open a file for each connection."""
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ConnectionLimits(
        min(settings.max_connections, max(1, open_files - OTHER_FILES)),
        settings.max_header_bytes,
        settings.header_timeout_s,
        settings.body_timeout_s,
        settings.keep_alive_s,
        settings.write_timeout_s,
        settings.max_connection_age_s,
    )
