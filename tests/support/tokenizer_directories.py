"""Random directories of tokenizers: a class of transformers, and tokens in all files that can name them."""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from support.tokenizers_of_class import save_tokenizer_of_class

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
CLASSES = tuple(
    f"{name}Tokenizer"
    for name in (
        *("Albert", "Bart", "Bert", "Camembert", "ConvBert", "Deberta", "DebertaV2", "DistilBert"),
        *("GPT2", "GPTNeoX", "Gemma", "Herbert", "Llama", "MBart", "MBart50", "MPNet", "Nllb", "Qwen2"),
        *("RemBert", "Roberta", "T5", "XLMRoberta", "XLNet"),
    )
)
NO_CLASS = "PreTrainedTokenizerFast"
TURNS = (*CLASSES, NO_CLASS, NO_CLASS)
# New tokens, words of the vocabularies, and what a normaliser or a pre-tokeniser changes. No two are equal in
# lower case: of normalised tokens that are equal the library chooses one by chance.
WORDS = (
    *("<ent>", "[Ent]", "[E 1]", "New York", "caf\u00e9", "e", "the", "and", "##s", "\u2581the", "\u0120the"),
    *("  ", "\n\n", "<mask>", "[MASK]", "<s>", "</s>", "<pad>", "<extra_id_0>", "<extra_id_7>", "<eod>"),
    *("de_DE", "fra_Latn", "<unk>NOTUSED", "<|endoftext|>", "<|im_end|>", "model", "\ufb01"),
)


def list_texts(dice: random.Random, tokens: Sequence[str]) -> Iterator[str]:
    """Texts with the tokens in many surroundings."""
    for token in tokens:
        yield f"The model{token}reads {token} words,{token} and {token.upper()}{token.lower()}  {token}."
        yield dice.choice(("{0}", " {0} ", "x{0}{0} y", "a\t{0}\n", "{0}the", "{0},{0}")).format(token)
    some = "".join(dice.sample(list(tokens), min(4, len(tokens))))
    yield f"The Model reads words and CAF\u00c9 de_DE \ufb01ne.{some}"


class TokenizerDirectory:
    """One directory, made from the seed. The classes take turns."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.folder = folder
        self.class_name = TURNS[seed % len(TURNS)]
        self.config: dict[str, Any] = {}
        self.tokens = [*self.dice.sample(WORDS, 4)]

    def save(self) -> None:
        """Write the files."""
        dice = self.dice
        base = dice.choice(CLASSES) if self.class_name == NO_CLASS else self.class_name
        save_tokenizer_of_class(self.folder, base)
        (self.folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
        document = json.loads((self.folder / "tokenizer.json").read_text())
        self.config = json.loads((self.folder / "tokenizer_config.json").read_text())
        self.config["tokenizer_class"] = self.class_name
        others = {token["content"] for token in document["added_tokens"]} | {"<mask>"}
        others = {"<mask>", *(token["content"] for token in document["added_tokens"])} - {*self.tokens}
        self.tokens += dice.sample(sorted(others), min(2, len(others)))
        self._change_tokenizer(document)
        self._change_config(document["added_tokens"])
        self._write("tokenizer.json", document)
        self._save_others(len(document["model"]["vocab"]))

    def save_beside(self, vocabulary: str, config: dict[str, Any]) -> None:
        """Write the files beside vocabulary files, whose class and settings are in `config`."""
        (self.folder / "tokenizer.json").unlink(missing_ok=True)
        self.config = dict(config)
        self.class_name = f"{config.get('tokenizer_class')} from {vocabulary}"
        self._change_config([])
        self._save_others(self.dice.choice((590, 690)))

    def _save_others(self, size: int) -> None:
        dice = self.dice
        self._write("tokenizer_config.json", self.config)
        if dice.random() < 0.4:
            self._write("special_tokens_map.json", dict(self._special_map()))
        if dice.random() < 0.3:
            names = dice.sample(self.tokens, 2)
            self._write("added_tokens.json", {token: size + 20 + at for at, token in enumerate(names)})

    def _write(self, name: str, document: Any) -> None:
        (self.folder / name).write_text(json.dumps(document, indent=self.dice.choice((None, 2))))

    def _flags(self) -> dict[str, bool]:
        return {flag: self.dice.random() < 0.3 for flag in FLAGS}

    def _change_tokenizer(self, document: dict[str, Any]) -> None:
        dice, added = self.dice, document["added_tokens"]
        added[:] = [token for token in added if dice.random() < 0.9]
        known = {token["content"] for token in added}
        vocabulary = document["model"]["vocab"]
        names = vocabulary if isinstance(vocabulary, dict) else [piece for piece, _ in vocabulary]
        ids = vocabulary if isinstance(vocabulary, dict) else {name: at for at, name in enumerate(names)}
        following = max([*(ids.values()), *(token["id"] for token in added)]) + 1
        for token in self.tokens:
            if token not in known and dice.random() < 0.4:
                number = ids.get(token, following)
                following += number == following
                added.append({"id": number, "content": token, **self._flags()})
                known.add(token)
        for token in added:
            if dice.random() < 0.15:
                token.update(self._flags())
        added.sort(key=lambda token: token["id"])
        if "unk_id" in document["model"] and dice.random() < 0.3:
            document["model"]["unk_id"] = dice.randrange(9)
        if dice.random() < 0.15:
            document["padding"] = {
                "strategy": "BatchLongest",
                "direction": "Right",
                "pad_to_multiple_of": None,
                "pad_id": 1,
                "pad_type_id": 0,
                "pad_token": dice.choice(self.tokens),
            }

    def _change_config(self, added: list[dict[str, Any]]) -> None:
        dice, config = self.dice, self.config
        for role in ROLES:
            if dice.random() < 0.15:
                config[f"{role}_token"] = self._value()
            elif dice.random() < 0.1:
                config.pop(f"{role}_token", None)
        if dice.random() < 0.2:
            config["own_token"] = dice.choice((self._value(), True, None))
        for key in ("additional_special_tokens", "extra_special_tokens"):
            if dice.random() < 0.3:
                listed = [self._value() for _ in range(dice.randint(0, 3))]
                named = {f"{number}_token": value for number, value in enumerate(listed)}
                config[key] = dice.choice((listed, listed, listed, named if "extra" in key else listed, None))
        if dice.random() < 0.1:
            config["split_special_tokens"] = True
        if dice.random() < 0.2:
            config["unk_id"] = dice.randrange(9)
        config.pop("added_tokens_decoder", None)
        if dice.random() < 0.5:
            config["added_tokens_decoder"] = dict(self._decoder(added))

    def _value(self) -> Any:
        token = self.dice.choice(self.tokens)
        flags = {"content": token, "__type": "AddedToken", **self._flags()}
        return self.dice.choice((token, token, flags))

    def _decoder(self, added: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
        dice = self.dice
        following = max((token["id"] for token in added), default=600) + 1
        for token in added:
            if dice.random() < 0.9:
                written = {key: value for key, value in token.items() if key != "id"}
                yield str(token["id"]), {**written, **(self._flags() if dice.random() < 0.2 else {})}
        known = {token["content"] for token in added}
        for text in self.tokens:
            if text not in known and dice.random() < 0.4:
                yield str(following), {"content": text, **self._flags()}
                following += dice.choice((1, 1, 5))

    def _special_map(self) -> Iterator[tuple[str, Any]]:
        dice = self.dice
        for role in ROLES:
            if dice.random() < 0.3:
                token = dice.choice(self.tokens)
                yield f"{role}_token", dice.choice((token, {"content": token, **self._flags()}))
        if dice.random() < 0.3:
            yield "additional_special_tokens", dice.sample(self.tokens, 2)
        if dice.random() < 0.1:
            yield "extra_special_tokens", [self._value() for _ in range(2)]
        if dice.random() < 0.2:
            yield "other_token", dice.choice(self.tokens)
