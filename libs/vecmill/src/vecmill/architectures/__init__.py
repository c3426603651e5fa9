"""The architectures with a built-in graph, one folder for each, and their registry."""
