"""Quantises fp32 graphs to int8.

A linear layer multiplies activations, one row per token, with a weight matrix. Both are quantised to 8 bits,
and their products are added up exactly in 32 bits:

    weights       one scale per output, rounded one input at a time, so that later
                  inputs compensate for the rounding errors of earlier ones       (`rounding`)
    activations   one scale per row, computed at run time, so that an embedding
                  does not depend on the other texts of its batch                 (`rewriting`)

A few inputs of a layer are far larger than the others and would use up the scale. They are divided by a
factor, and their weights multiplied by it. Factors and rounding need statistics of the inputs:
`calibration` runs texts through the fp32 graph, and `rounding` rounds one matrix after the other.

Norms, softmax, attention, pooling and heads stay fp32. So do the linear layers that `selection` leaves out:
a few layers cause most of the loss of accuracy.
"""
