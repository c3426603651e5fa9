"""Rerankers that put a pair into prose by their own template score as `CrossEncoder` does."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.families import JITTER, save_class
from support.published import edit_json
from support.reference import load_reference
from support.references import draw_weights, make_directory
from support.scales import in_turns
from support.task_models import save_modules, save_task_model
from support.tokenizers_of_kind import END, PADDING, SIZE, save_tokenizer
from tasks.conftest import PAIRS, Open
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel, InvalidRequest, UnsupportedModel
from vecmill.models import locate_model
from vecmill.requests import TextOptions
from vecmill.tokenization.pairs import PairTokenizer
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.sample_texts import prose_words

TOLERANCE = 1e-4
LONGEST = 90  # the longest template has some 50, so that long pairs are cut
YES, NO = 70, 71

SIZES: dict[str, Any] = {
    "vocab_size": SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": PADDING,
    "bos_token_id": END,
    "eos_token_id": END,
    "tie_word_embeddings": True,
}

PUBLISHED = """Judge the Document.</s>
<Instruct>: {{ messages | selectattr("role", "eq", "system") | map(attribute="content") | first \
| default("find what answers") }}
<Query>: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
<Document>: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}</s>
assistant
"""
IN_PARTS = """{% for message in messages -%}
{{ message.role }}: {% for part in message.content if part.type == "text" %}{{ part.text }}{% endfor %}</s>
{% endfor %}the answer: """
TOLD = """{%- set query = messages | selectattr("role", "eq", "query") | first -%}
{{ eos_token }}{{ query.content }}{{ shout }}{% for message in messages %}
{%- if message.role != "document" %}{% continue %}{% endif %} about {{ message.content | tojson }}
{%- endfor %}
{%- if add_generation_prompt %}</s>assistant{% endif %}"""
TEMPLATES: dict[str, tuple[str, dict[str, Any]]] = {
    "published": (PUBLISHED, {}),
    "in_parts": (IN_PARTS, {}),
    "told": (TOLD, {"chat_template": {"add_generation_prompt": True, "shout": "!"}}),
}


def save_plain(folder: Path, class_name: str, **settings: Any) -> Path:

    def save(folder: Path) -> None:
        save_class(folder, class_name, {**SIZES, **settings})
        save_tokenizer(folder, "byte_level", prose_words()[:2_000], longest=LONGEST, padding_side="left")

    return make_directory(folder, ["plain", class_name, settings], save, draw_weights(0, JITTER))


def save_reranker(
    folder: Path,
    template: str,
    processing: dict[str, Any],
    *,
    prompts: dict[str, str] | None = None,
    **head: Any,
) -> Path:
    """Put together and saved by sentence-transformers: yes or no, or with `num_labels` a classifier."""
    plain, whole = folder / "plain", folder / "whole"
    save_plain(plain, "Qwen3ForSequenceClassification" if head else "Qwen3ForCausalLM", **head)
    (plain / "chat_template.jinja").write_text(template)

    def make() -> list[Any]:
        from sentence_transformers.base.modules import Transformer
        from sentence_transformers.cross_encoder.modules import LogitScore

        task = "sequence-classification" if head else "text-generation"
        transformer = Transformer(str(plain), transformer_task=task, processing_kwargs=processing or None)
        return [transformer, *([] if head else [LogitScore(YES, NO)])]

    save_modules(whole, "CrossEncoder", ["in prose", processing], make, {"": plain}, prompts=prompts)
    return whole


def reference_scores(folder: Path, **options: Any) -> Any:
    """Each pair alone."""
    return load_reference(folder, "CrossEncoder").predict(PAIRS, batch_size=1, **options)


def our_scores(folder: Path, open_mill: Open, **options: Any) -> list[float]:
    mill = open_mill(folder)
    return [float(mill.rerank(query, [document], **options).scores[0]) for query, document in PAIRS]


@pytest.mark.parametrize(("name", "head"), in_turns(TEMPLATES, [{}, {"num_labels": 1}]))
def test_scores_are_those_of_the_reference(
    tmp_path: Path, open_mill: Open, name: str, head: dict[str, Any]
) -> None:
    folder = save_reranker(tmp_path, *TEMPLATES[name], **head)
    description = describe_model(locate_model(folder))
    library = Tokenizer.load(description).library
    assert any(len(library.encode(query + document)) > LONGEST for query, document in PAIRS)
    expected = reference_scores(folder)
    np.testing.assert_allclose(our_scores(folder, open_mill), expected, atol=TOLERANCE)
    assert np.ptp(expected) > 0.05


@pytest.mark.parametrize(
    ("name", "where"), in_turns(["published", "in_parts"], ["chat_template.jinja", "tokenizer_config.json"])
)
def test_a_classifier_without_modules_uses_its_template(
    tmp_path: Path, open_mill: Open, name: str, where: str
) -> None:
    folder = save_plain(tmp_path / "plain", "Qwen3ForSequenceClassification", num_labels=1)
    bare = our_scores(shutil.copytree(folder, tmp_path / "bare"), open_mill)
    source = TEMPLATES[name][0]
    if where == "tokenizer_config.json":
        edit_json(folder / where, chat_template=source)
    else:
        (folder / where).write_text(source)
    expected = reference_scores(folder)
    np.testing.assert_allclose(our_scores(folder, open_mill), expected, atol=TOLERANCE)
    assert np.abs(expected - bare).max() > 1e-2
    (folder / "chat_template.json").write_text("{}")
    with pytest.raises(UnsupportedModel, match="a chat template applies to every text"):
        describe_model(locate_model(folder))


def test_a_prompt_is_the_instruction(tmp_path: Path, open_mill: Open) -> None:
    prompts = {"own": "is it about the same", "other": "do they rhyme"}
    folder = save_reranker(tmp_path, PUBLISHED, {}, prompts=prompts)
    plain = reference_scores(folder)
    for name in prompts:
        expected = reference_scores(folder, prompt_name=name)
        found = our_scores(folder, open_mill, options=TextOptions(prompt_name=name))
        np.testing.assert_allclose(found, expected, atol=TOLERANCE)
        instructed = our_scores(folder, open_mill, instruction=prompts[name])
        np.testing.assert_array_equal(instructed, found)
        assert np.abs(expected - plain).max() > 1e-2


def test_an_instruction_that_would_not_be_heeded_is_refused(
    published: Path, tmp_path: Path, open_mill: Open
) -> None:
    plain = save_task_model(tmp_path / "reranker", "BertForSequenceClassification", num_labels=1)
    with pytest.raises(InvalidRequest, match="takes no instruction"):
        open_mill(plain).rerank("a", ["b"], instruction="find it")
    with pytest.raises(InvalidRequest, match="not both"):
        open_mill(published).rerank("a", ["b"], instruction="find it", options=TextOptions(prompt_name="own"))


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_dense_at_the_end_gives_scores(tmp_path: Path, open_mill: Open, outputs: int) -> None:
    plain = save_plain(tmp_path / "plain", "Qwen3Model")

    def make() -> list[Any]:
        from sentence_transformers.base.modules import Dense, Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling
        from torch import nn

        last = Dense(16, outputs, activation_function=nn.Identity(), module_output_name="scores")
        return [Transformer(str(plain)), Pooling(32, "lasttoken"), Dense(32, 16), last]

    save_modules(tmp_path / "whole", "CrossEncoder", ["dense", outputs], make, {"": plain})
    expected = reference_scores(tmp_path / "whole")
    if outputs == 1:
        found: Any = our_scores(tmp_path / "whole", open_mill)
    else:
        found = open_mill(tmp_path / "whole").classify(PAIRS, raw_scores=True).scores
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    assert np.ptp(expected) > 0.05


def load_pairs(folder: Path) -> PairTokenizer:
    description = describe_model(locate_model(folder))
    return PairTokenizer(Tokenizer.load(description), description)


def name_templates(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    edit_json(folder / "tokenizer_config.json", chat_template=[{"name": "a", "template": "b"}])


def write_template(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "chat_template.jinja").write_text(text)


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no_document": (
        write_template("{{ messages[0].content }}"),
        "does not show the document of a pair",
    ),
    "no_roles": (
        write_template("{{ raise_exception('users alone') }}"),
        "fails for a query and a document: users alone",
    ),
    "no_template": (
        write_template("{% for %}"),
        "cannot be read",
    ),
    "endless_template": (
        write_template(PUBLISHED + "x{{ eos_token }}" * 4_000),
        "has more than 8192 tokens",
    ),
    "unclear_token": (
        write_template("{{ bos_token }}" + PUBLISHED),
        "uses bos_token, which tokenizer_config.json does not define",
    ),
    "escape": (
        write_template("{{ messages.__class__.__mro__ }}"),
        "fails for a query and a document",
    ),
    "named_templates": (
        name_templates,
        "several chat templates",
    ),
    "other_arguments": (
        lambda folder: edit_json(
            folder / "sentence_bert_config.json", processing_kwargs={"text": {"max_length": 3}}
        ),
        "processing_kwargs is supported for chat_template alone",
    ),
    "length_in_arguments": (
        lambda folder: edit_json(
            folder / "sentence_bert_config.json", processing_kwargs={"chat_template": {"max_length": 3}}
        ),
        "chat_template.max_length is not supported",
    ),
}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_reranker(tmp_path_factory.mktemp("models"), PUBLISHED, {})


@pytest.mark.parametrize("name", REFUSED)
def test_templates_that_cannot_be_meant_are_refused(published: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(published, tmp_path / "model"))
    change, message = REFUSED[name]
    change(folder)
    with pytest.raises(UnsupportedModel, match=message):
        load_pairs(folder)


def test_a_template_that_is_gone_is_noticed(published: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(published, tmp_path / "model"))
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(CorruptModel, match=r"chat_template\.jinja is missing"):
        describe_model(locate_model(folder))
