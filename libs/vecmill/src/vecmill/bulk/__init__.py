"""Bulk work: the texts of a file of any size become a file of embeddings. For commands and clusters.

`sources` reads the rows of an input, and `records` divides them into parts, always the same for the same
file. `input_scan` reads the whole input once, counts the rows and finds rows without a text, so that such
errors show at the start and not after hours. `pipeline` embeds several parts at once, so that there are
always enough waiting texts to sort by length. A mill in this process (`local`) or a server (`remote`)
computes the embeddings. `outputs` writes them with the copied columns.
"""
