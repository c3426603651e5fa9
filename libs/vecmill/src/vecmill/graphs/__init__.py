"""Encoders as ONNX graphs, built from a model's own files without torch.

Importing this imports no ONNX library: `graphs.build` does, when a graph is built.
"""

# Part of every fingerprint: raise it whenever a change here can change a row, a graph's inputs or its files.
GRAPH_VERSION = 4
