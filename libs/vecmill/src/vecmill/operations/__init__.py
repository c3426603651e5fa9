"""What can be asked of a model, one module for each kind of answer. `Mill` puts them together.

Each function takes an `Intake`, checks that the model does what is asked, and makes an answer of what
the engine gave for each sequence.
"""
