"""Writes docs/benchmarks/published-models.md from the census of published models.

`make census` runs this, after `support.census` has recorded the outcomes; a test compares the file with what
it would write.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from parity.test_published_directories import EMBEDDERS, RERANKERS
from support.census import MODELS, CensusModel, read_census, read_lists
from support.shrunk_models import is_comparable
from support.source_tree import ROOT
from vecmill.serving_plan.outcome import OutcomeKind

PAGE = ROOT / "docs/benchmarks/published-models.md"

INTRODUCTION = """\
# Published models

What becomes of {models} published models, by what `vecmill describe` says of their settings: {graphs} are
served by a graph of vecmill, {torch} on the `torch` engine, and {refused} are refused.
[models.md](../models.md) has the architectures and more models.

The models are those that {lists} name
([versions](../../tests/census/lists.json)). Each links to its settings, with their sources: config.json,
modules, and the class of the tokenizer, without weights and vocabularies. The publisher may have other
settings today: `vecmill describe owner/name` reads the publisher's own files.

The settings are:

- "copy" ({copy} models): the publisher's files, in a public repository of somebody who uses the model.
- "resaved" ({resaved}): files that sentence-transformers or transformers wrote when somebody saved the
  model, or one trained from it.
- "composed" ({composed}): from several sources: the base that mteb names, or a model of the same
  architecture and sizes. The number of parameters is checked for {counted} models. For {inherited} models
  the pooling is that of the base.

| compared | numbers with tiny random weights, to 1e-4 |
|---|---|
| layout | of the published files (`tests/parity/test_published_directories.py`) |
| settings | of these settings in smaller sizes (`tests/census/test_census_models.py`) |

"Own code, rebuilt" means that the repository of the model has Python code, which vecmill does not run, and
that vecmill has its own graph.

<!-- This page is written by `make census` from tests/census. -->
"""

HEADER = "| model | settings | compared, notes |\n|---|---|---|"
REFUSED_HEADER = "| model | settings | reason, notes |\n|---|---|---|"
_UNSTATED = "no source states it"
_HEADINGS = {
    OutcomeKind.GRAPH: "Served by a graph",
    OutcomeKind.TRANSFORMERS: "Served on the `torch` engine",
    OutcomeKind.OWN_CODE: "Served on the `torch` engine, by their own code",
    OutcomeKind.REFUSED: "Refused",
}


def written_page() -> str:
    """Return the whole page."""
    models = [model for model in read_census() if model.is_counted]
    outcomes = Counter(model.outcome for model in models)
    bases = Counter(model.basis for model in models)
    introduction = INTRODUCTION.format(
        models=len(models),
        graphs=outcomes[OutcomeKind.GRAPH],
        torch=outcomes[OutcomeKind.TRANSFORMERS],
        refused=outcomes[OutcomeKind.REFUSED],
        inherited=sum(any(_UNSTATED in source["facts"] for source in model.sources) for model in models),
        counted=sum(model.parameters is not None for model in models),
        lists=_enumerate([*read_lists()]),
        **{basis: bases[basis] for basis in ("copy", "resaved", "composed")},
    )
    return "\n".join([introduction, *_tables(models), *_remembered()]) + "\n"


def _enumerate(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _tables(models: Sequence[CensusModel]) -> Iterator[str]:
    """Yield a table of the models of each outcome."""
    for kind, heading in _HEADINGS.items():
        rows = [_row(model) for model in models if OutcomeKind(model.outcome) is kind]
        if rows:
            header = REFUSED_HEADER if kind is OutcomeKind.REFUSED else HEADER
            yield "\n".join([f"## {heading}\n", header, *rows, ""])


def _remembered() -> Iterator[str]:
    """Yield the models that do not count, if there are any."""
    models = [model for model in read_census() if not model.is_counted]
    if models:
        yield "## Not counted\n\nThe settings of these models are from memory, or no list names them.\n"
        yield HEADER
        yield from map(_row, models)


def _row(model: CensusModel) -> str:
    path = model.path.relative_to(MODELS.parents[2])
    return f"| [{model.name}](../../{path}) | {model.basis} | {'. '.join(_remarks(model))} |"


def _remarks(model: CensusModel) -> Iterator[str]:
    if model.reason is not None:
        yield _escape(model.reason.removeprefix(f"{model.name}/").removesuffix("."))
    if model.name in EMBEDDERS or model.name in RERANKERS:
        yield "layout"
    if is_comparable(model):
        yield "settings"
    if model.note is not None:
        yield model.note


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("{", "\\{").replace("<", "\\<")


def main() -> None:
    """Write the file."""
    PAGE.write_text(written_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
