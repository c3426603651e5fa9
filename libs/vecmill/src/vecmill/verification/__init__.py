"""Checks of an engine's outputs against reference implementations, for models of every task.

`values.sample_texts` makes texts. `model_outputs` makes inputs of these texts and computes the engine's
outputs, and `reference` the reference outputs. `comparison` measures the differences. `precision_gate`
refuses precisions that lose too much accuracy. `self_check` is the check when a server starts.
"""
