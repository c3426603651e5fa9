"""The real server with a planted defect. Run as a module: `chaos.planted_server PLANT serve OPTION...`."""

import sys

from chaos.plants import plant_fault
from vecmill.commands.main import main as run_command


def main(plant: str, arguments: list[str]) -> None:
    """Plant the defect, and run the command."""
    plant_fault(plant)
    run_command(arguments, prog_name="vecmill")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
