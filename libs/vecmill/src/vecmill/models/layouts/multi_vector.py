"""Multi-vector models of sentence-transformers and PyLate: one row for each token, compared by MaxSim.

Source of the rules: sentence-transformers 6.2, `multi_vector_encoder/model.py` and
`multi_vector_encoder/modules/multi_vector_mask.py`.
"""

from dataclasses import replace

from vecmill.errors import UnsupportedModel
from vecmill.models.description import ModelDescription, Task
from vecmill.models.directory import require_object
from vecmill.models.heads import MultiVector
from vecmill.models.layouts.colbert import PUNCTUATION, PyLateSettings
from vecmill.models.layouts.late_interaction import add_sides
from vecmill.models.layouts.modules import MODULES_FILE, Module, StageReader, name_kinds
from vecmill.models.layouts.settings import ModelSettings
from vecmill.models.layouts.transformer_folder import TransformerFolder, join
from vecmill.models.location import ModelLocation
from vecmill.models.stages import Normalize

_MASK = "MultiVectorMask"
_SIDE_KEYS = ("query_length", "document_length", "query_expansion")


def describe_multi_vector_model(
    location: ModelLocation, modules: tuple[Module, ...], settings: ModelSettings
) -> ModelDescription:
    """Describe `MultiVectorEncoder` modules, or PyLate's."""
    directory = location.directory
    if modules[0].kind != "Transformer":
        raise UnsupportedModel(
            f"{directory / MODULES_FILE} lists {name_kinds(modules)}; supported in a multi-vector model are "
            "Transformer, and Dense, LayerNorm, Normalize and MultiVectorMask after it."
        )
    if settings.values.get("similarity_fn_name") == "meanmaxsim":
        raise UnsupportedModel(
            f"{settings.path}: similarity_fn_name 'meanmaxsim' is not supported: rows of tokens are compared "
            "by MaxSim alone."
        )
    folder = TransformerFolder.read(location, modules[0].folder)
    folder.expect_task("feature-extraction")
    pylate = PyLateSettings.read(settings)
    reader = StageReader(directory, folder.encoder.hidden_size, dense_reads="token_embeddings")
    stages = reader.read([module for module in modules[1:] if module.kind != _MASK])
    if reader.pooled:
        raise UnsupportedModel(
            f"{directory / MODULES_FILE}: Pooling is not supported in a multi-vector model."
        )
    masks = [_read_mask(location, module) for module in modules if module.kind == _MASK]
    if settings.model_type == "ColBERT":
        # PyLate masked and normalised without a module for it.
        stages = (*stages, Normalize())
        masks.append(MultiVector(skipped=PUNCTUATION if pylate.skipped is None else pylate.skipped))
    if len(masks) > 1:
        raise UnsupportedModel(f"{directory / MODULES_FILE}: only one {_MASK} is supported.")
    mask = masks[0] if masks else MultiVector()
    description = replace(
        folder.describe(location),
        task=Task.MULTI_VECTOR,
        stages=stages,
        dim=reader.width,
        prompts=pylate.prompts,
        default_prompt_name=settings.default_prompt_name,
        multi_vector=replace(mask, prefixes=pylate.prefixes),
    )
    own = {key: folder.settings[key] for key in _SIDE_KEYS if key in folder.settings}
    finished = add_sides(description, folder, {**pylate.transformer, **own})
    _refuse_unseen_slots_in_deberta(finished)
    return finished


def _refuse_unseen_slots_in_deberta(description: ModelDescription) -> None:
    # DeBERTa sets what its mask leaves out to zero between layers; ours leaves out padding alone.
    said = description.multi_vector
    expansion = None if said is None else said.expansion
    if description.architecture == "deberta-v2" and expansion is not None and not expansion.attend:
        raise UnsupportedModel(
            f"{description.directory}: query expansion that other tokens do not see is not supported "
            "on DeBERTa."
        )


def _read_mask(location: ModelLocation, module: Module) -> MultiVector:
    name = join(module.folder, "config.json")
    config = require_object(location.directory, name)
    if config.get("keep_only_token_ids"):
        raise UnsupportedModel(f"{location.directory / name}: keep_only_token_ids is not supported.")
    sides = config.get("skiplist_tasks") or ["document"]
    return MultiVector(
        skipped=tuple(map(str, config.get("skiplist_words") or ())),
        skipped_in=(sides,) if isinstance(sides, str) else tuple(map(str, sides)),
    )
