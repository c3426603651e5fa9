"""OpenTelemetry tracing: spans of requests, of batches and of the lines of the Batch API.

    trace ──> layout ──> tracer ──> collector

`trace` records the times of one request, together with the library's `vecmill.values.observer`. `layout`
makes drafts of spans from the times. `tracer` makes OpenTelemetry's spans from the drafts, and sends them.
Only `start` and `tracer` import opentelemetry, and only if tracing is on.
"""
