"""Makes a driver's calls again and again in one process, as importing a client's package takes longer.

`python -m clients.drivers.resident NAME` reads lines of JSON, `[BASE_URL, CALL...]`, and prints for each the
last line that the driver prints.
"""

import io
import json
import runpy
import sys
from contextlib import redirect_stdout


def main(driver: str) -> None:
    for line in sys.stdin:
        sys.argv = [driver, *json.loads(line)]
        with redirect_stdout(io.StringIO()) as printed:
            runpy.run_module(f"clients.drivers.{driver}", run_name="__main__")
        print(printed.getvalue().splitlines()[-1], flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
