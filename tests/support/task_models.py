"""Tiny models of transformers' classes with heads, saved as their users save them, and jittered."""

import string
import warnings
from pathlib import Path
from typing import Any

from support.published import edit_json
from support.tiny_models import TinyBert, save_tiny_bert
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


def load_tokenizer(folder: Path, **settings: Any) -> Any:
    """A BERT tokenizer of real words, as transformers has it; at most `LONGEST` tokens."""
    import tokenizers
    import transformers

    library = tokenizers.Tokenizer.from_file(str(save_tiny_bert(folder, TinyBert()) / "tokenizer.json"))
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        tokenizer = load_tokenizer(folder.with_name(f"{folder.name}-tokenizer"))
        config = transformers.BertConfig(**{"vocab_size": len(tokenizer), **SIZES, **settings})
        torch.manual_seed(seed)
        model = getattr(transformers, class_name)(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                around = 1.0 if "LayerNorm.weight" in name else 0.0
                spread = LABEL_JITTER if name == "classifier.weight" else JITTER
                parameter.copy_(around + spread * torch.randn_like(parameter))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def save_splade(folder: Path, masked: Path, **pooling: Any) -> Any:
    """A SPLADE model over the masked language model at `masked`, with `pooling` settings; returns it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SparseEncoder
        from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

        oracle = SparseEncoder(modules=[MLMTransformer(str(masked)), SpladePooling(**pooling)], device="cpu")
        oracle.save_pretrained(str(folder))
    return oracle


def save_autoencoder(folder: Path, encoder: Path, *, seed: int = 0, **settings: Any) -> Any:
    """A model of CSR over the encoder at `encoder`, with `settings` of its autoencoder; returns it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from sentence_transformers import SparseEncoder
        from sentence_transformers.models import Pooling, Transformer
        from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder

        torch.manual_seed(seed)
        autoencoder = SparseAutoEncoder(SIZES["hidden_size"], **settings)
        with torch.no_grad():
            for parameter in autoencoder.parameters():
                parameter.copy_(JITTER * torch.randn_like(parameter))
        modules = [Transformer(str(encoder)), Pooling(SIZES["hidden_size"], "mean"), autoencoder]
        oracle = SparseEncoder(modules=modules, device="cpu", prompts=SIDES)
        oracle.save_pretrained(str(folder))
    return oracle


def save_colbert(folder: Path, encoder: Path, expansion: dict[str, Any] | None, *, width: int = 32) -> Any:
    """A multi-vector model over `encoder`, whose rows have `width`; returns it.

    It expands queries as `expansion` says.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from sentence_transformers import MultiVectorEncoder
        from sentence_transformers.base.modules import Dense, Normalize, Transformer
        from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

        torch.manual_seed(0)
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
        modules = [
            transformer,
            dense,
            Normalize("token_embeddings", "token_embeddings"),
            MultiVectorMask(skiplist_words=list(string.punctuation)),
        ]
        oracle = MultiVectorEncoder(modules=modules, device="cpu", prompts=SIDES)
        oracle.save_pretrained(str(folder))
    return oracle


def save_causal(folder: Path, stem: str = "Qwen3", **settings: Any) -> tuple[Any, Any]:
    """A tiny language model that has words for its answers, plainly saved; returns it and its tokenizer.

    `stem` begins the names of its classes in transformers; `settings` go into its config and its tokenizer.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        import tokenizers
        import torch
        import transformers

        library = tokenizers.ByteLevelBPETokenizer()
        special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        texts = [" ".join(prose_words()[:4_000]), *["yes", "no"] * 100, *["Yes", "1", "0"] * 100]
        library.train_from_iterator(texts, vocab_size=700, special_tokens=special, show_progress=False)
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=library._tokenizer,
            eos_token="<|im_end|>",
            pad_token="<|endoftext|>",
            bos_token=settings.pop("bos_token", None),
        )
        tokenizer.model_max_length = LONGEST_PROSE
        config = getattr(transformers, f"{stem}Config")(
            **{
                "vocab_size": len(tokenizer),
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 8,
                "intermediate_size": 48,
                "tie_word_embeddings": True,
                **settings,
            }
        )
        torch.manual_seed(3)
        model = getattr(transformers, f"{stem}ForCausalLM")(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_((1.0 if "norm" in name else 0.0) + 0.3 * torch.randn_like(parameter))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return model, tokenizer


def save_layerwise(folder: Path, **settings: Any) -> tuple[Any, Any]:
    """A tiny layerwise MiniCPM reranker of 5 layers, of which 4 answer; returns it and its tokenizer.

    Files are as published. `settings` go into its tokenizer.
    """
    import torch

    from support.own_code_models import MiniCpmConfig, ReferenceLayerwiseMiniCpm

    _, tokenizer = save_causal(folder, "Llama", **settings)
    config = MiniCpmConfig(
        **{**SIZES, "num_hidden_layers": 5, "max_position_embeddings": 2048},
        vocab_size=len(tokenizer),
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
        rope_theta=10_000.0,
        attention_bias=False,
        scale_emb=3.0,
        scale_depth=1.4,
        dim_model_base=8,
        start_layer=2,
        head_multi=True,
        head_type="simple",
        cutoff_layers=[4],
    )
    torch.manual_seed(3)
    model = ReferenceLayerwiseMiniCpm(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_((1.0 if "norm" in name else 0.0) + JITTER * torch.randn_like(parameter))
    model.save_pretrained(folder)
    code = {"AutoModelForCausalLM": "modeling_minicpm_reranker.LayerWiseMiniCPMForCausalLM"}
    edit_json(
        folder / "config.json",
        model_type="minicpm",
        architectures=["LayerWiseMiniCPMForCausalLM"],
        auto_map=code,
    )
    return model, tokenizer


def save_sparse_router(folder: Path, masked: Path, **parameters: Any) -> Any:
    """A sparse model over `masked` for documents, with random weights of tokens for queries; returns it.

    Some weights are 0. `parameters` are those of the router.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from sentence_transformers import SparseEncoder
        from sentence_transformers.sparse_encoder.modules import (
            MLMTransformer,
            Router,
            SparseStaticEmbedding,
            SpladePooling,
        )

        torch.manual_seed(4)
        document = MLMTransformer(str(masked))
        weight = torch.relu(torch.rand(len(document.tokenizer)) * 6 - 1)
        router = Router.for_query_document(
            query_modules=[SparseStaticEmbedding(document.tokenizer, weight, frozen=True)],
            document_modules=[document, SpladePooling()],
            **parameters,
        )
        oracle = SparseEncoder(modules=[router], device="cpu")
        oracle.save_pretrained(str(folder))
    return oracle


def save_dense_router(
    folder: Path, encoder: Path, *, width: int = 32, normalizes: bool = True, **parameters: Any
) -> Any:
    """An embedding model over `encoder` for documents, with random token embeddings for queries; returns it.

    The tokens of queries are others than those of documents. `parameters` are those of the router.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tokenizers
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.base.modules import Normalize, Router, Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding

        torch.manual_seed(5)
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
        oracle = SentenceTransformer(
            modules=[router, *[Normalize()] * normalizes], device="cpu", prompts=SIDES
        )
        oracle.save_pretrained(str(folder))
    return oracle


def save_router_of_encoders(folder: Path, query: Path, document: Path, **parameters: Any) -> Any:
    """An embedding model with the encoder `query` for queries and `document` for documents; returns it.

    Queries take the last token, documents the mean and a matrix. `parameters` are those of the router.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling

        torch.manual_seed(6)
        width = SIZES["hidden_size"]
        router = Router.for_query_document(
            query_modules=[Transformer(str(query), max_seq_length=24), Pooling(width, "lasttoken")],
            document_modules=[
                Transformer(str(document), max_seq_length=LONGEST),
                Pooling(width),
                Dense(width, width),
            ],
            **parameters,
        )
        oracle = SentenceTransformer(modules=[router, Normalize()], device="cpu", prompts=SIDES)
        oracle.save_pretrained(str(folder))
    return oracle


def save_router_before_pooling(folder: Path, query: Path, document: Path) -> Any:
    """An embedding model whose encoders share the modules after the router; returns it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling

        torch.manual_seed(7)
        width = SIZES["hidden_size"]
        router = Router.for_query_document([Transformer(str(query))], [Transformer(str(document))])
        modules = [router, Pooling(width, "cls"), Dense(width, 16), Normalize()]
        oracle = SentenceTransformer(modules=modules, device="cpu")
        oracle.save_pretrained(str(folder))
    return oracle


def save_sparse_router_of_encoders(folder: Path, query: Path, document: Path) -> Any:
    """A sparse model with the masked language models `query` and `document`; returns it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SparseEncoder
        from sentence_transformers.sparse_encoder.modules import MLMTransformer, Router, SpladePooling

        router = Router.for_query_document(
            [MLMTransformer(str(query)), SpladePooling("sum")],
            [MLMTransformer(str(document)), SpladePooling()],
        )
        oracle = SparseEncoder(modules=[router], device="cpu")
        oracle.save_pretrained(str(folder))
    return oracle
