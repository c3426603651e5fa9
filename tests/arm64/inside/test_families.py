"""Each family of models gives on arm64 the token ids and the embeddings that it gives on x86-64."""

import platform
from pathlib import Path

import pytest

from arm64.emulator import INSIDE_RESULTS
from arm64.references import Answers, Reference, read_references
from arm64.results import Difference
from vecmill.hardware.processor import multiplies_bf16, multiplies_bytes, processor_model
from vecmill.hardware.system_calls import second_cache_bytes
from vecmill.verification.comparison import compare_embeddings

LARGEST_DIFFERENCE = 1e-4
REFERENCES = read_references(INSIDE_RESULTS / "references")


def test_the_processor_is_the_emulated_one() -> None:
    assert platform.machine() == "aarch64"
    assert processor_model() == "ARM Neoverse-N1"
    assert multiplies_bytes()
    assert not multiplies_bf16()
    assert second_cache_bytes() == 0


@pytest.mark.parametrize("reference", REFERENCES, ids=[one.family for one in REFERENCES])
def test_answers_are_those_of_x86(reference: Reference, results: Path, tmp_path: Path) -> None:
    found, expected = Answers.compute(reference.model, reference.texts, tmp_path), reference.answers
    assert found.token_ids == expected.token_ids
    comparison = compare_embeddings(found.embeddings, expected.embeddings)
    difference = Difference(reference.family, "fp32", comparison.largest_difference, comparison.worst_cosine)
    difference.append(results)
    # Written so that NaN fails.
    assert difference.largest <= LARGEST_DIFFERENCE
