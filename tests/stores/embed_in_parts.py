"""`vecmill` with parts of another size: the first argument. The others are those of `vecmill`."""

import sys

from vecmill.commands.main import main
from vecmill.stores import store_writer

store_writer.PART_ROWS = int(sys.argv.pop(1))
main(prog_name="vecmill")
