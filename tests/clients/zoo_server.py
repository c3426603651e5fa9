"""`vecmill` that measures the ranges of 8-bit embeddings on few texts, which takes seconds on many.

The rows that clients get are compared with others of the same server.
"""

import sys

from vecmill.commands.main import main
from vecmill.operations import output_ranges

if __name__ == "__main__":
    output_ranges.SAMPLE_TEXTS = 20
    main(sys.argv[1:], prog_name="vecmill")
