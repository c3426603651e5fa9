"""The command `vecmill ray embed`, which embeds large inputs on a Ray cluster with Ray Data.

`scan` reads the input once, in spans, and divides the rows into blocks that are always the same for the same
input. Ray Data distributes the blocks to a pool of actors (`cluster`). Each actor holds one model, and writes
each block (`block_embedding`) into one Parquet file that is named after the block (`blocks`). A manifest
(`bulk_manifest`) binds the output to one input, one model and one set of options. The same command, run
again, computes only the blocks whose files are missing (`run`).
"""
