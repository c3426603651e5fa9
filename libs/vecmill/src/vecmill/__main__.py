"""`python -m vecmill` is `vecmill`."""

from vecmill.cli import main

main(prog_name="vecmill")
