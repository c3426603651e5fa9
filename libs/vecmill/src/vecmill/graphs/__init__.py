"""The parts of the ONNX graphs of models, built without torch.

`architectures` puts the parts together. Importing this package alone imports no ONNX library.
"""
