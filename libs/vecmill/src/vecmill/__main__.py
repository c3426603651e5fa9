"""`python -m vecmill` is `vecmill`."""

from vecmill.commands.main import main

main(prog_name="vecmill")
