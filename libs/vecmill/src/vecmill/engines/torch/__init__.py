"""The torch engines: `engine` runs a model eagerly, `compiled` runs a model compiled by torch's compiler.

engine, compiled      the two engines, and the number of cores of a call
devices               the devices of this machine, and their precisions
replica               a model on one device: copies of inputs and outputs, device errors
overlapped_program    calls of a GPU that overlap
captured_shapes       the shapes of calls that are captured, and when captures end
device_calls          what a call needs of a device: copies, streams, captures
native                calls of compiled programs without Python's lock
program, operators    a model's graph as a torch module, with attention as one operator
transformers_model    models of architectures that only transformers implements
"""
