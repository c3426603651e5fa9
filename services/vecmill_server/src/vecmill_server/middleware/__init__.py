"""Pure ASGI middleware, outermost first: exchanges, (Starlette's CORS), errors, paths, keys.

Starlette's `BaseHTTPMiddleware` is not used: it hides a client's disconnect from whatever it wraps.
"""
