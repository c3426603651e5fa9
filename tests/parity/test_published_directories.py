"""Popular models, laid out as their publishers ship them, give the reference's numbers or one clear sentence.

docs/models.md has the same table in words.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from support.graph_session import GraphSession
from support.published import (
    IDENTITY,
    LONGEST,
    NORMALIZE,
    SIZES,
    TANH,
    WIDTH,
    Module,
    Published,
    dense,
    edit_json,
    pooling,
    respell,
    save_published,
)
from support.reference import load_reference
from support.rows_check import PLANS, assert_same_rows
from support.texts import hard_texts, mixed_texts
from vecmill import MillConfig, SyncMill
from vecmill.architectures.build import build_graph
from vecmill.directory_layouts import describe_model
from vecmill.errors import UnsupportedModel
from vecmill.models import Task, locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.verification import reference

SEED = 17
TEXTS = [*mixed_texts(SEED, 8), *hard_texts()[::4]]
TOLERANCE = 1e-4
ROBERTA_SIZES: dict[str, Any] = {"max_position_embeddings": 66, "type_vocab_size": 1, "pad_token_id": 1}
DISTIL_SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")),
    "dim": WIDTH,
    "hidden_dim": 48,
    "n_layers": 2,
    "n_heads": 4,
}
T5_SIZES: dict[str, Any] = {
    **dict.fromkeys(SIZES),
    "d_model": WIDTH,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
}
DECODER_SIZES: dict[str, Any] = {
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
GEMMA_SIZES: dict[str, Any] = {
    **DECODER_SIZES,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention"],
    "use_bidirectional_attention": True,
}
MODERNBERT_SIZES: dict[str, Any] = {
    "local_attention": 8,
    "num_hidden_layers": 4,
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0),
}
NOMIC = {
    "activation_function": "swiglu",
    "causal": False,
    "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 2048,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "n_embd": WIDTH,
    "n_head": 4,
    "n_inner": 48,
    "n_layer": 2,
    "n_positions": 64,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "use_rms_norm": False,
    "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
}
NEW = {
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
    "pack_qkv": True,
    "position_embedding_type": "rope",
    "rope_scaling": None,
    "rope_theta": 160_000,
    "unpad_inputs": False,
    "use_memory_efficient_attention": False,
    "auto_map": {"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"},
}
NOMIC_EXPERTS: dict[str, Any] = {
    **dict.fromkeys(SIZES),
    **{key: value for key, value in NOMIC.items() if key != "auto_map"},
    "activation_function": "gelu",
    "layer_norm_epsilon": 1e-5,
    **dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"), True),
    "rotary_emb_base": 10_000,
    "type_vocab_size": 1,
    "use_rms_norm": None,
    "num_experts": 8,
    "num_shared_experts": 0,
    "moe_top_k": 2,
    "moe_every_n_layers": 2,
    "moe_impl": "megablocks",
    "moe_normalize_expert_weights": False,
    "expert_choice_router": False,
    "ffn_div": 1,
}
JINA: dict[str, Any] = {
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "position_embedding_type": "alibi",
    "feed_forward_type": "geglu",
    "emb_pooler": "mean",
    "model_max_length": 8192,
}
EUROBERT_SIZES: dict[str, Any] = {
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "mask_token_id"), 0),
    "rope_parameters": {"rope_type": "default", "rope_theta": 250_000.0},
}
EUROBERT = {
    "clf_pooling": "late",
    "rope_scaling": None,
    "rope_theta": 250_000,
    "auto_map": {
        "AutoConfig": "configuration_eurobert.EuroBertConfig",
        "AutoModel": "modeling_eurobert.EuroBertModel",
    },
}
QWEN_CODE = {
    "auto_map": {
        "AutoModel": "modeling_qwen.Qwen2Model",
        "AutoModelForCausalLM": "modeling_qwen.Qwen2ForCausalLM",
        "AutoModelForSequenceClassification": "modeling_qwen.Qwen2ForSequenceClassification",
    }
}
QWEN_TOKENIZER = {
    "tokenizer_class": "Qwen2Tokenizer",
    "add_eos_token": True,
    "auto_map": {
        "AutoTokenizer": ["tokenization_qwen.Qwen2Tokenizer", "tokenization_qwen.Qwen2TokenizerFast"]
    },
}
BOTH_WAYS_SIZES: dict[str, Any] = {**DECODER_SIZES, "head_dim": None, "is_causal": False}
OWN_CODE = {"auto_map": {"AutoModel": "modeling.OwnModel"}}
CHAT = {"chat_template": "{% for message in messages %}{{ message.content }}{% endfor %}"}


def own_jina(repository: str, name: str) -> dict[str, Any]:
    """The code that a JinaBERT model names, and its class."""
    code = f"{repository}--"
    return {
        "model_type": "bert",
        "architectures": [name],
        "auto_map": {
            "AutoConfig": f"{code}configuration_bert.JinaBertConfig",
            "AutoModel": f"{code}modeling_bert.JinaBertModel",
            "AutoModelForSequenceClassification": f"{code}modeling_bert.JinaBertForSequenceClassification",
        },
    }


SEARCH = "Represent this sentence for searching relevant passages: "
MEAN, FIRST, LAST = pooling("mean"), pooling("cls"), pooling("lasttoken", include_prompt=True)
TO_NORMALIZE: Module = ("Normalize", "3_Normalize", {})

EMBEDDERS: dict[str, Published] = {
    "BAAI/bge-small-en-v1.5": Published(
        "BertModel",
        "BertTokenizer",
        (FIRST, NORMALIZE),
        sentence={"max_seq_length": LONGEST, "do_lower_case": True},
    ),
    "intfloat/e5-base-v2": Published("BertModel", "BertTokenizer", (MEAN, NORMALIZE)),
    "intfloat/multilingual-e5-base": Published(
        "XLMRobertaModel", "XLMRobertaTokenizer", (MEAN, NORMALIZE), ROBERTA_SIZES
    ),
    "intfloat/multilingual-e5-small": Published("BertModel", "XLMRobertaTokenizer", (MEAN, NORMALIZE)),
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2": Published(
        "BertModel",
        "XLMRobertaTokenizer",
        (MEAN,),
        tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast"},
    ),
    "mixedbread-ai/mxbai-embed-large-v1": Published(
        "BertModel", "BertTokenizer", (FIRST,), prompts={"query": SEARCH, "passage": ""}
    ),
    "Snowflake/snowflake-arctic-embed-m": Published(
        "BertModel", "BertTokenizer", (FIRST, NORMALIZE), prompts={"query": SEARCH}
    ),
    "Snowflake/snowflake-arctic-embed-l-v2.0": Published(
        "XLMRobertaModel",
        "XLMRobertaTokenizer",
        (FIRST, NORMALIZE),
        ROBERTA_SIZES,
        prompts={"query": "query: "},
    ),
    "Snowflake/snowflake-arctic-embed-m-v2.0": Published(
        "GteModel",
        "XLMRobertaTokenizer",
        (FIRST, NORMALIZE),
        prompts={"query": "query: "},
        spelling={**NEW, "auto_map": {"AutoModel": "modeling_hf_alibaba_nlp_gte.GteModel"}},
        instead=("rope_parameters",),
    ),
    "Alibaba-NLP/gte-modernbert-base": Published("ModernBertModel", "byte_level", (FIRST,), MODERNBERT_SIZES),
    "nomic-ai/modernbert-embed-base": Published(
        "ModernBertModel",
        "byte_level",
        (MEAN, NORMALIZE),
        MODERNBERT_SIZES,
        tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast"},
        prompts={"query": "search_query: ", "document": "search_document: "},
    ),
    "EuroBERT/EuroBERT-210m": Published(
        "EuroBertModel",
        "byte_level",
        (MEAN,),
        EUROBERT_SIZES,
        tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast"},
        spelling=EUROBERT,
        instead=("rope_parameters", "classifier_pooling"),
    ),
    "nomic-ai/nomic-embed-text-v1.5": Published(
        "NomicBertModel",
        "BertTokenizer",
        (MEAN,),
        spelling=NOMIC,
        instead=(*SIZES, "rope_parameters", "layer_norm_eps", "hidden_act", "head_dim"),
    ),
    "nomic-ai/nomic-embed-text-v2-moe": Published(
        "ReferenceNomicMixtureModel",
        "XLMRobertaTokenizer",
        (MEAN, NORMALIZE),
        NOMIC_EXPERTS,
        prompts={"query": "search_query: ", "passage": "search_document: "},
        spelling={
            "model_type": "nomic_bert",
            "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"},
        },
    ),
    "jinaai/jina-embeddings-v2-base-en": Published(
        "ReferenceJinaBertModel",
        "BertTokenizer",
        (MEAN,),
        JINA,
        spelling=own_jina("jinaai/jina-bert-implementation", "JinaBertModel"),
    ),
    "jinaai/jina-embeddings-v2-base-de": Published(
        "ReferenceJinaBertModel",
        "RobertaTokenizer",
        (MEAN,),
        JINA,
        spelling=own_jina("jinaai/jina-bert-implementation", "JinaBertModel"),
    ),
    "jinaai/jina-embeddings-v2-base-code": Published(
        "ReferenceJinaBertCodeModel",
        "RobertaTokenizer",
        (MEAN,),
        JINA,
        spelling=own_jina("jinaai/jina-bert-v2-qk-post-norm", "JinaBertModel"),
    ),
    "NovaSearch/stella_en_400M_v5": Published(
        "GteModel",
        "BertTokenizer",
        (MEAN, dense("2_Dense_1024", WIDTH, 48, bias=True, activation=IDENTITY)),
        prompts={"s2p_query": "Instruct: retrieve\nQuery: ", "s2s_query": "Instruct: similar\nQuery: "},
        spelling={**NEW, "model_type": "new"},
        instead=("rope_parameters",),
    ),
    "Qwen/Qwen3-Embedding-0.6B": Published(
        "Qwen3Model",
        "Qwen2Tokenizer",
        (LAST, NORMALIZE),
        DECODER_SIZES,
        tokenizer_config={**CHAT, "add_bos_token": False, "model_max_length": LONGEST},
        sentence=None,
        prompts={"query": "Instruct: Given a web search query\nQuery:", "document": ""},
        frame="$A <|endoftext|>",
    ),
    "Alibaba-NLP/gte-Qwen2-1.5B-instruct": Published(
        "Qwen2Model",
        "Qwen2Tokenizer",
        (LAST, NORMALIZE),
        BOTH_WAYS_SIZES,
        tokenizer_config=QWEN_TOKENIZER,
        prompts={"query": "Instruct: Given a web search query\nQuery: "},
        spelling=QWEN_CODE,
        frame="$A <|endoftext|>",
    ),
    "NovaSearch/stella_en_1.5B_v5": Published(
        "Qwen2Model",
        "Qwen2Tokenizer",
        (MEAN, dense("2_Dense_1024", WIDTH, 48, bias=True, activation=IDENTITY)),
        BOTH_WAYS_SIZES,
        tokenizer_config=QWEN_TOKENIZER,
        prompts={"s2p_query": "Instruct: retrieve\nQuery: ", "s2s_query": "Instruct: similar\nQuery: "},
        spelling=QWEN_CODE,
        instead=("is_causal",),
        frame="$A <|endoftext|>",
    ),
    "nvidia/llama-embed-nemotron-8b": Published(
        "LlamaModel",
        "byte_level",
        (MEAN, NORMALIZE),
        BOTH_WAYS_SIZES,
        tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast"},
        prompts={"query": "Instruct: Given a question\nQuery: "},
        spelling={
            "model_type": "llama_bidirec",
            "architectures": ["LlamaBidirectionalModel"],
            "pooling": "avg",
            "temperature": 0.02,
            "auto_map": {
                "AutoConfig": "llama_bidirectional_model.LlamaBidirectionalConfig",
                "AutoModel": "llama_bidirectional_model.LlamaBidirectionalModel",
            },
        },
        instead=("is_causal",),
    ),
    "nvidia/Nemotron-3-Embed-1B-BF16": Published(
        "Ministral3Model",
        "byte_level",
        (MEAN, NORMALIZE),
        {
            **DECODER_SIZES,
            "is_causal": False,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1_000_000.0,
                "factor": 16.0,
                "original_max_position_embeddings": 16,
                "max_position_embeddings": 64,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1,
            },
            "tie_word_embeddings": True,
        },
        prompts={"query": "query: ", "document": "passage: "},
        spelling={"pooling": "avg"},
    ),
    "LiquidAI/LFM2.5-Embedding-350M": Published(
        "ReferenceLfm2BidirectionalModel",
        "byte_level",
        (FIRST,),
        {
            "num_hidden_layers": 3,
            "num_key_value_heads": 2,
            "pad_token_id": 0,
            "layer_types": ["conv", "full_attention", "conv"],
            "block_multiple_of": 8,
        },
        prompts={"query": "query: ", "document": "document: "},
        spelling={
            "model_type": "lfm2",
            "architectures": ["Lfm2BidirectionalModel"],
            "auto_map": {"AutoModel": "modeling_lfm2_bidirectional.Lfm2BidirectionalModel"},
        },
        instead=("is_causal",),
    ),
    "BAAI/bge-multilingual-gemma2": Published(
        "Gemma2Model",
        "GemmaTokenizer",
        (LAST, NORMALIZE),
        {**DECODER_SIZES, "sliding_window": 8, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 1.0},
        prompts={"web_search_query": "<instruct>Given a web search query\n<query>"},
        frame="<bos> $A <eos>",
    ),
    "google/embeddinggemma-300m": Published(
        "Gemma3TextModel",
        "GemmaTokenizer",
        (
            MEAN,
            dense("2_Dense", WIDTH, 96, bias=False, activation=IDENTITY),
            dense("3_Dense", 96, WIDTH, bias=False, activation=IDENTITY),
            ("Normalize", "4_Normalize", {}),
        ),
        GEMMA_SIZES,
        prompts={"query": "task: search result | query: ", "document": "title: none | text: "},
        frame="<bos> $A <eos>",
    ),
    "intfloat/e5-mistral-7b-instruct": Published(
        "MistralModel",
        "byte_fallback",
        (LAST, NORMALIZE),
        {**DECODER_SIZES, "sliding_window": 16},
        tokenizer_config={"tokenizer_class": "LlamaTokenizer", "add_eos_token": True},
    ),
    "ibm-granite/granite-embedding-125m-english": Published(
        "RobertaModel", "RobertaTokenizer", (FIRST, NORMALIZE), ROBERTA_SIZES
    ),
    "sentence-transformers/all-mpnet-base-v2": Published(
        "MPNetModel",
        "MPNetTokenizer",
        (MEAN, NORMALIZE),
        ROBERTA_SIZES,
        spelling={"architectures": ["MPNetForMaskedLM"]},
    ),
    "sentence-transformers/LaBSE": Published(
        "BertModel",
        "BertTokenizer",
        (FIRST, dense("2_Dense", WIDTH, WIDTH, bias=True, activation=TANH), TO_NORMALIZE),
        tokenizer_config={"do_lower_case": False},
    ),
    "sentence-transformers/distiluse-base-multilingual-cased-v2": Published(
        "DistilBertModel",
        "BertTokenizer",
        (MEAN, dense("2_Dense", WIDTH, 16, bias=True, activation=TANH)),
        DISTIL_SIZES,
        tokenizer_config={"tokenizer_class": "DistilBertTokenizer", "do_lower_case": False},
    ),
    "sentence-transformers/msmarco-distilbert-base-tas-b": Published(
        "DistilBertModel", "DistilBertTokenizer", (FIRST,), DISTIL_SIZES
    ),
    "sentence-transformers/gtr-t5-base": Published(
        "T5EncoderModel",
        "T5Tokenizer",
        (MEAN, dense("2_Dense", WIDTH, 24, bias=False, activation=IDENTITY), TO_NORMALIZE),
        T5_SIZES,
    ),
    "sentence-transformers/all-distilroberta-v1": Published(
        "RobertaModel", "RobertaTokenizer", (MEAN, NORMALIZE), ROBERTA_SIZES
    ),
}

RERANKERS: dict[str, Published] = {
    "cross-encoder/ms-marco-MiniLM-L6-v2": Published(
        "BertForSequenceClassification",
        "BertTokenizer",
        None,
        {"num_labels": 1},
        sentence=None,
        tokenizer_config={"model_max_length": LONGEST},
        spelling={"sentence_transformers": {"activation_fn": IDENTITY, "version": "4.0.1"}},
    ),
    "BAAI/bge-reranker-v2-m3": Published(
        "XLMRobertaForSequenceClassification",
        "XLMRobertaTokenizer",
        None,
        {**ROBERTA_SIZES, "num_labels": 1},
        sentence=None,
        tokenizer_config={"model_max_length": LONGEST},
    ),
    "mixedbread-ai/mxbai-rerank-base-v1": Published(
        "DebertaV2ForSequenceClassification",
        "DebertaV2Tokenizer",
        None,
        {
            "num_labels": 1,
            "relative_attention": True,
            "position_buckets": 8,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False,
            "max_relative_positions": -1,
            "type_vocab_size": 0,
        },
        sentence=None,
        tokenizer_config={"model_max_length": LONGEST},
    ),
    "jinaai/jina-reranker-v1-turbo-en": Published(
        "ReferenceJinaBertForSequenceClassification",
        "BertTokenizer",
        None,
        {**JINA, "num_labels": 1},
        sentence=None,
        tokenizer_config={"model_max_length": LONGEST},
        spelling=own_jina("jinaai/jina-bert-implementation", "JinaBertForSequenceClassification"),
    ),
    "EuroBERT/EuroBERT-610m": Published(
        "EuroBertForSequenceClassification",
        "byte_level",
        None,
        {**EUROBERT_SIZES, "num_key_value_heads": 2, "num_labels": 1},
        sentence=None,
        spelling=EUROBERT,
        instead=("rope_parameters", "classifier_pooling"),
    ),
    "Alibaba-NLP/gte-reranker-modernbert-base": Published(
        "ModernBertForSequenceClassification",
        "byte_level",
        None,
        {**MODERNBERT_SIZES, "num_labels": 1, "classifier_pooling": "mean"},
        sentence=None,
    ),
}

REFUSED: dict[str, Published] = {
    "a BERT with linear biases and other code": Published(
        "BertModel",
        "BertTokenizer",
        (MEAN,),
        spelling={**OWN_CODE, "position_embedding_type": "alibi"},
        error="auto_map names .*modeling.OwnModel.* not run by default",
    ),
    "perplexity-ai/pplx-embed-v1-0.6b": Published(
        "Qwen3Model",
        "Qwen2Tokenizer",
        (MEAN, ("FlexibleQuantizer", "2_Quantizer", {})),
        DECODER_SIZES,
        spelling={
            "model_type": "bidirectional_pplx_qwen3",
            "use_bidirectional_attention": True,
            "auto_map": {
                "AutoConfig": "configuration.PPLXQwen3Config",
                "AutoModel": "modeling.PPLXQwen3Model",
            },
        },
        error="FlexibleQuantizer",
    ),
    "sentence-transformers/clip-ViT-B-32": Published(
        "BertModel",
        "BertTokenizer",
        (),
        first_module="sentence_transformers.models.CLIPModel",
        error=r"modules\.json lists CLIPModel",
    ),
    "mixedbread-ai/mxbai-rerank-base-v2": Published(
        "Qwen2ForCausalLM",
        "Qwen2Tokenizer",
        None,
        {**DECODER_SIZES, "head_dim": None},
        tokenizer_config=CHAT,
        sentence=None,
        error="a chat template applies to every text",
    ),
}


@pytest.mark.parametrize("name", EMBEDDERS)
def test_published_embedders_give_the_rows_of_the_reference(tmp_path: Path, name: str) -> None:
    model = EMBEDDERS[name]
    folder = save_published(tmp_path / "model", model, seed=SEED)
    model_of_library = load_reference(folder).float()
    respell(folder, model)
    compare_rows(folder, model, model_of_library)


EMBEDDING_GEMMA_2 = Published(
    "EmbeddingGemma2TextModel",
    "GemmaTokenizer",
    (MEAN, NORMALIZE),
    {
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "global_head_dim": 16,
        "num_global_key_value_heads": 1,
        "sliding_window": 4,
        "sliding_window_pattern": 2,
        "hidden_size_per_layer_input": 16,
        "embedding_dim": WIDTH,
    },
    prompts={"query": "task: search result | query: ", "document": "title: none | text: "},
    frame="<bos> $A <eos>",
)


def test_texts_of_embedding_gemma_2_need_no_model_of_images(tmp_path: Path) -> None:
    """google/embeddinggemma-2: its text model, in the file of a model that reads images and sound too."""
    folder = save_published(tmp_path / "model", EMBEDDING_GEMMA_2, seed=SEED)
    model_of_library = load_reference(folder).float()
    text = json.loads((folder / "config.json").read_text())
    others = {
        "vision_config": {"model_type": "gemma4_vision"},
        "audio_config": {"model_type": "gemma4_audio"},
    }
    whole = {"model_type": "embedding_gemma2", "architectures": ["EmbeddingGemma2Model"], **others}
    (folder / "config.json").write_text(json.dumps({**whole, "text_config": text}))
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    named = {f"language_model.{name}": tensor for name, tensor in tensors.items()}
    named["vision_tower.patch_embedder.input_proj.weight"] = np.zeros((4, 4), np.float32)
    safetensors.numpy.save_file(named, folder / "model.safetensors", metadata={"format": "pt"})
    forward = {"method": "forward", "method_output_name": "last_hidden_state"}
    modalities = dict.fromkeys(("text", "image", "video", "audio"), forward)
    edit_json(folder / "sentence_bert_config.json", modality_config=modalities)
    compare_rows(folder, EMBEDDING_GEMMA_2, model_of_library)


def compare_rows(folder: Path, model: Published, model_of_library: Any) -> None:
    """Compare the rows of all texts with those of sentence-transformers, which has read another spelling."""
    description = describe_model(locate_model(folder))
    assert (description.task, description.max_tokens) == (Task.EMBED, LONGEST)
    assert dict(description.prompts) == dict(model.prompts)
    session = GraphSession(build_graph(description), normalizes=description.normalizes_output)
    tokenizer = Tokenizer.load(description)
    for prompt in {"": "", **model.prompts}.values():
        expected = np.asarray(model_of_library.encode(TEXTS, prompt=prompt, batch_size=1), np.float32)
        sequences = tokenizer.encode(TEXTS, prompt=prompt)
        assert max(map(len, sequences)) == LONGEST
        plans = ("random",) if prompt else PLANS
        assert_same_rows(session.run, sequences, expected, seed=SEED, plans=plans)


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("BAAI/bge-small-en-v1.5", "sentence-transformers"),
        ("nomic-ai/nomic-embed-text-v2-moe", "vecmill's own fp32 ONNX engine"),
        ("jinaai/jina-embeddings-v2-base-en", "vecmill's own fp32 ONNX engine"),
        ("jinaai/jina-embeddings-v2-base-code", "vecmill's own fp32 ONNX engine"),
    ],
)
def test_a_check_asks_no_library_that_would_load_another_model(
    tmp_path: Path, name: str, library: str
) -> None:
    folder = save_published(tmp_path / "model", EMBEDDERS[name], seed=SEED)
    respell(folder, EMBEDDERS[name])
    found = reference.load_reference(describe_model(locate_model(folder)), tmp_path / "prepared")
    assert found.name.startswith(library)


@pytest.mark.parametrize("name", RERANKERS)
def test_published_rerankers_give_the_scores_of_the_reference(tmp_path: Path, name: str) -> None:
    model = RERANKERS[name]
    folder = save_published(tmp_path / "model", model, seed=SEED)
    query, documents = TEXTS[0], TEXTS[1:]
    if "auto_map" not in model.spelling:  # else the reference cannot read it
        respell(folder, model)
    encoder = load_reference(folder, "CrossEncoder")
    expected = encoder.predict([(query, document) for document in documents], batch_size=1)
    respell(folder, model)
    assert describe_model(locate_model(folder)).task is Task.RERANK
    with SyncMill(folder, MillConfig(cache_dir=tmp_path / "prepared")) as mill:
        found = mill.rerank(query, documents).scores
    np.testing.assert_allclose(found, expected, atol=TOLERANCE * max(1, np.abs(expected).max()))
    assert np.ptp(expected) > 0.01


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_cannot_be_served_are_refused_by_their_reason(tmp_path: Path, name: str) -> None:
    model = REFUSED[name]
    folder = save_published(tmp_path / "model", model, seed=SEED)
    respell(folder, model)
    with pytest.raises(UnsupportedModel, match=model.error or ""):
        describe_model(locate_model(folder))


@pytest.mark.parametrize("name", ["static-retrieval-mrl-en-v1", "potion-base-8M"])
def test_published_tables_give_the_rows_of_the_reference(tmp_path: Path, name: str) -> None:
    model = Published("BertModel", "BertTokenizer", ())
    folder = save_published(tmp_path / "model", model, seed=SEED)
    for file in ("config.json", "sentence_bert_config.json", "tokenizer_config.json"):
        (folder / file).unlink()
    vocabulary = len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"])
    rows = np.random.default_rng(SEED).standard_normal((vocabulary, WIDTH)).astype(np.float32)
    is_potion = name.startswith("potion")
    place = "." if is_potion else "0_StaticEmbedding"
    entries = [{"idx": 0, "name": "0", "path": place, "type": "sentence_transformers.models.StaticEmbedding"}]
    tensor = "embeddings" if is_potion else "embedding.weight"
    (folder / place).mkdir(exist_ok=True)
    safetensors.numpy.save_file({tensor: rows}, folder / place / "model.safetensors")
    if is_potion:
        entries.append(
            {"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"}
        )
        edit_json(folder / "config.json", model_type="model2vec", normalize=True, apply_pca=256)
    else:
        (folder / "tokenizer.json").rename(folder / place / "tokenizer.json")
        (folder / "model.safetensors").unlink()
    (folder / "modules.json").write_text(json.dumps(entries))
    expected = load_reference(folder).float().encode(TEXTS)
    with SyncMill(folder, MillConfig(cache_dir=tmp_path / "prepared")) as mill:
        np.testing.assert_allclose(mill.embed(TEXTS), expected, atol=TOLERANCE)
