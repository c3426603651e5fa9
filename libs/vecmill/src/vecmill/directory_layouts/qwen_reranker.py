"""Describes Qwen3 rerankers, language models that answer "yes" or "no" to the
question whether a document fits a query.

Source of the rules: the program on the model card of Qwen3-Reranker. The models are saved as plain causal
language models, which the directory does not distinguish, so the task has to be requested. Prompts of
config_sentence_transformers.json, if any, are instructions.
"""

from dataclasses import replace
from typing import Any

from vecmill.architectures.registry import configured_architectures
from vecmill.directory_layouts.sentence_transformers_config import ModelSettings
from vecmill.directory_layouts.transformer_folder import TransformerFolder
from vecmill.errors import UnsupportedModel
from vecmill.models.config_fields import check_token_number
from vecmill.models.description import ModelDescription
from vecmill.models.directory import read_object
from vecmill.models.heads import Activation, Head, HeadKind, PairTemplate
from vecmill.models.location import ModelLocation
from vecmill.models.tokenizer_file import read_vocabulary, tokenizer_limits
from vecmill.values.messages import not_supported
from vecmill.values.task import Task

TEMPLATE = PairTemplate(
    start=(
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
        'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    ),
    body="<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}",
    end="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    instruction="Given a web search query, retrieve relevant passages that answer the query",
)
_LONGEST_INPUT = 8192  # of the program on the model card


def describe_qwen_reranker(location: ModelLocation, folder: TransformerFolder) -> ModelDescription:
    """Describe a Qwen3 language model as a reranker. Raises `UnsupportedModel` for other architectures."""
    if not folder.encoder.judges_pairs:
        rerankers = [name for name, found in configured_architectures().items() if found.judges_pairs]
        what = f"{folder.path('config.json')}: a {folder.class_name} as a reranker of the model_type"
        raise UnsupportedModel(not_supported(what, folder.config["model_type"], rerankers))
    limits = tokenizer_limits(folder.encoder.vocab_size)
    tokenizer = read_object(location.directory, "tokenizer.json", limits=limits) or {}
    description = folder.describe(location)
    return ModelSettings.read(location.directory).add_prompts(
        replace(
            description,
            task=Task.RERANK,
            head=Head(
                HeadKind.YES_NO,
                activation=Activation.SIGMOID,
                token_ids=(_find_token(folder, tokenizer, "yes"), _find_token(folder, tokenizer, "no")),
            ),
            dim=1,
            max_tokens=min(description.max_tokens, _LONGEST_INPUT),
            pair_template=TEMPLATE,
        )
    )


def _find_token(folder: TransformerFolder, tokenizer: dict[str, Any], token: str) -> int:
    path = folder.path("tokenizer.json")
    vocabulary = read_vocabulary(tokenizer, path)
    token_id = vocabulary.get(token) if isinstance(vocabulary, dict) else None
    if token_id is not None:
        token_id = check_token_number(token_id, f"{path}: model.vocab.{token}")
    if token_id is None or token_id >= folder.encoder.vocab_size:
        raise UnsupportedModel(
            f"{path} has no token {token!r} below vocab_size, with which a reranker of this kind answers."
        )
    return token_id
