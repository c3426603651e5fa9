"""The torch engines: `engine` runs a program step by step, `compiled` what torch's compiler made of it.

engine, compiled      what the table of engines names
devices               which devices there are, and what they compute in
replica               a program on one device: copies in and out, and what a failure means
native                calling what was compiled without Python's lock
threads               how many cores a call takes
program, operators    a graph of `graphs.build` as a torch module
attention             attention found in a graph
library               architectures that only transformers has
"""
