"""Small tokenizers of the kinds that models come with, trained on a few texts and saved by transformers."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from support.references import draw_weights, make_directory

SIZE = 400
PADDING, END = 0, 1
SPECIAL = ["<pad>", "</s>", "<unk>"]


def save_tokenizer(folder: Path, kind: str, texts: Sequence[str], *, longest: int, **settings: Any) -> None:
    """A tokenizer of `kind`: "byte_level", "byte_fallback", "unigram" or "word_piece", at most `SIZE` tokens.

    Each text, and each part of a pair, ends in the token `END`. The files are recorded.
    """
    make_directory(
        folder,
        ["tokenizer of kind", kind, list(texts), longest, settings],
        lambda folder: _save(folder, kind, texts, longest, settings),
        draw_weights(0, 0.0),
        repeatable=False,
    )


def _save(folder: Path, kind: str, texts: Sequence[str], longest: int, settings: Mapping[str, Any]) -> None:
    import transformers
    from tokenizers import Tokenizer, processors

    tokenizer = Tokenizer.from_str(_train(kind, tuple(texts)))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B:1 </s>:1", special_tokens=[("</s>", END)]
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=longest,
        **settings,
    )
    fast.save_pretrained(folder)


@cache
def _train(kind: str, texts: tuple[str, ...]) -> str:
    """The tokenizer.json of a tokenizer of `kind` that was trained on `texts`."""
    tokenizer, trainer = _MAKERS[kind]()
    tokenizer.train_from_iterator(texts, trainer)
    trained: str = tokenizer.to_str()
    return trained


def _byte_level() -> tuple[Any, Any]:
    """As Qwen and ModernBERT."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return tokenizer, trainers.BpeTrainer(vocab_size=SIZE, special_tokens=SPECIAL, initial_alphabet=alphabet)


def _byte_fallback() -> tuple[Any, Any]:
    """As Gemma and Mistral."""
    from tokenizers import Tokenizer, models, normalizers, trainers

    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    special = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    return tokenizer, trainers.BpeTrainer(vocab_size=SIZE, special_tokens=special, limit_alphabet=60)


def _unigram() -> tuple[Any, Any]:
    """As T5 and GTE."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer, trainers.UnigramTrainer(vocab_size=SIZE, special_tokens=SPECIAL, unk_token="<unk>")


def _word_piece() -> tuple[Any, Any]:
    """As NomicBERT."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer, trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=SPECIAL)


_MAKERS = {
    "byte_level": _byte_level,
    "byte_fallback": _byte_fallback,
    "unigram": _unigram,
    "word_piece": _word_piece,
}
