"""Schemas of the fields that `dialects.fields` reads for several families, under all their names."""

from collections.abc import Mapping

from vecmill.rows import RowKind
from vecmill_server.dialects.fields import PURPOSES, ROW_TYPES
from vecmill_server.documents import LARGEST_WHOLE_NUMBER
from vecmill_server.openapi.vocabulary import (
    COUNT,
    FLAG,
    NUMBER,
    OPTIONAL_COUNT,
    OPTIONAL_STRING,
    STRING,
    TOKEN_IDS,
    Family,
    Schema,
    an_object,
    any_of,
    described,
    list_of,
    of_the_model,
    one_of_words,
    reference,
    word_pattern,
    words_in_any_case,
)
from vecmill_server.settings import TokenIds

Properties = Mapping[str, Schema]

_CUTS = ("none", "start", "end", "true", "false")

MODEL: Properties = {
    "model": of_the_model(
        OPTIONAL_STRING, "The model's name, an alias of it, or nothing for the first that does what is asked."
    )
}
TRUNCATION: Properties = {
    **{
        name: of_the_model(
            {
                "anyOf": [
                    {"type": "boolean", "nullable": True},
                    {"type": "string", "pattern": word_pattern(_CUTS)},
                ]
            },
            text,
        )
        for name, text in (
            (
                "truncate",
                "What is too long is cut (true, START, END) or refused (false, NONE); unasked, cut.",
            ),
            ("truncation", "Another name of `truncate`, which goes before it."),
        )
    },
    "truncation_direction": described(
        words_in_any_case(("left", "right")), "The end that is cut off; unasked, as the model has it."
    ),
    "truncation_side": described(words_in_any_case(("left", "right")), "Another name of it."),
    "truncate_prompt_tokens": of_the_model(
        {"type": "integer", "minimum": -1, "maximum": LARGEST_WHOLE_NUMBER, "nullable": True},
        "Cut to so many tokens; 0 and -1 are as many as the model reads.",
    ),
}
PROMPTS: Properties = {
    "prompt_name": of_the_model(OPTIONAL_STRING, "One of the model's own prompts."),
    "prompt": described(OPTIONAL_STRING, "What to put before each text; instead of `prompt_name`."),
}
INPUT_TYPE: Properties = {
    "input_type": described(words_in_any_case(tuple(PURPOSES)), "What the texts are for.")
}
READING: Properties = {**TRUNCATION, **PROMPTS, **INPUT_TYPE}
DIMENSIONS: Properties = {
    name: of_the_model(
        OPTIONAL_COUNT, "Cut each row to this many numbers; 0 does not. A multiple of 8 for bits."
    )
    for name in ("dimensions", "output_dimension")
}
NORMALIZE: Properties = {
    name: of_the_model(FLAG, "Whether rows have length 1; unasked, as the model has it.")
    for name in ("normalize", "normalized")
}
ROW_TYPE_LIST: Schema = {
    "type": "array",
    "minItems": 1,
    "items": {"type": "string", "enum": list(ROW_TYPES)},
}


def _output(types: Schema, text: str) -> Properties:
    """How rows are written, where a list of several ways is one of `types`."""
    return {
        "encoding_format": described(one_of_words(("float", "base64")), "Lists of numbers, or their bytes."),
        "output_dtype": described(one_of_words(tuple(RowKind)), "What kind of numbers."),
        **{
            name: described(
                any_of(one_of_words(ROW_TYPES), types),
                "The same, if `output_dtype` does not say it, or base64 of 32-bit floats." + text,
            )
            for name in ("embedding_type", "encoding_type")
        },
    }


OUTPUT: Properties = _output({**ROW_TYPE_LIST, "maxItems": 1}, "")
OUTPUTS: Properties = _output(ROW_TYPE_LIST, " With several, each row is an object of them.")
RAW_SCORES: Properties = {
    "raw_scores": described(FLAG, "Scores without the model's activation."),
    "use_activation": described(FLAG, "The opposite, if `raw_scores` does not say it."),
}
PAIR_LIMITS: Properties = {
    f"max_tokens_per_{one}": described(OPTIONAL_COUNT, f"{many} are cut to so many tokens; 0 does not.")
    for one, many in (("query", "Queries"), ("doc", "Documents"))
}
MODALITY: Properties = {"modality": described(one_of_words(("text",)), "This server reads text alone.")}

USAGE: Schema = an_object(("prompt_tokens", "total_tokens"), {"prompt_tokens": COUNT, "total_tokens": COUNT})
ROW: Schema = {
    "anyOf": [
        list_of(NUMBER),
        described(STRING, "base64 of the row's little-endian bytes"),
    ]
}
# Its schema is one of those that `describe_fields` hands in.
TEXT_OBJECT: Schema = reference("TextObject")
LABEL: Schema = an_object(("label", "score"), {"label": STRING, "score": NUMBER})


def describe_fields() -> Family:
    """What several families refer to."""
    return Family({}, {"TextObject": an_object(("text",), {"text": STRING})})


def inputs(token_ids: TokenIds) -> Schema:
    """What `read_inputs` takes: a text, several, or the same as token ids where they are accepted."""
    ids = () if token_ids is TokenIds.REFUSE else (of_the_model(TOKEN_IDS, "One text as token ids."),)
    several = {"type": "array", "minItems": 1, "items": any_of(STRING, TEXT_OBJECT, *ids)}
    return described(any_of(STRING, TEXT_OBJECT, several, *ids), "A text, or several.")


def envelope(kind: str, **data: Schema) -> Schema:
    """What surrounds the answers of OpenAI's clients and vLLM's; `object` is `kind`."""
    return an_object(
        ("id", "object", "created", "model", "usage", *data),
        {
            "id": STRING,
            "object": {"type": "string", "enum": [kind]},
            "created": COUNT,
            "model": STRING,
            "usage": USAGE,
            **data,
        },
    )
