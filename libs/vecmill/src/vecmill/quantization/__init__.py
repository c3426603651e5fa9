"""int8 graphs made from fp32 ones.

How it works. A linear layer multiplies rows of activations, one a token, with a matrix of weights. Here
both become 8 bits wide, and their products are added up in 32 bits, which is exact:

    weights       one scale for each output, rounded one input at a time so that what rounding
                  breaks is mended by the inputs that are still to be rounded     (`rounding`)
    activations   one scale for each row, found when the row is there, so that a
                  text's row never depends on who shares its batch                (`rewriting`,
                  or by the runtime: `compression`)

What makes this hard is that a few inputs of a layer are far larger than all others and take the whole
scale. They are divided by a factor, and their weights multiplied by it (`smoothing`). The factors and
the rounding need to know what inputs look like: `calibration` runs texts through the fp32 graph, and
`layers` makes one matrix after the other.

Everything else (norms, softmax, attention, pooling, heads) stays fp32.
"""

from vecmill.quantization.calibration import calibration_sequences
from vecmill.quantization.compression import compress_weights
from vecmill.quantization.rewriting import quantize_graph

__all__ = ["calibration_sequences", "compress_weights", "quantize_graph"]
