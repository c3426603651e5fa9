"""How far the rows that we serve are from the rows that they should be.

`comparison` measures, `reference` computes the rows to compare with, `sample` makes texts,
`check` puts the three together, and `selfcheck` is what a server does at its start.
"""
