"""Writes docs/published-models.md from the census of published models.

`make census` runs this, after `support.census` has recorded the outcomes; a test compares the file with what
it would write.
"""

from collections import Counter
from collections.abc import Iterator

from parity.test_published_directories import EMBEDDERS, RERANKERS
from support.census import MODELS, CensusModel, read_census, read_lists
from support.shrunk_models import is_comparable
from support.source_tree import ROOT
from vecmill.serving_plan.outcome import OutcomeKind

PAGE = ROOT / "docs/published-models.md"

INTRODUCTION = """\
# Published models

The table has {models} models that are named by the lists of mteb, Text Embeddings Inference (TEI), vLLM,
Infinity, fastembed and sentence-transformers, and what `vecmill describe` says of their settings: {graphs}
are served by a graph of vecmill, without torch, {torch} on the `torch` engine, and {refused} are refused.
[models.md](models.md) lists the architectures.

Each model links to its settings: config.json, modules, and the class of the tokenizer, with the source of
each file. There are no weights and no vocabularies. A test lays out each model with a small vocabulary of
its tokenizer's class (`tests/census/test_census.py`), and compares what becomes of it with the table. Such
a test finds a setting that vecmill refuses. It does not find a difference between the settings here and
those that the publisher has today, nor weights that do not fit: `vecmill describe owner/name` reads the
publisher's own files.

"Settings" says where the settings come from:

- "copy" ({copy} models): the publisher's files, in a public repository of somebody who uses the model.
- "resaved" ({resaved}): files that sentence-transformers or transformers wrote when somebody saved the
  model, or a model trained from it. Versions and the spelling of keys differ from the publisher's.
- "composed" ({composed}): several sources. The settings of the encoder are those of the base that mteb
  names, or of a model of the same architecture and sizes. If mteb states the exact number of parameters,
  these settings give the same number (a test counts {counted} models). The pooling is the one that vLLM,
  fastembed or sentence-transformers state, or else that of the base ({inherited} models), and the file
  says which.

"Compared" says what the numbers of a model with tiny random weights have been compared with, to 1e-4.
"Published layout" is `tests/parity/test_published_directories.py`. "These settings" is
`tests/census/test_census_models.py`, which makes the sizes of the settings smaller and keeps the other
values. No published weights are compared there. "Own code, rebuilt" means that the repository of the model
has Python code, which vecmill does not run, and that vecmill has its own graph.

The lists: {lists}.

<!-- This page is written by `make census` from tests/census. -->
"""

HEADER = "| model | lists | outcome | settings | compared, notes |\n|---|---|---|---|---|"
_UNSTATED = "no source states it"
_OUTCOMES = {
    OutcomeKind.GRAPH: "graph",
    OutcomeKind.TRANSFORMERS: "torch",
    OutcomeKind.OWN_CODE: "torch, own code",
    OutcomeKind.REFUSED: "refused",
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
        lists="; ".join(f"{name} ({version})" for name, version in read_lists().items()),
        **{basis: bases[basis] for basis in ("copy", "resaved", "composed")},
    )
    return "\n".join([introduction, HEADER, *map(_row, models), *_remembered()]) + "\n"


def _remembered() -> Iterator[str]:
    """Yield the models that do not count, if there are any."""
    models = [model for model in read_census() if not model.is_counted]
    if models:
        yield "\n## Not counted\n\nThe settings of these models are from memory, or no list names them.\n"
        yield HEADER
        yield from map(_row, models)


def _row(model: CensusModel) -> str:
    path = model.path.relative_to(MODELS.parents[2])
    outcome = _OUTCOMES[OutcomeKind(model.outcome)]
    if model.reason is not None:
        outcome += f": {_escape(model.reason.removeprefix(f'{model.name}/'))}"
    places = "; ".join(dict.fromkeys(source["place"].split(" ", 1)[1] for source in model.sources))
    cells = (
        f"[{model.name}](../{path})",
        ", ".join(model.lists),
        outcome,
        f"{model.basis}: {places}",
        ". ".join(_compared(model)),
    )
    return f"| {' | '.join(cells)} |"


def _compared(model: CensusModel) -> Iterator[str]:
    if model.name in EMBEDDERS or model.name in RERANKERS:
        yield "published layout"
    if is_comparable(model):
        yield "these settings"
    if model.note is not None:
        yield model.note


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("{", "\\{").replace("<", "\\<")


def main() -> None:
    """Write the file."""
    PAGE.write_text(written_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
