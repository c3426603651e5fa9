"""Phrases of error messages."""

from vecmill.values.messages import not_supported, show


def test_a_value_of_a_file_is_shown_in_one_short_ascii_line() -> None:
    assert show("a\nbé") == r"'a\nb\xe9'"
    shown = show("x" * 10_000)
    assert shown.endswith("...")
    assert len(shown) < 120


def test_the_message_names_the_value_and_what_is_supported_instead() -> None:
    message = not_supported("config.json: hidden_act", "elu", ["relu", "gelu"])
    assert message == "config.json: hidden_act 'elu' is not supported; supported: relu, gelu."


def test_one_supported_value_reads_as_well() -> None:
    assert not_supported("dtype", 8, iter(["float32"])) == "dtype 8 is not supported; supported: float32."
