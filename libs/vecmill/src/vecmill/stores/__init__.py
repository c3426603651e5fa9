"""Stores of vectors as destinations of bulk work: only what changed is embedded, and a store holds one space.

`vector_store` is the interface, and what is checked before anything is added. Each store is a module, which
alone imports the client of the store, and a line in `addresses`. `row_layout` makes rows of an input, and
`content_digests` says which of them have changed. `row_index` holds the ids of an input and of a collection
on disk, `store_writer` brings a collection up to date, and `embedded_collections` is the function of the
library. `earlier_output` is for files: it takes the vectors of unchanged texts from an earlier output.

A store is its own record of what is done: each row has the digest of what it was made from. So nothing is
kept beside it that could differ from it after a crash.
"""
