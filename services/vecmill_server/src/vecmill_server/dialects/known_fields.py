"""Fields that clients send and that the server does not support: refused fields, and harmless fields.

The rule: a field that changes numbers is never ignored. Each field of an API is read, or it is refused unless
it has the value that changes nothing, or it is in `harmless` of its body, with the reason why the server may
ignore it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from vecmill_server.base import json_schema
from vecmill_server.dialects import fields, text_fields
from vecmill_server.dialects.dialect import InferenceBody

_NO_TEMPLATE = "This server has no chat templates."
_OF_TEMPLATES = "Only for chat templates, of which there are none."
_OF_MEDIA = "Only for pictures, beside which it is refused."

# vLLM's settings of how pictures are read and prepared, which is here as the model says.
PICTURE_SETTINGS = ("mm_processor_kwargs", "media_io_kwargs")
# OpenAI, Mistral, LiteLLM, RAGFlow.
CALLER: Mapping[str, str] = {
    "user": "The end user, for the statistics of a provider.",
    "metadata": "Notes of the client.",
    "drop_params": "An option of LiteLLM's proxy.",
}
VLLM: Mapping[str, str] = {
    **CALLER,
    "request_id": "The id of the request. Here the header x-request-id sets it.",
    "cache_salt": "A part of the keys of a prefix cache.",
    **dict.fromkeys(PICTURE_SETTINGS, _OF_MEDIA),
    "add_generation_prompt": _OF_TEMPLATES,
    "continue_final_message": _OF_TEMPLATES,
}
# Cohere, Jina, SiliconFlow, Xinference.
RERANK: Mapping[str, str] = {
    **VLLM,
    "overlap_tokens": "The overlap of chunks. The server splits no documents; see `max_chunks_per_doc`.",
    "return_len": "The response always has the number of tokens.",
    "kwargs": "A copy of other fields, as a JSON string.",
    "relevant_spans": "Parts of the documents beside the scores, which are never returned.",
}
OLLAMA_SHOW: Mapping[str, str] = {
    "verbose": "Whether to show the vocabulary too, which is never shown.",
    "system": "A message for the generation of text.",
    "template": "A template for the generation of text.",
    "options": "Options of the generation of text.",
}
OLLAMA_PULL: Mapping[str, str] = {
    "stream": "Whether to report the progress of a download. The answer has one line, at the end.",
    "insecure": "Whether to download without TLS. The server downloads nothing.",
}
HUGGING_FACE: Mapping[str, str] = {"options": "Caching and waiting of Hugging Face's endpoints."}


class TemplatedBody(InferenceBody):
    """A body of vLLM's clients, whose texts a chat template could change."""

    priority = text_fields.PRIORITY
    padding = fields.fixed(
        "padding",
        json_schema.one_of_words(("do_not_pad",)),
        lambda value, name: fields.to_string(value, name) == "do_not_pad",
        "`padding` must be do_not_pad: texts are not padded with tokens that change their results.",
        "Texts are never padded.",
    )
    chat_template = fields.refused(
        "chat_template", f"`chat_template` is not applied. {_NO_TEMPLATE}", _NO_TEMPLATE
    )
    chat_template_kwargs = fields.refused(
        "chat_template_kwargs",
        f"`chat_template_kwargs` are not applied. {_NO_TEMPLATE} Rerankers that are language models take "
        "`instruction`.",
        _NO_TEMPLATE,
    )
    harmless = VLLM


class InputBody(TemplatedBody):
    """A body of vLLM's and OpenAI's clients with `input`."""

    messages: ClassVar[Any] = fields.refused(
        "messages",
        "`messages` are not read: send the text itself as `input`.",
        "Send the text itself as `input`.",
    )
    add_special_tokens = fields.fixed(
        "add_special_tokens",
        json_schema.ALWAYS,
        fields.to_flag,
        "`add_special_tokens` must be true: texts are read with the model's special tokens. Token ids are "
        "used as they are, on a server that was started with --token-ids native.",
        "Texts are always read with the model's special tokens.",
    )
    late_chunking_params = fields.refused(
        "late_chunking_params",
        "`late_chunking_params` is not supported. With `late_chunking`, the texts are chunks of one text.",
        "See `late_chunking` at /embeddings.",
    )
