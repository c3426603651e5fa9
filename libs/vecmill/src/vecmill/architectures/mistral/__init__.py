"""Mistral, whose graph is that of `decoder`."""
