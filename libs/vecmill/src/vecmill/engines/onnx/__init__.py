"""The ONNX Runtime engine.

engine        the engine: its sessions of each lane width, and calls
sessions      opens sessions of a graph, with the options of calls
preparation   fills the folder of a model that is prepared for a device
"""
