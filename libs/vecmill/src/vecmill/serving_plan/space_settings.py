"""The parts of a space that need no tensors: the settings of a model, and its tokenizer."""

from collections.abc import Callable, Iterator
from typing import Any

from vecmill.models import ModelDescription
from vecmill.models.corrections import list_corrections
from vecmill.models.encoder_config import TransformersConfig
from vecmill.models.space import SpacePart, to_canonical
from vecmill.models.stages import Pooling
from vecmill.tokenization.building.classes import gives_token_types
from vecmill.tokenization.shared import LoadedTokenizer

# Of config.json; they change no output, or are read into other settings.
_NO_SETTINGS = frozenset(
    {"_name_or_path", "architectures", "dtype", "id2label", "label2id", "torch_dtype", "transformers_version"}
)

# Returns the `tokenizers.Tokenizer` of a description.
LoadTokenizer = Callable[[ModelDescription], Any]


def read_library(description: ModelDescription) -> Any:
    """Return the `tokenizers.Tokenizer` of a model. Raises the errors of `read_tokenizer`."""
    return LoadedTokenizer.read(description).library


def list_settings(description: ModelDescription, library: Any) -> Iterator[SpacePart]:
    """Yield the parts. `library` is the `tokenizers.Tokenizer` of the model."""
    yield _digest_tokenizer(description, library)
    encoder = description.encoder
    settings = to_canonical(encoder)
    if isinstance(encoder, TransformersConfig):
        settings = {key: value for key, value in description.config.items() if key not in _NO_SETTINGS}
    yield SpacePart.of("architecture", [description.architecture, settings], description.architecture)
    yield SpacePart.of("head", _list_head(description), description.task)
    pooling = [stage for stage in description.stages if isinstance(stage, Pooling)]
    modes = ", ".join(mode for stage in pooling for mode in stage.modes)
    yield SpacePart.of("pooling", pooling, modes or "none")
    yield SpacePart.of("normalisation", description.normalize, "yes" if description.normalize else "no")
    prompts, default = dict(description.prompts), description.default_prompt_name
    yield SpacePart.of("prompts", [prompts, default], ", ".join(sorted(prompts)) or "none")
    shape = description.output_shape
    about = f"{description.dim} dimensions, float32, by {shape}"
    yield SpacePart.of("output", [shape, description.dim, "float32"], about)
    if description.padding is not None:
        yield SpacePart.of("padding", description.padding, f"to {description.max_tokens} tokens")
    corrections = list_corrections(description)
    if corrections:
        yield SpacePart.of("corrections", corrections, ", ".join(corrections))


def _list_head(description: ModelDescription) -> list[object]:
    return [
        description.task,
        description.head,
        description.pair_template,
        description.chat_template,
        description.list_template,
        description.multi_vector,
    ]


def _digest_tokenizer(description: ModelDescription, library: Any) -> SpacePart:
    # As the library writes it: the file may have other white space, padding and truncation.
    values = [
        library.to_str(),
        library.encode_special_tokens,
        description.special_tokens,
        gives_token_types(description.tokenizer_config, description.config),
    ]
    about = f"{library.get_vocab_size(with_added_tokens=True)} tokens"
    return SpacePart.of("tokenizer", values, about)
