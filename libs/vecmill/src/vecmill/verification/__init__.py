"""Checks of an engine's outputs against reference implementations, for models of every task.

`values.sample_texts` makes texts and `check_inputs` makes inputs of these texts. `model_outputs` computes the
engine's outputs, and `reference` the reference outputs, with `reference_implementations`. `comparison`
measures the differences, and `reference_check` joins these steps. `precision_gate` refuses precisions that
lose too much accuracy. `self_check` is the check when a server starts.
"""
