"""The command `vecmill embed`, which embeds a file of texts of any size into a file of embeddings.

`input_scan` reads the whole input once, counts the rows and finds rows without a text, so that such errors
show at the start and not after hours. `input_records` divides the rows into parts, always the same for the
same file. `pipeline` embeds several parts at once, so that there are always enough waiting texts to sort by
length. A mill in this process (`local`) or a server (`remote`) computes the embeddings. `parts` stores each
finished part in a file of its own. When all parts are stored, `outputs` joins them with the copied columns.

A run that is stopped at any moment loses only the unfinished parts. The same command, run again, continues
with the stored parts.
"""
