"""Renders the chat template of a reranker, which joins a query and a document to one text.

A template is a Jinja program of the model. It runs in Jinja's sandbox, as in transformers, within limits on
time and memory (`template_limits`), and renders two or three messages. A template that does not render both
texts of a pair is refused.

Sources of the rules: transformers 5.23 (`utils/chat_template_utils.py`), sentence-transformers 6.2
(`base/modality.py`: `pair_to_messages`, `prepend_prompt_to_messages`, `pair_roles_failure`).
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from vecmill.errors import UnsupportedModel, one_line
from vecmill.models.heads import ChatTemplate
from vecmill.tokenization.refusals import failures_contained
from vecmill.values.messages import pip_command

if TYPE_CHECKING:
    import jinja2

# Python compiles the program of a template with the interpreter lock. So many are 15 to 25 kB of a template.
MOST_TEMPLATE_TOKENS = 8_192

# Instruction, query, document -> text.
Render = Callable[[str, str, str], str]

# Variables that transformers passes to a template besides the model's special tokens.
_GIVEN = frozenset({"messages", "tools", "documents", "add_generation_prompt"})

# Each pair differs from the first in one text, in its first letter and in its length.
_PROBES = (("alpha", "bravo"), ("charlie", "bravo"), ("alpha", "foxtrot"))


def compile_chat(template: ChatTemplate) -> Render:
    """Return a function that renders an instruction (may be empty), a query and a document.

    The function raises `TokenizationFailed` if the template fails for these texts. Raises `UnsupportedModel`
    if the template cannot be read, or omits a text.
    """
    program = _compile(template)
    from vecmill.tokenization.template_limits import limited_steps

    def render(instruction: str, query: str, document: str) -> str:
        values = (
            {"tools": None, "documents": None, "add_generation_prompt": False}
            | dict(template.special_tokens)
            | dict(template.variables)
            | {"messages": _messages(template, instruction, query, document)}
        )
        with limited_steps():
            return program.render(values)

    try:
        base, other_query, other_document = (render("", query, document) for query, document in _PROBES)
    except Exception as error:  # a template may raise anything
        raise _refusal(template, f"fails for a query and a document: {one_line(error)}") from error
    for role, changed in (("query", other_query), ("document", other_document)):
        if changed == base:
            raise _refusal(template, f"does not show the {role} of a pair")

    def render_contained(instruction: str, query: str, document: str) -> str:
        with failures_contained("model's chat template", len(query) + len(document)):
            return render(instruction, query, document)

    return render_contained


def _messages(template: ChatTemplate, instruction: str, query: str, document: str) -> list[dict[str, Any]]:
    texts = [("query", query), ("document", document)]
    if instruction:
        texts.insert(0, ("system", instruction))
    if not template.in_parts:
        return [{"role": role, "content": text} for role, text in texts]
    return [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in texts]


def _compile(template: ChatTemplate) -> "jinja2.Template":
    try:
        import jinja2.meta

        from vecmill.tokenization.template_limits import LimitedSandbox
    except ImportError as error:
        command = pip_command("install", "jinja2")
        raise _refusal(template, f"needs a package that is not installed: {command}") from error
    environment = LimitedSandbox()
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    try:
        if sum(1 for _ in environment.lex(template.source)) > MOST_TEMPLATE_TOKENS:
            raise _refusal(template, f"has more than {MOST_TEMPLATE_TOKENS} tokens, the limit for a template")
        used = jinja2.meta.find_undeclared_variables(environment.parse(template.source))
        program = environment.from_string(template.source)
    except jinja2.TemplateError as error:
        raise _refusal(template, f"cannot be read: {one_line(error)}") from error
    unknown = used - _GIVEN - dict(template.special_tokens).keys() - dict(template.variables).keys()
    # transformers has defaults of such tokens for some classes; without them the text would silently differ.
    if undefined := sorted(name for name in unknown if name.endswith("_token")):
        raise _refusal(template, f"uses {', '.join(undefined)}, which tokenizer_config.json does not define")
    return program


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> NoReturn:
    import jinja2

    raise jinja2.TemplateError(message)


def _refusal(template: ChatTemplate, fault: str) -> UnsupportedModel:
    return UnsupportedModel(f"{template.file}: the chat template {fault}.")
