"""Qwen 2 and 3, whose graph is that of `decoder`."""
