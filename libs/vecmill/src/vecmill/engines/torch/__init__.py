"""The torch engines: `engine` runs a model eagerly, `compiled` runs a model compiled by torch's compiler.

engine, compiled      the two engines, and the number of cores of a call
devices               the devices of this machine, and their precisions
replica               a model on one device: copies of inputs and outputs, device errors
native                calls of compiled programs without Python's lock
program, operators    a model's graph as a torch module, with attention as one operator
transformers_model    models of architectures that only transformers implements
"""
