"""Options in the object `parameters`, where the clients of Hugging Face and Pinecone put them."""

from vecmill_server.base.json_io import kind_of
from vecmill_server.dialects.fields import Json, invalid

INPUTS = "inputs"
PARAMETERS = "parameters"
INSTANCES = "instances"
# The fields that are no options: all others may also stand in `parameters`.
NO_OPTIONS = frozenset({"model", INPUTS, "query", "texts", "ids", INSTANCES, PARAMETERS})


def with_parameters(json: Json, parameters: Json) -> Json:
    """Return the body with the keys of `parameters` added that the body itself does not have."""
    return {**parameters, **{name: value for name, value in json.items() if value is not None}}


def read_parameters(json: Json) -> Json:
    """Return the options in the object `parameters`, or no options if the object is absent.

    Raises `InvalidRequest`.
    """
    parameters = json.get(PARAMETERS)
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise invalid("parameters", f"must be an object, not {kind_of(parameters)}.")
    return {name: value for name, value in parameters.items() if name not in NO_OPTIONS}
