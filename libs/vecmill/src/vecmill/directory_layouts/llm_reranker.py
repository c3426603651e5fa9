"""Reads LLM rerankers: causal language models that score a pair by the logit of a token such as "yes".

They are saved as plain causal language models, and the directory does not say how a query and a document are
joined, nor which tokens are the answers. They are known by the name of a published model: the name of the
model or of its directory, or `_name_or_path` of config.json, which also the models tuned further have. Every
Qwen3 language model of another name is a Qwen3-Reranker, on request. Prompts of
config_sentence_transformers.json, if any, are instructions.

The layerwise reranker of BAAI and the rerankers of NVIDIA are known by their classes. They have a head of one
score instead of an answer.

Sources of the rules: the programs on the model cards of Qwen3-Reranker, bge-reranker-v2-gemma and
bge-reranker-v2-minicpm-layerwise; `MxbaiRerankV2` of mxbai-rerank 0.1; the code in the repository of
zerank-1; for llama-nemotron-rerank-1b-v2, `prompt_template` of its model card.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from vecmill.architectures.registry import configured_architectures, name_architecture
from vecmill.directory_layouts.modules import ModelSettings
from vecmill.directory_layouts.transformer_files import join
from vecmill.directory_layouts.transformer_folder import TransformerFolder
from vecmill.errors import UnsupportedModel
from vecmill.models.config_fields import check_token_number, read_text
from vecmill.models.description import ModelDescription
from vecmill.models.directory import read_object
from vecmill.models.heads import Activation, Head, HeadKind, JoinedTemplate, PairTemplate
from vecmill.models.location import ModelLocation
from vecmill.models.published_code import names_any
from vecmill.models.tokenizer_file import read_vocabulary, tokenizer_limits
from vecmill.values.messages import not_supported
from vecmill.values.task import Task


@dataclass(frozen=True, slots=True)
class LlmReranker:
    """The way in which published models score a pair: template, answers and activation.

    `names` are those of the models, without their owners, `classes` those of their code. `answers` are the
    token that counts for the document and optionally the one that counts against it; without answers, a head
    of the model gives the score. `longest` is the longest input: that of the published program, or more than
    the program makes with its own instruction. With `begins` the beginning-of-text token comes first.
    """

    template: PairTemplate | JoinedTemplate
    answers: tuple[str, ...]
    longest: int
    names: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    activation: Activation = Activation.SIGMOID
    begins: bool = False


_QWEN = LlmReranker(
    PairTemplate(
        start=(
            "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
            'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
            "<|im_start|>user\n"
        ),
        body="<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}",
        end="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        instruction="Given a web search query, retrieve relevant passages that answer the query",
    ),
    answers=("yes", "no"),
    longest=8192,
    names=frozenset(f"Qwen3-Reranker-{size}" for size in ("0.6B", "4B", "8B")),
)

_BGE = LlmReranker(
    JoinedTemplate(
        start=(),
        query="A: {query}",
        between="\n",
        document="B: {document}",
        end=("\n", "{instruction}"),
        instruction=(
            "Given a query A and a passage B, determine whether the passage contains an answer to the "
            "query by providing a prediction of either 'Yes' or 'No'."
        ),
        longest=1024,
        counts_start=True,
    ),
    answers=("Yes",),
    longest=1024 + 256,
    names=frozenset({"bge-reranker-v2-gemma"}),
    begins=True,
)

PUBLISHED = (
    _QWEN,
    _BGE,
    replace(
        _BGE,
        answers=(),
        names=frozenset({"bge-reranker-v2-minicpm-layerwise"}),
        classes=frozenset({"LayerWiseMiniCPMForCausalLM"}),
    ),
    LlmReranker(
        JoinedTemplate(
            start=(
                "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
                "<|im_end|>\n<|im_start|>user\n",
            ),
            query="query: {query}",
            between="\n",
            document="document: {document}",
            end=(
                "\n",
                "You are a search relevance expert who evaluates how well documents match search queries. "
                "For each query-document pair, carefully analyze the semantic relationship between them, "
                "then provide your binary relevance judgment (0 for not relevant, 1 for relevant).\n"
                "Relevance:",
                "<|im_end|>\n<|im_start|>assistant\n",
            ),
            instructed_query="instruction: {instruction}\nquery: {query}",
            longest=8192,
        ),
        answers=("1", "0"),
        longest=8192 + 256,
        names=frozenset({"mxbai-rerank-base-v2", "mxbai-rerank-large-v2"}),
    ),
    LlmReranker(
        PairTemplate(
            start="<|im_start|>system\n",
            body="{query}<|im_end|>\n<|im_start|>user\n{document}",
            end="<|im_end|>\n<|im_start|>assistant\n",
            instruction="",
            strips=True,
            most_characters=(2000, 10_000),
        ),
        answers=("Yes",),
        longest=32_768,
        names=frozenset({"zerank-1", "zerank-1-small"}),
        classes=frozenset({"modeling_zeranker.ZEConfig"}),
        activation=Activation.SIGMOID_OF_FIFTH,
    ),
    LlmReranker(
        PairTemplate(start="", body="question:{query} \n \n passage:{document}", end="", instruction=""),
        answers=(),
        longest=8192,
        classes=frozenset({"LlamaBidirectionalForSequenceClassification"}),
        begins=True,
    ),
)


def is_published_llm_reranker(location: ModelLocation, folder: TransformerFolder) -> bool:
    """Return whether the model is one of `PUBLISHED`, or was tuned from one."""
    return _find_published(location, folder) is not None


def describe_llm_reranker(location: ModelLocation, folder: TransformerFolder) -> ModelDescription:
    """Describe a causal language model as a reranker. Raises `UnsupportedModel` if it is not known as one."""
    program = _find_published(location, folder)
    if program is None and folder.encoder.judges_pairs:
        program = _QWEN
    if program is None:
        raise _unknown_reranker(folder)
    limits = tokenizer_limits(folder.encoder.vocab_size)
    place = folder.tokenizer
    tokenizer = read_object(place.directory, join(place.folder, "tokenizer.json"), limits=limits) or {}
    answers = tuple(_find_token(folder, tokenizer, answer) for answer in program.answers)
    kind = HeadKind.YES_NO if answers else HeadKind.SCORE
    description = folder.describe(location)
    return ModelSettings.read(location.directory).add_prompts(
        replace(
            description,
            task=Task.RERANK,
            head=Head(kind, activation=program.activation, token_ids=answers),
            dim=1,
            max_tokens=min(description.max_tokens, program.longest),
            pair_template=_begin(program, folder),
        )
    )


def _begin(program: LlmReranker, folder: TransformerFolder) -> PairTemplate | JoinedTemplate:
    """Return the template, after the beginning-of-text token if the published program puts one there."""
    first = folder.special_token("bos_token") if program.begins else None
    template = program.template
    if isinstance(template, PairTemplate):
        return replace(template, start=f"{first or ''}{template.start}")
    # Only FlagEmbedding's class for models with answers leaves out a token that is also the padding.
    if first is None or (program.answers and first == folder.special_token("pad_token")):
        return template
    return replace(template, start=(str(first), *template.start))


def _find_published(location: ModelLocation, folder: TransformerFolder) -> LlmReranker | None:
    names = frozenset(_names(location, folder))
    # A model that was saved with a head for labels has no answers, whatever it was tuned from.
    has_labels = folder.class_name.endswith("ForSequenceClassification")
    for program in PUBLISHED:
        if has_labels and program.answers:
            continue
        if program.names & names or names_any(program.classes, folder.config):
            return program
    return None


def _names(location: ModelLocation, folder: TransformerFolder) -> Iterator[str]:
    """Yield the names of the model, without its owner and revision."""
    original = read_text(folder.config, "_name_or_path", file=folder.path("config.json"))
    for name in (location.name, location.directory.name, original):
        if name is not None:
            yield PurePosixPath(name.partition("@")[0]).name


def _unknown_reranker(folder: TransformerFolder) -> UnsupportedModel:
    rerankers = [name for name, found in configured_architectures().items() if found.judges_pairs]
    what = f"{folder.path('config.json')}: a {folder.class_name} as a reranker of the model_type"
    published = ", ".join(sorted(name for program in PUBLISHED for name in program.names))
    message = not_supported(what, name_architecture(folder.config), rerankers)
    return UnsupportedModel(
        f"{message} A directory that is named after a published reranker is supported too: {published}."
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
