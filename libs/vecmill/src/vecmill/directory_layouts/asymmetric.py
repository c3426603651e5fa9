"""Reads asymmetric models, whose `Router` sends queries and documents through different modules.

    modules.json            a Router, and modules after it that queries and documents share
    router_config.json      config.json in models that were saved when the class was named Asym
        types               the class of each module, by the folder of the module
        structure           the folders of the modules of each route, "query" and "document"
        parameters          default_route: the route of texts whose purpose is not stated

Documents have the modules of an ordinary model. Queries have those of another one, or are looked up in a
table, with a tokenizer of their own: `SparseStaticEmbedding` has a weight for each token, `StaticEmbedding`
an embedding.

Source of the rules: sentence-transformers 6.2, `base/modules/router.py` and
`sparse_encoder/modules/sparse_static_embedding.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vecmill.architectures.static import TOKEN_WEIGHTS, StaticConfig
from vecmill.directory_layouts.embedding import (
    LONGEST_INPUT,
    describe_embedding_model,
    describe_sparse_model,
    describe_static_model,
)
from vecmill.directory_layouts.modules import (
    ModelSettings,
    Module,
    name_kinds,
    read_module,
    refuse_many,
    without_dropout,
)
from vecmill.directory_layouts.transformer_files import (
    find_module_weights,
    find_tokenizer,
    join,
    read_longest_input,
    read_tokenizer_config,
    truncates_left,
)
from vecmill.errors import CorruptModel, UnsupportedModel
from vecmill.models.config_fields import read_flag, read_mapping, read_text, read_texts
from vecmill.models.description import AsymmetricRoutes, ModelDescription
from vecmill.models.directory import check_size, read_object, require_object
from vecmill.models.location import ModelLocation
from vecmill.models.stages import StoredStage
from vecmill.models.tokenizer_file import tokenizer_limits
from vecmill.models.weights import Weights
from vecmill.requests import Purpose
from vecmill.tokenization.building.token_changes import find_changes
from vecmill.values.messages import show
from vecmill.values.task import Task

# Asym is the older name.
ROUTERS = ("Router", "Asym")

# MLMTransformer is the name of Transformer before release 5.4.
_ENCODERS = ("Transformer", "MLMTransformer")
_FILE, _OLD_FILE = "router_config.json", "config.json"
_ROUTES = (Purpose.QUERY, Purpose.DOCUMENT)
_PARAMETERS = ("default_route", "allow_empty_key", "route_mappings")


@dataclass(frozen=True, slots=True)
class _Routes:
    """The modules of each route, those that both share included, and the default route."""

    path: Path
    query: tuple[Module, ...]
    document: tuple[Module, ...]
    default: Purpose | None


def describe_asymmetric_model(
    location: ModelLocation, modules: tuple[Module, ...], settings: ModelSettings
) -> ModelDescription:
    """Describe modules that begin with a Router.

    Raises `UnsupportedModel` for other routes than an encoder for documents, and a look-up or an encoder for
    queries, and for routes whose embeddings cannot be compared; `CorruptModel` for an invalid file.
    """
    is_sparse = settings.model_type == "SparseEncoder"
    routes = _read_routes(location.directory, modules)
    static = "SparseStaticEmbedding" if is_sparse else "StaticEmbedding"
    if routes.query[0].kind not in (static, *_ENCODERS) or routes.document[0].kind not in _ENCODERS:
        raise UnsupportedModel(
            f"{routes.path}: structure.query has {name_kinds(routes.query)} and structure.document "
            f"{name_kinds(routes.document)}; supported are {static} or Transformer first for queries, and "
            "Transformer first for documents."
        )
    own = replace(location, weights_sha256=None, graph=None)
    is_table = routes.query[0].kind == static
    if is_sparse:
        document = describe_sparse_model(location, routes.document, settings)
        query = (
            _describe_weights(own, routes) if is_table else describe_sparse_model(own, routes.query, settings)
        )
    else:
        document = describe_embedding_model(location, routes.document, settings)
        describe = describe_static_model if is_table else describe_embedding_model
        query = describe(own, routes.query, settings)
    query = replace(query, token_heads=None)
    _refuse_unlike(routes.path, query, document)
    return replace(document, token_heads=None, router=AsymmetricRoutes(query, routes.default))


def _read_routes(directory: Path, modules: tuple[Module, ...]) -> _Routes:
    folder, shared = modules[0].folder, modules[1:]
    name = join(folder, _FILE)
    config = read_object(directory, name)
    if not config:
        name = join(folder, _OLD_FILE)
        config = read_object(directory, name) or {}
    if not config.get("structure"):
        raise CorruptModel(
            f"{directory / folder / _FILE} is missing or names no routes in structure. Download the "
            "model again."
        )
    path = directory / name
    types, structure = (read_mapping(config, key, file=path) for key in ("types", "structure"))
    parameters = read_mapping(config, "parameters", file=path)
    if set(structure) != set(_ROUTES):
        names = ", ".join(show(route) for route in list(structure)[:8]) or "none"
        raise UnsupportedModel(f"{path}: structure has the routes {names}; supported are query and document.")
    found = {
        route: (
            *_read_route(directory, folder, name, types, read_texts(structure, route, file=path)),
            *shared,
        )
        for route in _ROUTES
    }
    default = _read_default(path, parameters, next(iter(structure)))
    return _Routes(path, found[Purpose.QUERY], found[Purpose.DOCUMENT], default)


def _read_route(
    directory: Path, folder: str, file: str, types: Mapping[str, Any], names: Sequence[str]
) -> tuple[Module, ...]:
    missing = [name for name in names if name not in types]
    if missing or not names:
        raise CorruptModel(f"{directory / file}: structure must name modules of types for each route.")
    refuse_many(directory / file, len(names))
    modules = (read_module(directory, file, types[name], join(folder, name)) for name in names)
    found = without_dropout(modules)
    if not found:
        raise UnsupportedModel(f"{directory / file}: structure has a route of Dropout alone.")
    return found


def _read_default(path: Path, parameters: Mapping[str, Any], first: str) -> Purpose | None:
    """Return the route of texts of no purpose: the named one, or the `first` if that is allowed."""
    where = f"{path}: parameters"
    for key in parameters:
        if key not in _PARAMETERS:
            raise UnsupportedModel(f"{where}.{show(key)} is not supported.")
    if parameters.get("route_mappings"):
        raise UnsupportedModel(
            f"{where}.route_mappings is not supported: routes are chosen by their names, query and document."
        )
    allows_empty = read_flag(parameters, "allow_empty_key", default=True, file=where)
    name = read_text(parameters, "default_route", first if allows_empty else None, file=where)
    if name is None:
        return None
    if name not in _ROUTES:
        raise CorruptModel(f"{where}.default_route {show(name)} is not a route of structure.")
    return Purpose(name)


def _describe_weights(location: ModelLocation, routes: _Routes) -> ModelDescription:
    """Describe a `SparseStaticEmbedding`, the only module of its route."""
    directory, module = location.directory, routes.query[0]
    if len(routes.query) > 1:
        raise UnsupportedModel(
            f"{routes.path}: structure.query has {name_kinds(routes.query)}; nothing is supported after "
            "SparseStaticEmbedding."
        )
    path = directory / module.folder / "config.json"
    config = require_object(directory, join(module.folder, "config.json"))
    if config.get("path") is not None:
        raise UnsupportedModel(
            f"{path}: path names a file outside the model, which is not supported. Save the model again with "
            "sentence-transformers: its weights are then in model.safetensors."
        )
    weights_file = find_module_weights(directory, module.folder)
    weights = Weights.open(weights_file)
    shape = weights.shape(TOKEN_WEIGHTS)
    if len(shape) != 1 or 0 in shape:
        raise CorruptModel(
            f"{weights_file}: tensor {TOKEN_WEIGHTS!r} has shape {list(shape)}, but must have one weight for "
            "each token."
        )
    weights.tensor(TOKEN_WEIGHTS, shape)
    tokens, tokenizer_config = shape[0], read_tokenizer_config(directory, module.folder)
    tokenizer_file = find_tokenizer(directory, module.folder)
    check_size(tokenizer_file, tokenizer_limits(tokens).max_bytes)
    longest = read_longest_input(directory / module.folder, tokenizer_config)
    described = ModelDescription(
        name=location.name,
        directory=directory,
        task=Task.SPARSE,
        architecture="static",
        encoder=StaticConfig(vocab_size=tokens, hidden_size=1),
        dim=tokens,
        max_tokens=LONGEST_INPUT if longest is None else min(longest, LONGEST_INPUT),
        vocab_size=tokens,
        stages=(),
        lowercase=False,
        truncate_left=truncates_left(tokenizer_config),
        prompts={},
        default_prompt_name=None,
        config=config,
        tokenizer_file=tokenizer_file,
        weights_files=(weights_file,),
        weights_sha256=None,
        # A tokenizer without settings is read with its class too.
        tokenizer_config={"tokenizer_class": None, **tokenizer_config},
        special_tokens=False,
    )
    return replace(described, token_changes=find_changes(described))


def _refuse_unlike(path: Path, query: ModelDescription, document: ModelDescription) -> None:
    if query.dim != document.dim:
        raise UnsupportedModel(
            f"{path}: the routes have embeddings of {query.dim} and {document.dim} dimensions, which "
            "cannot be compared."
        )
    if query.task is Task.EMBED and query.normalize != document.normalize:
        raise UnsupportedModel(
            f"{path}: structure ends with Normalize for one route alone, which is not supported."
        )
    if query.encoder.adapters or document.encoder.adapters:
        raise UnsupportedModel(f"{path}: a route has several adapters, which is not supported in a router.")
    if query.adapter is not None:
        raise UnsupportedModel(
            f"{query.adapter.config_file}: an adapter of the encoder of queries is not supported. Merge it "
            "into the weights first."
        )
    weighted = [stage for stage in query.stages if isinstance(stage, StoredStage)]
    if weighted and query.is_table:
        raise UnsupportedModel(
            f"{path}: structure.query has {type(weighted[0]).__name__}; only Normalize is supported after "
            "StaticEmbedding."
        )
