"""Which of transformers' tokenizer classes a model has, and which of them we know.

A class is named in tokenizer_config.json or config.json, or else it is that of the model's family. Some
families never take the one that is named. Where a class with rules of its own is not one of ours,
tokenizer.json would be read as transformers does not read it, so such a model is refused.

Source: transformers 5.23, `models/auto/tokenization_auto.py` and `tokenization_*.py` of each model.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

# Names under which transformers has a class a second time.
_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "BartTokenizer": "RobertaTokenizer",
        "LEDTokenizer": "RobertaTokenizer",
        "LayoutLMTokenizer": "BertTokenizer",
        "LongformerTokenizer": "RobertaTokenizer",
        "LxmertTokenizer": "BertTokenizer",
        "MobileBertTokenizer": "BertTokenizer",
        "MvpTokenizer": "RobertaTokenizer",
        "SqueezeBertTokenizer": "BertTokenizer",
    }
)

# Classes with rules of their own that are not ours, though they may read a tokenizer.json: {name}Tokenizer.
_UNKNOWN = """
Barthez Bartpho BertGeneration BertJapanese Bertweet BigBird BioGpt Blenderbot BlenderbotSmall ByT5 Canine
CLIP Clvp CodeGen CodeLlama Cohere Cpm CpmAnt CTRL Deberta Dia DPRContextEncoder DPRQuestionEncoder
DPRReader Esm Esmc FastSpeech2Conformer Flaubert FNet FSMT Funnel GPTNeoX GPTNeoXJapanese GPTSw3 Herbert
Lasr LayoutLMv2 LayoutLMv3 LayoutXLM Llama Luke M2M100 Marian MarkupLM MBart MBart50 Mgpstr MLuke MyT5
Nllb Nougat OpenAIGPT Pegasus Perceiver Phi3 Phobert PLBart Pop2Piano ProphetNet Qwen3_5 Rag Reformer RemBert
RoCBert RoFormer SeamlessM4T Siglip Siglip2 Speech2Text SpeechT5 Splinter Tapas Tipsv2 Udop VideoPrism
Vits Wav2Vec2CTC Wav2Vec2PhonemeCTC Whisper XGLM XLM XLNet
"""
UNKNOWN_CLASSES = frozenset(f"{name}Tokenizer" for name in _UNKNOWN.split())

# The class of a model that does not name one, by families of text.
_FAMILIES: Mapping[str, str] = MappingProxyType(
    {
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
)
_CLASS_OF_FAMILY: Mapping[str, str] = MappingProxyType(
    {family: name for name, families in _FAMILIES.items() for family in families.split()}
)

# Families whose files often name a wrong class: transformers takes tokenizer.json alone, or its own class.
_WITHOUT_CLASS = """
arctic bigbird_pegasus ernie4_5 ernie4_5_moe flex_olmo glm glm4 glm4_moe gpt_bigcode granite granitemoe
granitemoehybrid granitemoeshared internlm2 internlm3 jamba minicpm3 minimax_m2 ministral ministral3
mistral mixtral modernbert modernbert-decoder nemotron nystromformer olmo2 olmo3 olmo_hybrid pegasus_x
persimmon phi3 phimoe stablelm umt5 xlm-roberta-xl
"""
_NEVER_NAMED: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(_WITHOUT_CLASS.split(), ""),
        "qwen2": "Qwen2Tokenizer",
    }
)


def find_class(tokenizer_config: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The name of the class, without "Fast" at its end; empty if tokenizer.json alone counts."""
    family = str(config.get("model_type"))
    if family in _NEVER_NAMED:
        return _NEVER_NAMED[family]
    named = tokenizer_config.get("tokenizer_class") or config.get("tokenizer_class")
    if named is None:
        return _CLASS_OF_FAMILY.get(family, "")
    name = str(named).removesuffix("Fast")
    return _ALIASES.get(name, name)
