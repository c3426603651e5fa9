"""The options of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vecmill.commands.embed.input_scan import ColumnOptions
from vecmill.commands.embed.options import choose_model
from vecmill.commands.embed.run import parse_columns, parse_parameters
from vecmill_ray.absolute_paths import absolute_config, absolute_model, absolute_values
from vecmill_ray.bulk.block_embedding import BulkModel
from vecmill_ray.bulk.inputs import InputAddress
from vecmill_ray.bulk.storage import absolute_address


@dataclass(frozen=True, slots=True)
class BulkOptions:
    """The options of the command. `actors` is the number of actors; `None` is as many as there is room."""

    address: InputAddress
    output: str
    columns: ColumnOptions
    choice: BulkModel
    block_rows: int
    actors: int | None = None
    has_shared_files: bool = False


def parse_options(address: str, output: str, options: Mapping[str, Any]) -> BulkOptions:
    """Convert the options of the command line, which are given by name. Paths become absolute.

    Raises `SetupError` if the model or the configuration file is invalid.
    """
    options = absolute_values(options)
    # The actors decide about cores, not the machine of the server that the file describes.
    found = choose_model(options, cores=options["cores"])
    model = BulkModel(
        absolute_model(found.model),
        absolute_config(found.config),
        parse_parameters(options),
        found.trusts_code,
        found.task,
    )
    return BulkOptions(
        InputAddress(absolute_address(address), options["query"], options["key_column"]),
        absolute_address(output),
        parse_columns(options),
        model,
        options["block_rows"],
        options["actors"],
        options["shared_files"],
    )
