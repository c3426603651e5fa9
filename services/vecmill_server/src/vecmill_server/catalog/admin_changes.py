"""What may be changed of the catalog while it is served, and by whom.

An admin may take a model out, and bring it back. No request adds another one: models are named at the start.
"""

from vecmill.errors import InvalidRequest
from vecmill_server.base.errors import AdminRequired
from vecmill_server.catalog.catalog import Catalog


def admin_required() -> AdminRequired:
    """Return the error of a request that would change what is served."""
    return AdminRequired(
        "Only a key of --admin-key-file may change which models are served and loaded. Ask the operator."
    )


def remove_model(catalog: Catalog, name: str) -> None:
    """Stop serving a model loaded on demand, and drop it when its requests are answered.

    Raises `UnknownModel`, and `InvalidRequest` if the model stays loaded or is the last one.
    """
    model = catalog.resolve(name)
    if model.resident is None or catalog.residency is None:
        raise InvalidRequest(f"The model `{model.name}` is always served.", field="model")
    if len(list(catalog)) == 1:
        raise InvalidRequest("The last model cannot be removed.", field="model")
    catalog.removed.add(model.name)
    catalog.residency.keep(model.resident, 0.0)


def restore_model(catalog: Catalog, name: str | None, *, is_admin: bool) -> None:
    """Serve a model again that was removed; without effect for other names. Raises `AdminRequired`."""
    if name is None or not catalog.removed:
        return
    found = catalog.names.find(name)
    if found is None or found.name not in catalog.removed:
        return
    if not is_admin:
        raise admin_required()
    catalog.removed.discard(found.name)
