"""Reads PyTorch's weights files (`pytorch_model.bin`) without torch, and without running anything.

    pickled        the values that the pickle of a weights file can describe, and the exceptions
    unpickler      interpreter for these pickles
    archive        zip archives, the format of PyTorch 1.6 and later
    weights_file   the tensors of a file, also in the format before PyTorch 1.6

A weights file is a pickle, which names tensors, and the storages (arrays of numbers) that the tensors view. A
pickle is a program for Python's unpickler, which imports and calls any function that the pickle names. This
package never uses Python's unpickler. Its own interpreter knows the few instructions and names of weights
files, imports nothing, and refuses everything else.
"""
