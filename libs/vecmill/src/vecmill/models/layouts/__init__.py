"""Which of the layouts a model directory has, and what it says then, read without touching its weights.

    modules.json                        sentence-transformers: an encoder and the modules after it
      model_type in config_sentence_transformers.json
        SentenceTransformer             `embedding`, or `static` where the encoder is a table
        SparseEncoder                   `sparse`
        MultiVectorEncoder, ColBERT     `multi_vector`
        CrossEncoder                    `cross_encoder`
    config.json alone                   `plain`: a transformers model, by its class

The truth of each is what sentence-transformers 6.2 or a transformers 5 pipeline makes of it.
"""

from vecmill.errors import UnsupportedModel
from vecmill.models.description import ModelDescription, Task
from vecmill.models.layouts.cross_encoder import describe_cross_encoder
from vecmill.models.layouts.embedding import describe_embedding_model
from vecmill.models.layouts.modules import Module, read_modules
from vecmill.models.layouts.multi_vector import describe_multi_vector_model
from vecmill.models.layouts.plain import describe_plain_model
from vecmill.models.layouts.settings import ModelSettings
from vecmill.models.layouts.sparse import describe_sparse_model
from vecmill.models.layouts.static import describe_static_model
from vecmill.models.location import ModelLocation


def describe_model(location: ModelLocation, task: Task | None = None) -> ModelDescription:
    """Read the settings of the model at `location`; `task` overrules what the directory says it is for.

    Raises `CorruptModel` if a file is broken or missing, `UnsupportedModel` if the model asks for something
    that is not done here, or cannot do `task`; both name the file.
    """
    modules = read_modules(location.directory)
    if modules is None:
        return describe_plain_model(location, task)
    description = _describe_modules(location, modules)
    if task not in (None, description.task):
        raise UnsupportedModel(
            f"{location.directory}: the task {task} was asked for, but modules.json makes this a model for "
            f"{description.task}."
        )
    return description


def _describe_modules(location: ModelLocation, modules: tuple[Module, ...]) -> ModelDescription:
    settings = ModelSettings.read(location.directory)
    kinds = [module.kind for module in modules]
    match settings.model_type:
        case "CrossEncoder":
            return describe_cross_encoder(location, modules, settings)
        case "MultiVectorEncoder" | "ColBERT":
            return describe_multi_vector_model(location, modules, settings)
        case "SparseEncoder":
            return describe_sparse_model(location, modules, settings)
        case "SentenceTransformer" if "SpladePooling" in kinds:
            return describe_sparse_model(location, modules, settings)
        case "SentenceTransformer" if kinds[:1] == ["StaticEmbedding"]:
            return describe_static_model(location, modules, settings)
        case "SentenceTransformer":
            return describe_embedding_model(location, modules, settings)
    raise UnsupportedModel(
        f"{location.directory / settings.FILE}: model_type {settings.model_type!r} is not supported."
    )
