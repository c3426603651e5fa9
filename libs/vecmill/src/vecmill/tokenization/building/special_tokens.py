"""The added tokens and the special tokens of a tokenizer, merged from all its files as transformers does.

    tokenizer.json             its own added tokens
    tokenizer_config.json      `added_tokens_decoder`: with it, no other list of added tokens counts
    special_tokens_map.json    special tokens, over those of tokenizer_config.json
    added_tokens.json          more added tokens

A token of a role, such as `mask_token`, or of a list of further special tokens is added if no list has it,
after all that are listed. A class has tokens of its own, which the files may replace (`ClassTokens`).

Tokens are `tokenizers.AddedToken`, or plain strings where no file gives flags: transformers compares and
converts them, so that the two forms differ. The merge reads no files: `read_tokens` returns what the contents
of the files say, whatever the class, and `FileTokens.merge` what a class makes of it.

Source of the rules: transformers 5.23, `tokenization_utils_base.py` (`_from_pretrained`, `__init__`) and
`tokenization_utils_tokenizers.py` (`TokenizersBackend.__init__`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

from vecmill.errors import CorruptModel
from vecmill.models.config_fields import check_token_number, read_flag, read_mapping
from vecmill.models.tokenizer_file import (
    ADDED_TOKENS,
    SPECIAL_TOKENS_MAP,
    TOKENIZER_CONFIG,
    check_token,
    read_added_tokens,
)
from vecmill.tokenization.building.tokenizer_files import DECODER, TOKENIZER_FILE, TokenizerFiles
from vecmill.values.messages import show

if TYPE_CHECKING:
    from tokenizers import AddedToken

Token = Union[str, "AddedToken"]

SpecialTokens = Mapping[str, str]
"""Role -> token, in the order in which transformers adds the tokens."""

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_ROLE_KEYS = tuple(f"{role}_token" for role in ROLES)
_MORE, _OLD_MORE = "extra_special_tokens", "additional_special_tokens"
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_ID_DIGITS = 10

# The further special tokens that a class is given, or `None`, and its settings -> those that it has.
ChooseMore = Callable[[list[Token] | None, Mapping[str, Any]], list[Token] | None]


@dataclass(frozen=True, slots=True)
class ClassTokens:
    """The special tokens of a class of transformers.

    `defaults` are those of roles that no file names, `mask` the flags of a mask token without flags in a
    file. `choose_more` decides on further special tokens; `null_is_absent` if null counts as none given. With
    `takes_padding` the padding of tokenizer.json may name the padding token. With `marks_again` all special
    tokens are added a second time in the end, without their flags, or, with `keeps_flags`, with them.
    """

    defaults: SpecialTokens = field(default_factory=dict)
    mask: Mapping[str, bool] = field(default_factory=dict)
    choose_more: ChooseMore | None = None
    null_is_absent: bool = False
    takes_padding: bool = False
    marks_again: bool = False
    keeps_flags: bool = False


@dataclass(frozen=True, slots=True)
class MergedTokens:
    """The tokens of a tokenizer of one class.

    `listed` are the added tokens in the order of their ids, `named` the special tokens by their keys, roles
    first, and `more` those without a key. `settings` are those of the class, with the texts of `named`.
    """

    listed: tuple["AddedToken", ...]
    named: Mapping[str, Token]
    more: tuple[Token, ...]
    settings: Mapping[str, Any]

    @property
    def special(self) -> dict[str, str]:
        """The tokens of the roles."""
        keys = zip(ROLES, _ROLE_KEYS, strict=True)
        return {role: text_of(self.named[key]) for role, key in keys if key in self.named}

    @property
    def special_texts(self) -> list[str]:
        """The texts of all special tokens, each once."""
        return list(dict.fromkeys(map(text_of, (*self.named.values(), *self.more))))

    def list_additions(self, own: Collection[str]) -> list["AddedToken"]:
        """Return the tokens to add to a tokenizer, which has the added tokens `own` already.

        Those of `named` become special, in `listed` too, as in transformers: with that, a token that states
        no `normalized` changes it.
        """
        from tokenizers import AddedToken

        found: list[Token] = list(self.listed)
        known = {*own, *map(text_of, found)}
        others: dict[str, list[Token]] = {}  # by their texts
        for token in (*self.named.values(), *self.more):
            text = text_of(token)
            same = others.setdefault(text, [])
            if text not in known and token not in same:
                same.append(token)
                found.append(token)
        names = set(map(text_of, self.named.values()))
        additions = []
        for token in found:
            added = AddedToken(token, special=True) if isinstance(token, str) else token
            added.special = added.special or added.content in names
            additions.append(added)
        return additions

    def list_again(self, known: ClassTokens) -> list["AddedToken"]:
        """Return the special tokens that the class `known` adds a second time."""
        from tokenizers import AddedToken

        if not known.marks_again:
            return []
        if not known.keeps_flags:
            return [AddedToken(text, special=True) for text in self.special_texts]
        tokens = (*self.named.values(), *self.more)
        return [
            AddedToken(token, special=True, normalized=False) if isinstance(token, str) else token
            for token in tokens
        ]

    def add_to(self, tokenizer: Any, known: ClassTokens) -> None:
        """Add the tokens to a `tokenizers.Tokenizer` of the class `known`."""
        own = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        tokenizer.add_tokens(self.list_additions(own))
        tokenizer.add_special_tokens(self.list_again(known))


@dataclass(frozen=True, slots=True)
class FileTokens:
    """What the files of a tokenizer say of its tokens, whatever its class.

    `settings` are those of tokenizer_config.json and special_tokens_map.json together, `specific` the special
    tokens of keys that are no roles, and `listed` the ids and the tokens of all lists, by id.
    """

    settings: Mapping[str, Any]
    specific: Mapping[str, Token]
    listed: tuple[tuple[int, "AddedToken"], ...]

    @property
    def more(self) -> list[Token]:
        """The further special tokens that the settings list."""
        return self._list(_MORE) or []

    @property
    def lists_more(self) -> bool:
        """Whether the settings list further special tokens, so that those of sentencepiece do not count."""
        return _MORE in self.settings

    def name_roles(self, known: ClassTokens, padding: str | None = None) -> dict[str, Token]:
        """Return the special tokens by the keys of their roles. `padding` is that of tokenizer.json."""
        from tokenizers import AddedToken

        defaults = dict(known.defaults)
        if known.takes_padding and padding is not None:
            defaults["pad"] = padding
        named: dict[str, Token] = {}
        for role, key in zip(ROLES, _ROLE_KEYS, strict=True):
            token = self.settings.get(key, defaults.get(role))
            if role == "mask" and isinstance(token, str) and known.mask:
                token = AddedToken(token, **known.mask)
            if token is not None:
                named[key] = token
        return named

    def merge(
        self, known: ClassTokens, *, pieces: list[Token] | None = None, padding: str | None = None
    ) -> MergedTokens:
        """Return the tokens of a tokenizer of the class `known`.

        `pieces` are the further special tokens of a sentencepiece model. Raises `CorruptModel`.
        """
        named = {**self.name_roles(known, padding), **self.specific}
        if _MORE in self.settings and not (known.null_is_absent and self.settings[_MORE] is None):
            more = self._list(_MORE)
        else:
            given = self._list(_OLD_MORE) if pieces is None else pieces
            more = given if known.choose_more is None else known.choose_more(given, self.settings)
        texts = {key: text_of(token) for key, token in named.items()}
        return MergedTokens(
            tuple(token for _, token in self.listed), named, tuple(more or ()), {**self.settings, **texts}
        )

    def _list(self, key: str) -> list[Token] | None:
        values = self.settings.get(key)
        if values is None:
            return None
        if not isinstance(values, list):
            raise CorruptModel(f"{TOKENIZER_CONFIG}: {key} must be a list or an object of tokens.")
        tokens = (to_token(value, f"{TOKENIZER_CONFIG}: {key}") for value in values)
        return [token for token in tokens if token is not None]


def text_of(token: Token) -> str:
    """Return the text of a token."""
    return token if isinstance(token, str) else token.content


def read_tokens(files: TokenizerFiles) -> FileTokens:
    """Return what the files of a tokenizer say of its tokens. Raises `CorruptModel`."""
    settings = dict(files.config)
    _check_lists(settings, TOKENIZER_CONFIG)
    if _OLD_MORE in settings and not settings.get(_MORE):
        settings[_MORE] = settings.pop(_OLD_MORE)
    specific = _take_specific(settings, lambda value: isinstance(value, str))
    if files.lists_added_tokens:
        listed = _read_decoder(files)
    else:
        special_map = files.read_object(SPECIAL_TOKENS_MAP)
        _check_lists(special_map, SPECIAL_TOKENS_MAP)
        _update(settings, special_map)
        specific |= _take_object(settings)
        listed = [*_read_added(files, settings), *list_own_tokens(files)]
    by_text = {token.content: token for _, token in listed}
    for key in _ROLE_KEYS:
        if key in settings:
            token = to_token(settings[key], f"{TOKENIZER_CONFIG}: {key}")
            settings[key] = None if token is None else by_text.get(text_of(token), token)
    # Those with flags: transformers converts them later, so the others come first in `specific`.
    flagged = _take_specific(settings, _is_token)
    # Of tokens with one id the last counts, but all lend their flags to special tokens.
    by_id = tuple(sorted(dict(listed).items(), key=lambda entry: entry[0]))
    return FileTokens(settings, {**flagged, **specific}, by_id)


def read_switch(config: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """Read true or false of tokenizer_config.json. Null is false, as in transformers' classes."""
    is_null = key in config and config[key] is None
    return not is_null and read_flag(config, key, default=default, file=TOKENIZER_CONFIG)


def to_token(value: Any, name: str) -> Token | None:
    """Return the token that `value` of a file is: text, or an object with flags; `None` if it is null.

    Raises `CorruptModel`, whose message begins with `name`, for other values.
    """
    if not isinstance(value, Mapping):
        return value if _is_added_token(value) else check_token(value, name)
    # Only what transformers wrote as a token may be no special one.
    flags = value if "__type" in value else {"special": True, **value}
    return make_token(flags, name)


def make_token(settings: Mapping[str, Any], name: str) -> "AddedToken":
    """Return the token with these settings. Raises `CorruptModel`, whose message begins with `name`."""
    from tokenizers import AddedToken

    content = check_token(settings, name)
    place = f"{name}: the token {show(content)}"
    flags = {
        flag: read_flag(settings, flag, default=False, file=place) for flag in _FLAGS if flag in settings
    }
    return AddedToken(content, **flags)


def _is_added_token(value: object) -> Any:
    return type(value).__name__ == "AddedToken"


def _is_token(value: object) -> bool:
    return isinstance(value, str) or _is_added_token(value) or (isinstance(value, dict) and "__type" in value)


def _take_specific(settings: dict[str, Any], is_one: Callable[[object], bool]) -> dict[str, Token]:
    """Remove the special tokens of keys that are no roles from `settings`, and return them."""
    keys = [
        key
        for key, value in settings.items()
        if key.endswith("_token") and key not in _ROLE_KEYS and is_one(value)
    ]
    found = {key: to_token(settings.pop(key), f"{TOKENIZER_CONFIG}: {key}") for key in keys}
    return {**{key: token for key, token in found.items() if token is not None}, **_take_object(settings)}


def _take_object(settings: dict[str, Any]) -> dict[str, Token]:
    """Remove the further special tokens from `settings` if they are an object, and return them."""
    if not isinstance(settings.get(_MORE), Mapping):
        return {}
    found = {
        key: to_token(value, f"{TOKENIZER_CONFIG}: {_MORE}.{key}")
        for key, value in settings.pop(_MORE).items()
    }
    return {key: token for key, token in found.items() if token is not None}


def _update(settings: dict[str, Any], special_map: Mapping[str, Any]) -> None:
    """Put what special_tokens_map.json says over the settings of tokenizer_config.json."""
    for key, value in special_map.items():
        name = f"{SPECIAL_TOKENS_MAP}: {key}"
        if key == _MORE and isinstance(value, list):
            known = list(settings.get(_MORE) or [])
            settings[key] = [*known, *(token for token in value if token not in known)]
        elif isinstance(value, Mapping) and key != _MORE:
            settings[key] = make_token({**value, "special": True}, name)
        else:
            settings[key] = value


def _check_lists(settings: Mapping[str, Any], file: str) -> None:
    """Check the further special tokens of a file, while it is known which file and key they are from."""
    for key in (_MORE, _OLD_MORE):
        group = settings.get(key)
        if not isinstance(group, list | Mapping | None):
            raise CorruptModel(f"{file}: {key} must be a list or an object of tokens.")
        for value in group if isinstance(group, list) else ():
            to_token(value, f"{file}: {key}")


def _read_decoder(files: TokenizerFiles) -> list[tuple[int, "AddedToken"]]:
    """Return the ids and the added tokens that tokenizer_config.json lists."""
    name, found = f"{TOKENIZER_CONFIG}: {DECODER}", []
    for number, token in read_mapping(files.config, DECODER, file=TOKENIZER_CONFIG).items():
        if not (number.isascii() and number.isdecimal() and len(number) < _ID_DIGITS):
            raise CorruptModel(f"{name}: the key {show(number)} is not the id of a token.")
        if not isinstance(token, Mapping):
            raise CorruptModel(f"{name}.{number}: content must be a string.")
        found.append((int(number), make_token(token, f"{name}.{number}")))
    return found


def _read_added(files: TokenizerFiles, settings: Mapping[str, Any]) -> list[tuple[int, "AddedToken"]]:
    """Return the ids and the tokens of added_tokens.json. Those that the settings name are special."""
    values = [*(settings.get(key) for key in _ROLE_KEYS), *(settings.get(_MORE) or ())]
    special = {text_of(value) for value in values if isinstance(value, str) or _is_added_token(value)}
    found = []
    for text, number in files.read_object(ADDED_TOKENS).items():
        name = f"{ADDED_TOKENS}: {show(text)}"
        is_special = text in special
        flags = {"content": text, "normalized": not is_special, "special": is_special}
        found.append((check_token_number(number, name), make_token(flags, name)))
    return found


def list_own_tokens(files: TokenizerFiles) -> Sequence[tuple[int, "AddedToken"]]:
    """Return the ids and the added tokens of tokenizer.json, if that is the file. Raises `CorruptModel`."""
    if files.name != TOKENIZER_FILE:
        return ()
    found = []
    for index, token in enumerate(read_added_tokens(files.content, files.path)):
        name = f"{files.path}: added_tokens[{index}]"
        if not isinstance(token, Mapping):
            raise CorruptModel(f"{name} must be an object.")
        found.append((check_token_number(token.get("id"), f"{name}.id"), make_token(token, name)))
    return found
