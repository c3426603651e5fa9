"""Lets an adapter that is prepared share the prepared weights of its base (`graphs.shared_weights`).

The base is prepared for it, whether it is served or not: so all adapters of a base share the same file, in
whatever order they are prepared.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from vecmill.engines.prepared import MODEL_FILE, PreparedModel
from vecmill.errors import SetupError

if TYPE_CHECKING:
    from vecmill.models import ModelDescription

logger = logging.getLogger(__name__)


def share_base_weights(
    description: "ModelDescription",
    folder: Path,
    cache_dir: Path,
    prepare: "Callable[[ModelDescription], PreparedModel]",
) -> None:
    """Let the graph in `folder`, of a model with an adapter, use the weights of its base, as `prepare`d.

    Models without an adapter stay as they are. So does a model that is served from memory, and one whose base
    cannot be prepared alone.
    """
    base = description.base
    if base is None or base.exported_graph is not None or not folder.parent.samefile(cache_dir):
        return
    from vecmill.graphs.shared_weights import share_weights

    try:
        prepared = prepare(base)
    except SetupError as error:
        logger.info("%s shares no weights with its base: %s", description.name, error.message)
        return
    if prepared.temporary is None and prepared.built is None:  # it is in the cache too
        shared_bytes = share_weights(folder / MODEL_FILE, prepared.path)
        logger.info("%s shares %d MB of weights with its base.", description.name, shared_bytes // 10**6)
    prepared.close()
