"""The corrections that concern a model: why its outputs differ from those of an earlier version.

A model whose outputs were wrong must not read what was kept of them: prepared graphs, ranges of samples,
results, measured plans and the identity of its space. So the names of its corrections are part of its
fingerprint and of its space. A model that no correction concerns keeps both. What changes in the tokens of
texts is not here: it is part of the description of a model, as `token_changes`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vecmill.models.config_fields import read_size
from vecmill.models.description import ModelDescription
from vecmill.models.encoder_config import TransformersConfig
from vecmill.models.model_weights import tells_ties_apart


@dataclass(frozen=True, slots=True)
class Correction:
    """One correction. `name` is part of digests, so it never changes; `concerns` tells for which models.

    `concerns` reads settings, small files and the headers of weights only, because every start calls it; and
    tensors of which the headers tell that they may concern the model.
    """

    name: str
    concerns: Callable[[ModelDescription], bool]


def _expands_on_the_left(description: ModelDescription) -> bool:
    settings = description.multi_vector
    return settings is not None and settings.expansion is not None and settings.expansion.stands_first


# Model types whose classes of transformers compute another text if they get token types 0 than without types:
# the row of the token with the number of the type is added to each token.
_TYPES_ARE_TOKENS = frozenset(
    {
        "codegen",
        "ctrl",
        "flaubert",
        "gpt-sw3",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "gptj",
        "openai-gpt",
        "xlm",
    }
)
_BLOCK_SPARSE = frozenset({"big_bird", "bigbird_pegasus"})


def _got_token_types(description: ModelDescription) -> bool:
    """Whether a class of transformers got token types that the tokenizer does not give."""
    return (
        _is_computed_by_transformers(description)
        and description.architecture in _TYPES_ARE_TOKENS
        and not description.gives_token_types
    )


def _attended_to_all(description: ModelDescription) -> bool:
    """Whether BigBird's attention was full for its long texts, whose attention is sparse."""
    if not _is_computed_by_transformers(description) or description.architecture not in _BLOCK_SPARSE:
        return False
    config = description.config
    block = read_size(config, "block_size", 64)
    longest_full = (5 + 2 * read_size(config, "num_random_blocks", 3, least=0)) * block
    is_sparse = config.get("attention_type", "block_sparse") == "block_sparse"
    return is_sparse and description.max_tokens > longest_full


def _read_first_names(description: ModelDescription) -> bool:
    """Whether a size that has two names was read by the first, or had its default without the first."""
    config, encoder = description.config, description.encoder
    return any(
        alias in config and config.get(key) != config[alias]
        for alias, key in encoder.aliases.items()
        if key in config or not encoder.reads_aliases_alone
    )


def _is_computed_by_transformers(description: ModelDescription) -> bool:
    encoder = description.encoder
    is_foreign = isinstance(encoder, TransformersConfig) and not encoder.runs_code
    return is_foreign and description.exported_graph is None


CORRECTIONS: tuple[Correction, ...] = (
    # A token of an expanded query that attends to nothing weighed its own text and the padding beside it.
    Correction("tokens without keys", lambda description: description.has_keyless_tokens),
    # The copies of the expansion came after the query, although the tokenizer pads on the left.
    Correction("expansion on the left", _expands_on_the_left),
    Correction("token types that no tokenizer gave", _got_token_types),
    Correction("block-sparse attention", _attended_to_all),
    # Output weights of their own, and the table of a T5 encoder, were not read where settings tie them.
    Correction("own tied tensors", tells_ties_apart),
    # T5's num_hidden_layers was ignored, and DistilBERT's beside n_layers.
    Correction("other names of sizes", _read_first_names),
)


def list_corrections(description: ModelDescription) -> tuple[str, ...]:
    """Return the names of the corrections that concern a model, in the order of `CORRECTIONS`.

    Raises `CorruptModel` if a file cannot be read.
    """
    return tuple(each.name for each in CORRECTIONS if each.concerns(description))
