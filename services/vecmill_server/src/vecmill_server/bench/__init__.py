"""The command `vecmill bench`, which measures a server that speaks OpenAI's embeddings or a rerank API.

    command       the options
    request_sets  the texts, and the request bodies of each API
    target        the server: its address, its model, and a check that it answers
    generator     the process that sends requests and takes the times
    load_results  the loads, closed loop or open loop, and their results: table, JSON document and plot
    run           all loads, one after the other

In a closed loop each client sends its next request when the last one is answered, so a slow server gets fewer
requests. In an open loop the requests leave at times that are drawn before the run, and the latency counts
from these times, so the wait behind slow responses is counted too.
"""
