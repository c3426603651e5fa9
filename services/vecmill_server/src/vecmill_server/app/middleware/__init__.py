"""Pure ASGI middleware, outermost first: request_contexts, (Starlette's CORS), error_handler, browsers,
paths, keys, origins.

Starlette's `BaseHTTPMiddleware` is not used, because it hides a client's disconnect from the application.
"""
