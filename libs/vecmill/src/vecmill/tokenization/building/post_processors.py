"""The post-processors of transformers' tokenizer classes, which add special tokens to texts and pairs.

Source of the rules: transformers 5.23, `tokenization_*.py` of each model, `tokenization_utils_tokenizers.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from vecmill.errors import CorruptModel
from vecmill.models.config_fields import read_text
from vecmill.models.tokenizer_file import TOKENIZER_CONFIG
from vecmill.tokenization.building.special_tokens import ROLES, SpecialTokens, read_switch
from vecmill.values.messages import show

# Tokenizer, special tokens, tokenizer_config.json -> a post-processor of the tokenizers library.
MakePostProcessor = Callable[[Any, SpecialTokens, Mapping[str, Any]], Any]


def template(single: str, pair: str) -> MakePostProcessor:
    """Return a maker of templates, in which `{role}` stands for a special token."""

    def make(tokenizer: Any, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
        import tokenizers

        used = [special[role] for role in ROLES if f"{{{role}}}" in single + pair]
        return tokenizers.processors.TemplateProcessing(
            # Lists, since a token may have a space.
            single=[piece.format(**special) for piece in single.split()],
            pair=[piece.format(**special) for piece in pair.split()],
            special_tokens=[(token, tokenizer.token_to_id(token)) for token in used],
        )

    return make


def make_roberta(tokenizer: Any, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
    """Make the post-processor of RoBERTa."""
    return _roberta_processor(
        tokenizer,
        special,
        trim_offsets=read_switch(config, "trim_offsets", default=True),
        add_prefix_space=read_switch(config, "add_prefix_space", default=False),
    )


def make_clip(tokenizer: Any, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
    """Make the post-processor of CLIP."""
    import tokenizers

    end, start = ((special[role], tokenizer.token_to_id(special[role])) for role in ("eos", "bos"))
    return tokenizers.processors.RobertaProcessing(end, start, trim_offsets=False, add_prefix_space=False)


def make_mpnet(tokenizer: Any, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
    """Make the post-processor of MPNet."""
    return _roberta_processor(tokenizer, special, trim_offsets=True, add_prefix_space=False)


def _roberta_processor(tokenizer: Any, special: SpecialTokens, **settings: bool) -> Any:
    """Return a processor that puts two separators between the texts of a pair."""
    import tokenizers

    separator, start = ((special[role], tokenizer.token_to_id(special[role])) for role in ("sep", "cls"))
    return tokenizers.processors.RobertaProcessing(separator, start, **settings)


make_bert = template("{cls}:0 $A:0 {sep}:0", "{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1")
make_deberta = template("{cls} $A {sep}", "{cls} $A {sep} {sep} $B {sep}")
make_xlm_roberta = template("{bos} $A {eos}", "{bos} $A {eos} {eos} $B {eos}")
make_xlnet = template("$A:0 {sep}:0 {cls}:2", "$A:0 {sep}:0 $B:1 {sep}:1 {cls}:2")


def make_herbert(tokenizer: Any, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
    """Make the post-processor of HerBERT, whose class has fixed ids."""
    import tokenizers

    return tokenizers.processors.BertProcessing((special["sep"], 2), (special["cls"], 0))


def make_switched(tokenizer: Any, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
    """Make a post-processor that adds the tokens for which `add_bos_token` and `add_eos_token` ask."""
    bos, eos = (
        [special[role]] if role in special and read_switch(config, f"add_{role}_token", default=False) else []
        for role in ("bos", "eos")
    )

    def enclose(text: str, kind: int) -> list[str]:
        return [f"{piece}:{kind}" for piece in (*bos, text, *eos)]

    single = enclose("$A", 0)
    return _make_template(tokenizer, single, [*single, *enclose("$B", 1)], [*bos, *eos])


def make_rembert(tokenizer: Any, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
    """Make the post-processor of RemBERT, which is that of BERT only if tokenizer.json has one."""
    make = make_switched if tokenizer.post_processor is None else make_bert
    return make(tokenizer, special, config)


def language_last(default: str) -> MakePostProcessor:
    """Return a maker for MBart: the end and the language after a text, or after both texts of a pair."""

    def make(tokenizer: Any, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
        added = [special["eos"], _find_language(tokenizer, config, default)]
        return _make_template(tokenizer, ["$A", *added], ["$A", "$B", *added], added)

    return make


def language_first(default: str) -> MakePostProcessor:
    """Return a maker for MBart50: the language before a text or a pair, and the end after it."""

    def make(tokenizer: Any, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
        eos, language = special["eos"], _find_language(tokenizer, config, default)
        texts = ([language, "$A", eos], [language, "$A", "$B", eos])
        return _make_template(tokenizer, *texts, [language, eos])

    return make


def make_nllb(tokenizer: Any, special: SpecialTokens, config: Mapping[str, Any]) -> Any:
    """Make the post-processor of NLLB: that of MBart50, or with `legacy_behaviour` that of MBart."""
    is_legacy = read_switch(config, "legacy_behaviour", default=False)
    make = language_last if is_legacy else language_first
    return make("eng_Latn")(tokenizer, special, config)


def _find_language(tokenizer: Any, config: Mapping[str, Any], default: str) -> str:
    """Return the token of `src_lang`, the language of the texts. Raises `CorruptModel` if there is none."""
    language = read_text(config, "src_lang", default, file=TOKENIZER_CONFIG) or default
    if tokenizer.token_to_id(language) is None:
        raise CorruptModel(
            f"{TOKENIZER_CONFIG}: src_lang is {show(language)}, which the vocabulary lacks. Set it to the "
            "code of a language of the model."
        )
    return language


def _make_template(tokenizer: Any, single: list[str], pair: list[str], tokens: list[str]) -> Any:
    import tokenizers

    return tokenizers.processors.TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in dict.fromkeys(tokens)],
    )
