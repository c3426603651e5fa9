"""HTTP/1.1 connections: a protocol for uvicorn."""
