"""How far the answers that we serve are from those that they should be, whatever a model's task.

`sample` makes texts and `questions` makes of them what a model is asked; `answers` computes ours and
`reference`, with the libraries that `oracles` knows, the ones to compare with; `comparison` measures,
`check` puts all of it together, and `selfcheck` is what a server does at its start.
"""
