"""Model directories as other tools write them: a random model, and variants of its files drawn by a seed.

A variant is another way to say something, or to say something else: tokens beside tokenizer.json, an output
head that is tied or not, keys and names of earlier versions. Not every variant fits every model, and some
make a directory that no library reads. The model's own library decides what is right.
"""

import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from support.families import JITTER
from support.published import edit_json
from support.random_models import DRAWS, HEADS, JITTER_WIDTH, RandomModel
from support.references import answer
from support.texts import mixed_texts
from vecmill.models import Task

# Some are in vocabularies already, some differ in case or have spaces.
NEW_TOKENS = ("<ent>", "[NEW]", "<Mixed>", "the", "zqx", "two words", "<é>")
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
MOST_VARIANTS = 4
_TEXTS = tuple(text[:300] for text in mixed_texts(11, 4))


@dataclass(slots=True)
class Place:
    """The folder of the encoder's files, which a variant changes, and what is random about it."""

    folder: Path
    model: RandomModel
    chance: random.Random

    def read(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def edit(self, name: str, **values: Any) -> None:
        """Set keys of a JSON file. A value of `...` removes a key."""
        document = {**self.read(name), **values}
        kept = {key: value for key, value in document.items() if value is not ...}
        (self.folder / name).write_text(json.dumps(kept))

    def tensors(self) -> dict[str, Any]:
        found: dict[str, Any] = safetensors.numpy.load_file(self.folder / "model.safetensors")
        return found

    def write_tensors(self, tensors: Mapping[str, Any], name: str = "model.safetensors") -> None:
        whole = {key: np.ascontiguousarray(value) for key, value in tensors.items()}
        safetensors.numpy.save_file(whole, self.folder / name, metadata={"format": "pt"})

    def listed_tokens(self) -> dict[str, dict[str, Any]]:
        """The added tokens of tokenizer.json, as tokenizer_config.json lists them."""
        added = self.read("tokenizer.json")["added_tokens"]
        return {str(one["id"]): {key: value for key, value in one.items() if key != "id"} for one in added}

    def new_token(self) -> tuple[str, int]:
        """A token, and the number that it has or that follows all others."""
        document = self.read("tokenizer.json")
        vocabulary, content = document["model"]["vocab"], self.chance.choice(NEW_TOKENS)
        if not isinstance(vocabulary, dict):
            vocabulary = {piece: number for number, (piece, _) in enumerate(vocabulary)}
        known = vocabulary | {one["content"]: one["id"] for one in document["added_tokens"]}
        return content, known.get(content, 1 + max(known.values()))

    def flags(self) -> dict[str, bool]:
        names = ("single_word", "lstrip", "rstrip", "normalized", "special")
        return {name: self.chance.random() < 0.4 for name in names}


# Returns whether the variant fits the model.
Change = Callable[[Place], bool]


def _add_special(place: Place) -> bool:
    tokens = [place.new_token()[0] for _ in range(place.chance.randint(1, 2))]
    key = place.chance.choice(("additional_special_tokens", "extra_special_tokens"))
    place.edit("tokenizer_config.json", **{key: tokens})
    return True


def _list_token(place: Place) -> bool:
    content, number = place.new_token()
    listed = place.listed_tokens() | {str(number): {"content": content, **place.flags()}}
    place.edit("tokenizer_config.json", added_tokens_decoder=listed)
    return True


def _list_without(place: Place) -> bool:
    """tokenizer.json has an added token that the list lacks."""
    document = place.read("tokenizer.json")
    listed = place.listed_tokens()
    content, number = place.new_token()
    token = {"id": number, "content": content, **place.flags()}
    document["added_tokens"] = [*(a for a in document["added_tokens"] if a["id"] != number), token]
    (place.folder / "tokenizer.json").write_text(json.dumps(document))
    place.edit("tokenizer_config.json", added_tokens_decoder=listed)
    return True


def _change_flags(place: Place) -> bool:
    listed = place.listed_tokens()
    if not listed:
        return False
    number = place.chance.choice(sorted(listed))
    listed[number] = {**listed[number], **place.flags()}
    place.edit("tokenizer_config.json", added_tokens_decoder=listed)
    return True


def _add_file(place: Place) -> bool:
    content, number = place.new_token()
    (place.folder / "added_tokens.json").write_text(json.dumps({content: number}))
    return True


def _map_roles(place: Place) -> bool:
    """special_tokens_map.json, with strings and objects; tokenizer_config.json need not name the roles.

    It may name another token than the class and tokenizer_config.json.
    """
    config = place.read("tokenizer_config.json")
    named = {f"{role}_token": config.get(f"{role}_token") for role in ROLES}
    found: dict[str, Any] = {key: value for key, value in named.items() if isinstance(value, str)}
    for key, content in list(found.items()):
        if place.chance.random() < 0.5:
            found[key] = {"content": content, **place.flags()}
    if place.chance.random() < 0.5:
        found["mask_token"] = place.new_token()[0]
    (place.folder / "special_tokens_map.json").write_text(json.dumps(found))
    if place.chance.random() < 0.5:
        place.edit("tokenizer_config.json", **dict.fromkeys(found, ...))
    return True


def _change_role(place: Place) -> bool:
    role = place.chance.choice(("pad", "mask", "eos", "unk", "sep"))
    place.edit("tokenizer_config.json", **{f"{role}_token": place.new_token()[0]})
    return True


def _forget_added(place: Place) -> bool:
    """tokenizer.json does not mark one of its special tokens."""
    document = place.read("tokenizer.json")
    if not document["added_tokens"]:
        return False
    lost = place.chance.randrange(len(document["added_tokens"]))
    document["added_tokens"] = [one for at, one in enumerate(document["added_tokens"]) if at != lost]
    (place.folder / "tokenizer.json").write_text(json.dumps(document))
    return True


def _limit_by_max_len(place: Place) -> bool:
    limit = place.chance.randint(6, place.model.sizes.longest)
    place.edit("tokenizer_config.json", model_max_length=..., max_len=limit)
    if place.chance.random() < 0.7:
        (place.folder / "sentence_bert_config.json").unlink(missing_ok=True)
    return True


def _limit_below(place: Place) -> bool:
    """The tokenizer reads less than sentence-transformers asks for."""
    place.edit("tokenizer_config.json", model_max_length=place.chance.randint(6, place.model.sizes.longest))
    return True


def _forget_limit(place: Place) -> bool:
    if not (place.folder / "sentence_bert_config.json").exists():
        return False
    place.edit("sentence_bert_config.json", max_seq_length=None)
    return True


def _name_class(place: Place) -> bool:
    name = place.read("tokenizer_config.json").get("tokenizer_class", "")
    others = [f"{name.removesuffix('Fast')}Fast", "PreTrainedTokenizerFast"]
    # Without a name the class is that of the model_type, which is another where it is published.
    named = place.chance.choice(others if DRAWS[place.model.family].spelling else [*others, ...])
    place.edit("tokenizer_config.json", tokenizer_class=named)
    return True


def _switch_options(place: Place) -> bool:
    """Options of classes, which only some classes read."""
    names = (
        *("do_lower_case", "strip_accents", "tokenize_chinese_chars", "add_prefix_space", "add_bos_token"),
        *("add_eos_token", "split_special_tokens", "clean_up_tokenization_spaces", "legacy"),
    )
    for name in place.chance.sample(names, 2):
        place.edit("tokenizer_config.json", **{name: place.chance.random() < 0.5})
    return True


def _pad_and_truncate(place: Place) -> bool:
    document = place.read("tokenizer.json")
    document["padding"] = {
        "strategy": {"Fixed": 12},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "x",
    }
    document["truncation"] = {
        "direction": place.chance.choice(("Left", "Right")),
        "max_length": 9,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    (place.folder / "tokenizer.json").write_text(json.dumps(document))
    return True


def tied_tensors(model: RandomModel) -> dict[str, str]:
    """The tensors that a class ties, and those that they are tied to, as transformers names them."""
    draw = DRAWS[model.family]
    return dict(_read_class(draw.stem + HEADS.get(model.task, draw.encoder))["ties"])


@cache
def _read_class(name: str) -> dict[str, Any]:
    """What transformers says of a class: its ties, its aliases of settings and its prefix of tensors."""

    def read() -> dict[str, Any]:
        import transformers

        found = getattr(transformers, name, None)
        ties = getattr(found, "_tied_weights_keys", None) or {}
        return {
            "ties": dict(ties) if isinstance(ties, Mapping) else {},
            "aliases": dict(getattr(getattr(found, "config_class", None), "attribute_map", {})),
            "prefix": getattr(found, "base_model_prefix", ""),
        }

    described: dict[str, Any] = answer(["class", name], read)
    return described


def _add_head(place: Place) -> bool:
    """Both tensors of a tie are in the file, and differ."""
    return _change_ties(place, keeps_source=True)


def _turn_tie(place: Place) -> bool:
    """The file has the tied tensor alone."""
    return _change_ties(place, keeps_source=False)


def _change_ties(place: Place, *, keeps_source: bool) -> bool:
    tensors = place.tensors()
    ties = {one: other for one, other in tied_tensors(place.model).items() if other in tensors}
    if not ties:
        return False
    for tied, source in ties.items():
        noise = np.random.default_rng(place.model.seed).standard_normal(tensors[source].shape)
        own = noise.astype(tensors[source].dtype) * np.float32(0.3)
        tensors[tied] = own if keeps_source else tensors[source]
        if not keeps_source:
            del tensors[source]
    place.write_tensors(tensors)
    place.edit("config.json", tie_word_embeddings=place.chance.choice((True, True, False, ...)))
    return True


def _state_tie(place: Place) -> bool:
    place.edit("config.json", tie_word_embeddings=place.chance.choice((True, False, ...)))
    return True


def _spell_theta(place: Place) -> bool:
    """The base of rotary positions as versions before 5 wrote it."""
    config = place.read("config.json")
    rope = config.get("rope_parameters")
    if not isinstance(rope, dict) or "rope_theta" not in rope:
        return False
    place.edit("config.json", rope_parameters=..., rope_theta=rope["rope_theta"], rope_scaling=None)
    return True


def _spell_aliases(place: Place) -> bool:
    """Keys by the other names that the class has for them."""
    config = place.read("config.json")
    draw = DRAWS[place.model.family]
    aliases = _read_class(draw.stem + draw.encoder)["aliases"]
    usable = sorted(alias for alias, own in aliases.items() if own in config and alias not in config)
    if not usable:
        return False
    for alias in place.chance.sample(usable, min(2, len(usable))):
        place.edit("config.json", **{alias: config[aliases[alias]], aliases[alias]: ...})
    return True


def _name_dtype(place: Place) -> bool:
    dtype = place.read("config.json").get("dtype", "float32")
    place.edit("config.json", dtype=..., torch_dtype=dtype)
    return True


def _say_nothing(place: Place) -> bool:
    """Keys that are null, as large configurations write them."""
    names = ("vision_config", "rope_scaling", "task_specific_params", "problem_type", "pruned_heads")
    config = place.read("config.json")
    place.edit("config.json", **{name: None for name in place.chance.sample(names, 2) if name not in config})
    return True


def _forget_architectures(place: Place) -> bool:
    if place.model.task is not Task.EMBED:
        return False
    place.edit("config.json", architectures=place.chance.choice((..., None, [])))
    return True


def _halve(place: Place) -> bool:
    place.write_tensors({name: value.astype(np.float16) for name, value in place.tensors().items()})
    place.edit("config.json", dtype="float16")
    return True


def _shard(place: Place) -> bool:
    if DRAWS[place.model.family].rename is not None:  # of one file
        return False
    tensors = place.tensors()
    names = sorted(tensors)
    files = {name: f"model-0000{1 + index % 2}-of-00002.safetensors" for index, name in enumerate(names)}
    for file in sorted(set(files.values())):
        place.write_tensors({name: tensors[name] for name in names if files[name] == file}, file)
    size = sum(value.nbytes for value in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": files}
    (place.folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (place.folder / "model.safetensors").unlink()
    return True


def _add_tensors(place: Place) -> bool:
    """Tensors that nobody reads."""
    tensors = place.tensors()
    extra = {"embeddings.position_ids": np.arange(16)[None], "unused.weight": np.ones((2, 3), np.float32)}
    place.write_tensors(extra | tensors)
    return True


def _prefix(place: Place) -> bool:
    """An encoder's tensors by the names of a class with a head."""
    draw = DRAWS[place.model.family]
    if place.model.task is not Task.EMBED or draw.spelling:  # published under another prefix
        return False
    prefix = _read_class(draw.stem + draw.encoder)["prefix"]
    if not prefix:
        return False
    place.write_tensors({f"{prefix}.{name}": value for name, value in place.tensors().items()})
    return True


def _spell_pooling(place: Place) -> bool:
    """A pooling by one word, as sentence-transformers 5 writes it."""
    path = place.folder / "1_Pooling" / "config.json"
    if not path.exists():
        return False
    words = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max"}
    words |= {"weightedmean_tokens": "weightedmean", "lasttoken": "lasttoken"}
    words |= {"mean_sqrt_len_tokens": "mean_sqrt_len_tokens"}
    document = json.loads(path.read_text())
    on = [key.removeprefix("pooling_mode_") for key, value in document.items() if value is True]
    if len(on) != 1 or on[0] not in words:
        return False
    width = document["word_embedding_dimension"]
    path.write_text(json.dumps({"word_embedding_dimension": width, "pooling_mode": words[on[0]]}))
    return True


def _lowercase(place: Place) -> bool:
    if not (place.folder / "sentence_bert_config.json").exists():
        return False
    place.edit("sentence_bert_config.json", do_lower_case=True)
    return True


def _prompt(place: Place) -> bool:
    if not (place.folder / "config_sentence_transformers.json").exists():
        return False
    edit_json(
        place.folder / "config_sentence_transformers.json",
        prompts={"query": "query: ", "document": ""},
        default_prompt_name=place.chance.choice(("query", "document", None)),
    )
    return True


TOKEN_VARIANTS: Mapping[str, Change] = {
    "special": _add_special,
    "listed": _list_token,
    "unlisted": _list_without,
    "flags": _change_flags,
    "added_tokens": _add_file,
    "map": _map_roles,
    "role": _change_role,
    "forgotten": _forget_added,
    "max_len": _limit_by_max_len,
    "limit": _limit_below,
    "no_limit": _forget_limit,
    "class": _name_class,
    "options": _switch_options,
    "padding": _pad_and_truncate,
}
HEAD_VARIANTS: Mapping[str, Change] = {"head": _add_head, "turned": _turn_tie, "tie": _state_tie}
KEY_VARIANTS: Mapping[str, Change] = {
    "theta": _spell_theta,
    "aliases": _spell_aliases,
    "dtype": _name_dtype,
    "nulls": _say_nothing,
    "architectures": _forget_architectures,
    "half": _halve,
    "extra": _add_tensors,
    "prefix": _prefix,
    "pooling": _spell_pooling,
    "lowercase": _lowercase,
    "prompt": _prompt,
    "shards": _shard,  # the last: the others read one file
}
VARIANTS: Mapping[str, Change] = {**TOKEN_VARIANTS, **HEAD_VARIANTS, **KEY_VARIANTS}
# A library may fill tensors by chance that the file does not have by the expected name.
MAY_MISS = frozenset({"head", "turned", "tie", "prefix", "aliases", "nulls"})


@dataclass(frozen=True, slots=True)
class RandomDirectory:
    """What a seed draws: a random model and the names of variants. `draw` goes through all families."""

    seed: int
    model: RandomModel
    variants: tuple[str, ...]

    @classmethod
    def draw(cls, seed: int) -> "RandomDirectory":
        chance = random.Random(f"directory {seed}")
        # Not the first round of random models, which only embed; weights that amplify no rounding.
        model = RandomModel.draw(len(DRAWS) + seed)
        model = replace(model, jitter=0.5 * JITTER * math.sqrt(JITTER_WIDTH / model.sizes.width))
        found = set(chance.sample(sorted(TOKEN_VARIANTS), chance.randint(0, 2)))
        if tied_tensors(model) and chance.random() < 0.7:
            found.add(chance.choice(sorted(HEAD_VARIANTS)))
        found |= set(chance.sample(sorted(KEY_VARIANTS), chance.randint(0, 2)))
        if model.family == "static":
            found -= {*HEAD_VARIANTS, *KEY_VARIANTS, "max_len", "limit"}
        return cls(seed, model, tuple(name for name in VARIANTS if name in found)[:MOST_VARIANTS])

    @property
    def task(self) -> Task:
        return self.model.task

    @property
    def may_miss(self) -> bool:
        """Whether the library may fill tensors by chance."""
        return bool(MAY_MISS & set(self.variants))

    def save(self, folder: Path) -> tuple[str, ...]:
        """Write the directory, as its own library reads it. Return the variants that fit."""
        self.model.write(folder)
        place = Place(folder, self.model, random.Random(f"variants {self.seed}"))
        return tuple(name for name in self.variants if VARIANTS[name](place))

    def texts(self) -> tuple[str, ...]:
        """Texts with the tokens that variants add, in several surroundings; the last is long."""
        chance = random.Random(f"texts {self.seed}")
        words = ["The", "model", "reads", "one", "sentence", "after", "the", "other"]
        mixed = []
        for _ in range(5):
            scraps = [*chance.sample(words, 4), *chance.sample(NEW_TOKENS, 2), *chance.sample(_SPECIAL, 2)]
            chance.shuffle(scraps)
            mixed.append("".join(scrap + chance.choice(("", " ", "  ")) for scrap in scraps))
        return (*_TEXTS[:2], *mixed, "", mixed[0].upper(), " ".join([*mixed, *_TEXTS]))

    def __str__(self) -> str:
        return f"directory {self.seed}: {', '.join(self.variants) or 'no variant'}; {self.model}"


_SPECIAL = ("[MASK]", "<mask>", "[SEP]", "</s>", "<s>", "[PAD]", "<pad>", "<|endoftext|>", "<unk>", "[UNK]")
