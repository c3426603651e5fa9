"""`vecmill embed`: a file of texts in, a file of their rows out, however many there are.

How it works. `survey` reads the input once, whole: it counts the rows and finds those without a text, so
that nothing of that is learned only after hours. `records` cuts the rows into parts, always the same ones
for the same file. `pipeline` has several parts embedded at once, by a mill in this process (`local`) or by
a server (`remote`), so that there is always enough waiting to sort by length. `parts` keeps each part that
is done in a file of its own, whole or not at all. When all are there, `outputs` lays them end to end
beside the columns that are kept, and the output gets its name.

So a run that is stopped at any moment, in any way, has lost no more than the parts that were under way; the
same command finds the others and goes on.
"""
