"""Makes a driver's calls again and again in one process, as importing a client's package takes longer.

`python -m clients.drivers.resident NAME` reads lines of JSON, `[BASE_URL, CALL...]`, and prints `END` after
what the driver prints for each.
"""

import json
import runpy
import sys

from clients.drivers.report import END


def main(driver: str) -> None:
    for line in sys.stdin:
        sys.argv = [driver, *json.loads(line)]
        runpy.run_module(f"clients.drivers.{driver}", run_name="__main__")
        print(END, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
