"""Tiny models of transformers' classes with heads, as their users save them, with drawn weights.

What has modules is a model of sentence-transformers, which is returned as a reference.
"""

import string
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from support.families import load_class, quiet_library, save_class
from support.published import edit_json
from support.reference import LibraryModel, load_library_model, load_reference
from support.references import (
    Draw,
    Reference,
    copy_weights,
    digest_directory,
    draw_weights,
    make_directory,
)
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.values.aliases import FloatArray
from vecmill.values.sample_texts import prose_words

JITTER = 0.3
LABEL_JITTER = 1.0  # so that no label wins everywhere
LONGEST = 40
LONGEST_PROSE = 300  # the template around a pair alone has 200 or so, so that long pairs are cut
SIDES = {"query": "which is ", "document": "this is "}

# What a shared tokenizer's vocabulary and these sizes make; all else is BERT's default.
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
_WIDTH = SIZES["hidden_size"]
_CAUSAL_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "tie_word_embeddings": True,
}
_CAUSAL_SEED = 3


def load_tokenizer(**settings: Any) -> Any:
    """A BERT tokenizer of real words, as transformers has it; at most `LONGEST` tokens."""
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        path = save_tiny_bert(Path(folder), TinyBert()) / "tokenizer.json"
        library = tokenizers.Tokenizer.from_file(str(path))
    library.no_truncation()
    library.no_padding()
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=library,
        model_max_length=LONGEST,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **special,
        **settings,
    )


def save_task_model(folder: Path, class_name: str, *, seed: int = 0, **settings: Any) -> Path:
    """A model of transformers' BERT class `class_name`, with `settings` in its config, and its tokenizer."""

    def save(folder: Path) -> None:
        tokenizer = load_tokenizer()
        save_class(folder, class_name, {"vocab_size": len(tokenizer), **SIZES, **settings})
        tokenizer.save_pretrained(folder)

    draw = draw_weights(seed, JITTER, {"classifier.weight": LABEL_JITTER})
    return make_directory(folder, ["task model", class_name, settings], save, draw)


def save_modules(
    folder: Path,
    class_name: str,
    recipe: object,
    make_modules: Callable[[], Sequence[Any]],
    sources: dict[str, Path],
    *,
    draw: Draw | None = None,
    **options: Any,
) -> LibraryModel:
    """A model of the class `class_name` of sentence-transformers with `options`; returns it.

    Its modules are made from the models in `sources`, whose names are those of the folders that they get.
    `draw` draws all other weights.
    """

    def save(folder: Path) -> None:
        with quiet_library():
            import sentence_transformers

            library = getattr(sentence_transformers, class_name)
            library(modules=make_modules(), device="cpu", **options).save_pretrained(str(folder))

    digests = {name: digest_directory(source) for name, source in sources.items()}
    weights = copy_weights(sources, draw or draw_weights(0, JITTER))
    make_directory(folder, ["modules", class_name, recipe, digests, options], save, weights)
    return load_reference(folder, class_name)


def save_again(folder: Path, source: Path, class_name: str, **options: Any) -> LibraryModel:
    """The model at `source` as sentence-transformers saves it, loaded with `options`; returns it."""

    def save(folder: Path) -> None:
        load_library_model(source, class_name, options).save_pretrained(str(folder))

    recipe = ["again", class_name, digest_directory(source), options]
    make_directory(folder, recipe, save, copy_weights({"": source}, draw_weights(0, JITTER)))
    return load_reference(folder, class_name)


def save_splade(folder: Path, masked: Path, **pooling: Any) -> LibraryModel:
    """A SPLADE model over the masked language model at `masked`, with `pooling` settings; returns it."""

    def make() -> list[Any]:
        from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

        return [MLMTransformer(str(masked)), SpladePooling(**pooling)]

    return save_modules(folder, "SparseEncoder", ["splade", pooling], make, {"": masked})


def save_autoencoder(folder: Path, encoder: Path, **settings: Any) -> LibraryModel:
    """A model of CSR over the encoder at `encoder`, with `settings` of its autoencoder; returns it."""

    def make() -> list[Any]:
        from sentence_transformers.models import Pooling, Transformer
        from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder

        return [Transformer(str(encoder)), Pooling(_WIDTH, "mean"), SparseAutoEncoder(_WIDTH, **settings)]

    recipe, source = ["autoencoder", settings], {"": encoder}
    return save_modules(folder, "SparseEncoder", recipe, make, source, prompts=SIDES)


def save_colbert(
    folder: Path, encoder: Path, expansion: dict[str, Any] | None, *, width: int = 32
) -> LibraryModel:
    """A multi-vector model over `encoder`, whose rows have `width`; returns it.

    It expands queries as `expansion` says.
    """

    def make() -> list[Any]:
        import torch
        from sentence_transformers.base.modules import Dense, Normalize, Transformer
        from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

        transformer = Transformer(
            str(encoder), max_seq_length=LONGEST, query_expansion=expansion, document_length=24
        )
        dense = Dense(
            width,
            16,
            bias=False,
            activation_function=torch.nn.Identity(),
            module_input_name="token_embeddings",
            module_output_name="token_embeddings",
        )
        normalize = Normalize("token_embeddings", "token_embeddings")
        return [transformer, dense, normalize, MultiVectorMask(skiplist_words=list(string.punctuation))]

    recipe, source = ["colbert", expansion, width], {"": encoder}
    return save_modules(folder, "MultiVectorEncoder", recipe, make, source, prompts=SIDES)


@dataclass(frozen=True, slots=True)
class PlainTokenizer:
    """The tokenizer of a language model, without what a class of transformers would add."""

    library: tokenizers.Tokenizer
    bos_token: str | None

    @property
    def bos_token_id(self) -> int | None:
        return None if self.bos_token is None else self.convert_tokens_to_ids(self.bos_token)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        ids: list[int] = self.library.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.library.decode(list(ids), skip_special_tokens=False)
        return text

    def convert_tokens_to_ids(self, token: str) -> int:
        number = self.library.token_to_id(token)
        assert number is not None, token
        return number


def read_logits(model: Reference, ids: Sequence[int], tokens: Sequence[int] | None = None) -> FloatArray:
    """The logits of `tokens` at the last place of a text, or all that there are."""

    def compute(model: Any) -> FloatArray:
        import torch

        with torch.no_grad():
            logits = model(torch.tensor([list(ids)])).logits[0]
        found: FloatArray = (logits if tokens is None else logits[-1, list(tokens)]).float().numpy()
        return found

    found: FloatArray = model.ask(["logits", np.array(ids), tokens], compute)
    return found


def read_hidden(model: Reference, ids: Sequence[int], places: Sequence[int] | None = None) -> FloatArray:
    """The hidden states at some places of a text, or the mean of all, of a language model's encoder."""

    def compute(model: Any) -> FloatArray:
        import torch

        with torch.no_grad():
            hidden = model.model(torch.tensor([list(ids)])).last_hidden_state[0]
        chosen = hidden.mean(dim=0) if places is None else hidden[list(places)]
        found: FloatArray = chosen.float().numpy()
        return found

    found: FloatArray = model.ask(["hidden", np.array(ids), places], compute)
    return found


def save_causal(folder: Path, stem: str = "Qwen3", **settings: Any) -> tuple[Reference, PlainTokenizer]:
    """A tiny language model that has words for its answers, plainly saved; returns it and its tokenizer.

    `stem` begins the names of its classes in transformers; `settings` go into its config and its tokenizer,
    which gets the special tokens `marks` of them after all others.
    """
    class_name, bos_token = f"{stem}ForCausalLM", settings.pop("bos_token", None)
    marks = settings.pop("marks", ())
    sizes = {**_CAUSAL_SIZES, **settings}

    def save(folder: Path) -> None:
        tokenizer = _train_causal_tokenizer(bos_token)
        save_class(folder, class_name, {"vocab_size": len(tokenizer), **sizes})
        if marks:
            tokenizer.add_special_tokens({"additional_special_tokens": list(marks)})
        tokenizer.save_pretrained(folder)

    recipe = ["causal", class_name, bos_token, list(marks), sizes]
    make_directory(folder, recipe, save, draw_weights(_CAUSAL_SEED, JITTER))
    return _load_saved(folder, class_name, bos_token)


def _load_saved(folder: Path, class_name: str, bos_token: str | None) -> tuple[Reference, PlainTokenizer]:
    reference = Reference(lambda: load_class(folder, class_name), digest_directory(folder))
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return reference, PlainTokenizer(library, bos_token)


def _train_causal_tokenizer(bos_token: str | None) -> Any:
    import transformers

    library = tokenizers.ByteLevelBPETokenizer()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    texts = [" ".join(prose_words()[:4_000]), *["yes", "no"] * 100, *["Yes", "1", "0"] * 100]
    library.train_from_iterator(texts, vocab_size=700, special_tokens=special, show_progress=False)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=library._tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        bos_token=bos_token,
    )
    tokenizer.model_max_length = LONGEST_PROSE
    return tokenizer


def save_layerwise(folder: Path, bos_token: str) -> tuple[Reference, PlainTokenizer]:
    """A tiny layerwise MiniCPM reranker of 5 layers, of which 4 answer; returns it and its tokenizer.

    Files are as published.
    """
    class_name = "ReferenceLayerwiseMiniCpm"
    settings = {
        **SIZES,
        "num_hidden_layers": 5,
        "max_position_embeddings": 2048,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "attention_bias": False,
        "scale_emb": 3.0,
        "scale_depth": 1.4,
        "dim_model_base": 8,
        "start_layer": 2,
        "head_multi": True,
        "head_type": "simple",
        "cutoff_layers": [4],
    }

    def save(folder: Path) -> None:
        tokenizer = _train_causal_tokenizer(bos_token)
        save_class(folder, class_name, {"vocab_size": len(tokenizer), **settings})
        tokenizer.save_pretrained(folder)

    recipe = ["layerwise", bos_token, settings]
    make_directory(folder, recipe, save, draw_weights(_CAUSAL_SEED, JITTER))
    saved = _load_saved(folder, class_name, bos_token)
    code = {"AutoModelForCausalLM": "modeling_minicpm_reranker.LayerWiseMiniCPMForCausalLM"}
    edit_json(
        folder / "config.json",
        model_type="minicpm",
        architectures=["LayerWiseMiniCPMForCausalLM"],
        auto_map=code,
    )
    return saved


def save_sparse_router(folder: Path, masked: Path, **parameters: Any) -> LibraryModel:
    """A sparse model over `masked` for documents, with random weights of tokens for queries; returns it.

    Some weights are 0. `parameters` are those of the router.
    """

    def make() -> list[Any]:
        import torch
        from sentence_transformers.sparse_encoder.modules import (
            MLMTransformer,
            Router,
            SparseStaticEmbedding,
            SpladePooling,
        )

        document = MLMTransformer(str(masked))
        weight = torch.ones(len(document.tokenizer))
        query = SparseStaticEmbedding(document.tokenizer, weight, frozen=True)
        return [Router.for_query_document([query], [document, SpladePooling()], **parameters)]

    def draw(name: str, shape: tuple[int, ...]) -> FloatArray:
        numbers = np.random.default_rng(4).random(shape).astype(np.float32) * 6 - 1
        return np.maximum(numbers, np.float32(0))

    sources = {"document_0_MLMTransformer": masked}
    recipe = ["sparse router", parameters]
    return save_modules(folder, "SparseEncoder", recipe, make, sources, draw=draw)


def save_dense_router(
    folder: Path, encoder: Path, *, width: int = 32, normalizes: bool = True, **parameters: Any
) -> LibraryModel:
    """An embedding model over `encoder` for documents, with random token embeddings for queries; returns it.

    The tokens of queries are others than those of documents. `parameters` are those of the router.
    """

    def make() -> list[Any]:
        from sentence_transformers.base.modules import Normalize, Router, Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding

        own = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="[UNK]"))
        own.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        words = sorted({"the", "one", "in", "end", "x", *prose_words()[:300]})
        own.train_from_iterator(
            [words], tokenizers.trainers.WordLevelTrainer(special_tokens=["[UNK]"], show_progress=False)
        )
        router = Router.for_query_document(
            query_modules=[StaticEmbedding(own, embedding_dim=width)],
            document_modules=[Transformer(str(encoder), max_seq_length=LONGEST), Pooling(width)],
            **parameters,
        )
        return [router, *[Normalize()] * normalizes]

    sources = {"document_0_Transformer": encoder}
    recipe = ["dense router", width, normalizes, parameters]
    draw = draw_weights(5, 1.0)
    return save_modules(folder, "SentenceTransformer", recipe, make, sources, draw=draw, prompts=SIDES)


def save_router_of_encoders(folder: Path, query: Path, document: Path, **parameters: Any) -> LibraryModel:
    """An embedding model with the encoder `query` for queries and `document` for documents; returns it.

    Queries take the last token, documents the mean and a matrix. `parameters` are those of the router.
    """

    def make() -> list[Any]:
        from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling

        router = Router.for_query_document(
            query_modules=[Transformer(str(query), max_seq_length=24), Pooling(_WIDTH, "lasttoken")],
            document_modules=[
                Transformer(str(document), max_seq_length=LONGEST),
                Pooling(_WIDTH),
                Dense(_WIDTH, _WIDTH),
            ],
            **parameters,
        )
        return [router, Normalize()]

    recipe = ["router of encoders", parameters]
    sources = _both_routes("Transformer", query, document)
    return save_modules(folder, "SentenceTransformer", recipe, make, sources, prompts=SIDES)


def _both_routes(kind: str, query: Path, document: Path) -> dict[str, Path]:
    return {f"query_0_{kind}": query, f"document_0_{kind}": document}


def save_router_before_pooling(folder: Path, query: Path, document: Path) -> LibraryModel:
    """An embedding model whose encoders share the modules after the router; returns it."""

    def make() -> list[Any]:
        from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling

        router = Router.for_query_document([Transformer(str(query))], [Transformer(str(document))])
        return [router, Pooling(_WIDTH, "cls"), Dense(_WIDTH, 16), Normalize()]

    sources = _both_routes("Transformer", query, document)
    return save_modules(folder, "SentenceTransformer", "router before pooling", make, sources)


def save_sparse_router_of_encoders(folder: Path, query: Path, document: Path) -> LibraryModel:
    """A sparse model with the masked language models `query` and `document`; returns it."""

    def make() -> list[Any]:
        from sentence_transformers.sparse_encoder.modules import MLMTransformer, Router, SpladePooling

        return [
            Router.for_query_document(
                [MLMTransformer(str(query)), SpladePooling("sum")],
                [MLMTransformer(str(document)), SpladePooling()],
            )
        ]

    sources = _both_routes("MLMTransformer", query, document)
    return save_modules(folder, "SparseEncoder", "sparse router of encoders", make, sources)
