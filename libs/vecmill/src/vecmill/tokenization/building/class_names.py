"""Finds the transformers tokenizer class of a model, and lists the classes that are not supported.

tokenizer_config.json or config.json names the class; if neither does, the architecture determines it. For
some architectures transformers ignores the name. Models of an unsupported class with its own rules are
refused, because transformers would not use their tokenizer.json alone.

Source: transformers 5.23, `models/auto/tokenization_auto.py` and `tokenization_*.py` of each model.
"""

from collections.abc import Mapping
from typing import Any

from vecmill.models.config_fields import read_text
from vecmill.models.published_code import list_code
from vecmill.models.tokenizer_file import TOKENIZER_CONFIG

# Alias in transformers -> class.
_ALIASES: Mapping[str, str] = {
    "BartTokenizer": "RobertaTokenizer",
    "LEDTokenizer": "RobertaTokenizer",
    "LayoutLMTokenizer": "BertTokenizer",
    "LongformerTokenizer": "RobertaTokenizer",
    "LxmertTokenizer": "BertTokenizer",
    "MobileBertTokenizer": "BertTokenizer",
    "MvpTokenizer": "RobertaTokenizer",
    "SqueezeBertTokenizer": "BertTokenizer",
}

# Unsupported classes with their own rules, some of which read a tokenizer.json: {name}Tokenizer.
_WRITTEN = """
Barthez BigBird Blenderbot CodeGen CodeLlama Cohere DPRContextEncoder DPRQuestionEncoder DPRReader
Esmc FNet Funnel Lasr LayoutLMv2 LayoutLMv3 LayoutXLM Luke MarkupLM MLuke Nougat OpenAIGPT Pegasus Phi3
Qwen3_5 Reformer RoFormer SeamlessM4T Siglip2 Splinter Tipsv2 Udop VideoPrism Whisper XGLM
"""
# Those that transformers runs in Python, and never writes as a tokenizer.json.
_IN_PYTHON = """
Bartpho BertGeneration BertJapanese Bertweet BioGpt BlenderbotSmall ByT5 CTRL Canine Clvp CpmAnt Cpm Dia
Esm FSMT FastSpeech2Conformer Flaubert GPTNeoXJapanese GPTSw3 M2M100 Marian Mgpstr MyT5 PLBart Perceiver
Phobert Pop2Piano ProphetNet Rag RoCBert Siglip Speech2Text SpeechT5 Tapas Vits Wav2Vec2CTC
Wav2Vec2PhonemeCTC XLM
"""
SIGLIP_CLASS = "SiglipTokenizer"
CLASSES_IN_PYTHON = frozenset(f"{name}Tokenizer" for name in _IN_PYTHON.split())
UNKNOWN_CLASSES = CLASSES_IN_PYTHON | frozenset(f"{name}Tokenizer" for name in _WRITTEN.split())

# The default class of each text architecture.
_ARCHITECTURES: Mapping[str, str] = {
    "AlbertTokenizer": "albert yoso",
    "BarthezTokenizer": "barthez",
    "BertJapaneseTokenizer": "bert-japanese",
    "BertTokenizer": "bert convbert distilbert electra ernie layoutlm lxmert megatron-bert mobilebert "
    "nezha nomic_bert qdqbert realm retribert squeezebert visual_bert",
    "BertweetTokenizer": "bertweet",
    "BigBirdTokenizer": "big_bird",
    "BioGptTokenizer": "biogpt",
    "BlenderbotSmallTokenizer": "blenderbot-small",
    "BlenderbotTokenizer": "blenderbot",
    "ByT5Tokenizer": "byt5",
    "CLIPTokenizer": "clip",
    "CTRLTokenizer": "ctrl",
    "CamembertTokenizer": "camembert",
    "CanineTokenizer": "canine",
    "CodeLlamaTokenizer": "code_llama",
    "CohereTokenizer": "cohere cohere2",
    "DPRQuestionEncoderTokenizer": "dpr",
    "DebertaTokenizer": "deberta",
    "DebertaV2Tokenizer": "deberta-v2",
    "EsmTokenizer": "esm",
    "FNetTokenizer": "fnet",
    "FlaubertTokenizer": "flaubert",
    "FunnelTokenizer": "funnel",
    "GPT2Tokenizer": "codegen dbrx gpt2 gpt_neo gptj jais2 opt phi starcoder2",
    "GPTNeoXTokenizer": "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmoe rwkv xlstm",
    "GemmaTokenizer": "gemma gemma2 gemma3 gemma3_text recurrent_gemma t5gemma",
    "HerbertTokenizer": "herbert",
    "LayoutLMv2Tokenizer": "layoutlmv2",
    "LayoutLMv3Tokenizer": "layoutlmv3",
    "LukeTokenizer": "luke",
    "M2M100Tokenizer": "m2m_100",
    "MBart50Tokenizer": "mbart50",
    "MBartTokenizer": "mbart",
    "MLukeTokenizer": "mluke",
    "MPNetTokenizer": "mpnet",
    "MarianTokenizer": "marian",
    "NllbTokenizer": "nllb nllb-moe",
    "OpenAIGPTTokenizer": "openai-gpt",
    "PLBartTokenizer": "plbart",
    "PegasusTokenizer": "pegasus",
    "PerceiverTokenizer": "perceiver",
    "PhobertTokenizer": "phobert",
    "ProphetNetTokenizer": "prophetnet",
    "Qwen2Tokenizer": "qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next",
    "Qwen3_5Tokenizer": "qwen3_5_text",
    "ReformerTokenizer": "reformer",
    "RemBertTokenizer": "rembert",
    "RoCBertTokenizer": "roc_bert",
    "RoFormerTokenizer": "roformer",
    "RobertaTokenizer": "bart data2vec-text ibert led lilt longformer mega mra mvp roberta "
    "roberta-prelayernorm",
    "SplinterTokenizer": "splinter",
    "T5Tokenizer": "mt5 switch_transformers t5",
    "XGLMTokenizer": "xglm",
    "XLMRobertaTokenizer": "gte jina_embeddings_v3 xlm-roberta xmod",
    "XLMTokenizer": "xlm",
    "XLNetTokenizer": "xlnet",
}
_DEFAULT_CLASSES: Mapping[str, str] = {
    model_type: name for name, model_types in _ARCHITECTURES.items() for model_type in model_types.split()
}

# Architectures whose files often name a wrong class: transformers uses tokenizer.json alone, or a fixed
# class.
_WITHOUT_CLASS = """
arctic bigbird_pegasus ernie4_5 ernie4_5_moe flex_olmo glm glm4 glm4_moe gpt_bigcode granite granitemoe
granitemoehybrid granitemoeshared internlm2 internlm3 jamba minicpm3 minimax_m2 ministral ministral3
mistral mixtral modernbert modernbert-decoder nemotron nystromformer olmo2 olmo3 olmo_hybrid pegasus_x
persimmon phi3 phimoe stablelm umt5 xlm-roberta-xl
"""
_FIXED_CLASSES: Mapping[str, str] = {
    **dict.fromkeys(_WITHOUT_CLASS.split(), ""),
    "qwen2": "Qwen2Tokenizer",
}


# The tokenizer that gte-Qwen2 and stella_en_1.5B_v5 came with: Qwen2's, and an end-of-text token after each
# text with `add_eos_token`. Source: its handling in vLLM, `tokenizers/hf.py`.
QWEN2_CODE = frozenset({"tokenization_qwen.Qwen2Tokenizer", "tokenization_qwen.Qwen2TokenizerFast"})
# The tokenizer of Qwen (version 1), which reads qwen.tiktoken. Source: its code, as published.
QWEN_CLASS = "QWenTokenizer"
_QWEN_CODE = frozenset({f"tokenization_qwen.{QWEN_CLASS}"})


def replaces_tokenizer_code(tokenizer_config: Mapping[str, Any]) -> bool:
    """Return whether the rules of this package replace the code that `auto_map` names."""
    named = list_code(tokenizer_config)
    return bool(named) and any(code.issuperset(named) for code in (QWEN2_CODE, _QWEN_CODE))


def ends_texts(tokenizer_config: Mapping[str, Any]) -> bool:
    """Return whether the code that `auto_map` names adds an end-of-text token with `add_eos_token`."""
    named = list_code(tokenizer_config)
    return bool(named) and QWEN2_CODE.issuperset(named)


def find_class(tokenizer_config: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the class name without the suffix "Fast", or "" if tokenizer.json alone is used.

    Raises `CorruptModel` if the name is not a string.
    """
    model_type = str(config.get("model_type"))
    if model_type in _FIXED_CLASSES:
        return _FIXED_CLASSES[model_type]
    named = read_text(tokenizer_config, "tokenizer_class", file=TOKENIZER_CONFIG)
    named = named or read_text(config, "tokenizer_class")
    if not named:
        return _DEFAULT_CLASSES.get(model_type, "")
    name = named.removesuffix("Fast")
    return _ALIASES.get(name, name)
