"""Tiny models of CLIP and SigLIP with seeded weights, and what transformers computes with them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import tokenizers

from support.references import answer, digest_directory
from vecmill.values.aliases import FloatArray

LETTERS = "abcdefghijklmnopqrstuvwxyz"
MERGES = ("a t</w>", "c at</w>", "d o", "do g</w>", "t h", "th e</w>")
START, END = "<|startoftext|>", "<|endoftext|>"
PICTURE = {"hidden_size": 48, "intermediate_size": 80, "image_size": 32, "patch_size": 8}
TEXT = {"hidden_size": 32, "intermediate_size": 64}
LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 4}
CLIP_LENGTH, SIGLIP_LENGTH = 24, 16
PROJECTION = 24

Tensors = dict[str, np.ndarray[Any, Any]]


def save_clip(folder: Path, *, seed: int = 0, end: int | None = None, **settings: Any) -> Path:
    """Save a model of CLIP as transformers does. `end` is `eos_token_id`, by default the right one."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = _save_byte_pairs(folder)
    ids = {"bos_token_id": vocabulary[START], "eos_token_id": vocabulary[END] if end is None else end}
    text = {**TEXT, **LAYERS, "vocab_size": len(vocabulary), "max_position_embeddings": CLIP_LENGTH, **ids}
    config: dict[str, Any] = {
        "architectures": ["CLIPModel"],
        "model_type": "clip",
        "projection_dim": PROJECTION,
        "text_config": {**text, "hidden_act": "quick_gelu"},
        "vision_config": {**PICTURE, **LAYERS, "hidden_act": "quick_gelu"},
        **settings,
    }
    tensors = _Tensors(seed)
    tensors.add_text_tower(config["text_config"])
    tensors.add_picture_tower(config["vision_config"], has_class=True)
    tensors.add("text_projection.weight", PROJECTION, config["text_config"]["hidden_size"])
    tensors.add("logit_scale")
    tensors.add("visual_projection.weight", PROJECTION, config["vision_config"]["hidden_size"])
    _save(folder, config, tensors.found)
    side = config["vision_config"]["image_size"]
    save_preprocessor(folder, "CLIPImageProcessor", size={"shortest_edge": side}, crop_size=side)
    return folder


def save_siglip(folder: Path, *, seed: int = 0, padding_side: str = "right") -> Path:
    """Save a model of SigLIP as transformers does, with a tokenizer that is used unchanged."""
    folder.mkdir(parents=True, exist_ok=True)
    words = _save_words(folder, padding_side)
    sizes = {"hidden_size": PICTURE["hidden_size"], "intermediate_size": PICTURE["intermediate_size"]}
    text = {**sizes, **LAYERS, "vocab_size": len(words), "max_position_embeddings": SIGLIP_LENGTH}
    config: dict[str, Any] = {
        "architectures": ["SiglipModel"],
        "model_type": "siglip",
        "text_config": text,
        "vision_config": {**PICTURE, **LAYERS},
    }
    tensors = _Tensors(seed)
    tensors.add_text_tower(text)
    tensors.add_linear("text_model.head", PICTURE["hidden_size"], PICTURE["hidden_size"])
    tensors.add_picture_tower(config["vision_config"], has_class=False)
    tensors.add_attention_head(PICTURE["hidden_size"], PICTURE["intermediate_size"])
    tensors.add("logit_bias", 1)
    tensors.add("logit_scale", 1)
    _save(folder, config, tensors.found)
    save_preprocessor(folder, "SiglipImageProcessor", size={"height": 32, "width": 32})
    return folder


def as_sentence_transformers(folder: Path, *kinds: str) -> Path:
    """Add the files of sentence-transformers to a model of transformers, with modules of these classes."""
    modules = [
        {"idx": index, "name": str(index), "path": f"{index}_{kind}" if index else "", "type": name}
        for index, kind in enumerate(kinds)
        for name in [f"sentence_transformers.models.{kind}"]
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def save_preprocessor(folder: Path, name: str, **settings: Any) -> None:
    """Save how pictures are prepared. The means and deviations are those of the class."""
    content = {"image_processor_type": name, "resample": 3, **settings}
    (folder / "preprocessor_config.json").write_text(json.dumps(content))


class _Tensors:
    """The seeded tensors of a model. Scales of norms are around 1, all else around 0."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.found: Tensors = {}

    def add(self, name: str, *shape: int, around: float = 0.0) -> None:
        numbers = np.asarray(self._random.uniform(-0.5, 0.5, shape))
        self.found[name] = np.asarray(around + numbers, np.float32)

    def add_linear(self, name: str, inputs: int, outputs: int) -> None:
        self.add(f"{name}.weight", outputs, inputs)
        self.add(f"{name}.bias", outputs)

    def add_norm(self, name: str, width: int) -> None:
        self.add(f"{name}.weight", width, around=1.0)
        self.add(f"{name}.bias", width)

    def add_layers(self, tower: str, config: Mapping[str, Any]) -> None:
        width, wide = config["hidden_size"], config["intermediate_size"]
        for index in range(config["num_hidden_layers"]):
            layer = f"{tower}.encoder.layers.{index}"
            for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                self.add_linear(f"{layer}.self_attn.{part}", width, width)
            for norm in ("layer_norm1", "layer_norm2"):
                self.add_norm(f"{layer}.{norm}", width)
            self.add_linear(f"{layer}.mlp.fc1", width, wide)
            self.add_linear(f"{layer}.mlp.fc2", wide, width)

    def add_text_tower(self, config: Mapping[str, Any]) -> None:
        width, tower = config["hidden_size"], "text_model"
        self.add(f"{tower}.embeddings.token_embedding.weight", config["vocab_size"], width)
        self.add(f"{tower}.embeddings.position_embedding.weight", config["max_position_embeddings"], width)
        self.add_layers(tower, config)
        self.add_norm(f"{tower}.final_layer_norm", width)

    def add_picture_tower(self, config: Mapping[str, Any], *, has_class: bool) -> None:
        width, tower, size = config["hidden_size"], "vision_model", config["patch_size"]
        tokens = (config["image_size"] // size) ** 2 + has_class
        self.add(f"{tower}.embeddings.patch_embedding.weight", width, 3, size, size)
        self.add(f"{tower}.embeddings.position_embedding.weight", tokens, width)
        if has_class:
            self.add(f"{tower}.embeddings.class_embedding", width)
            self.add_norm(f"{tower}.pre_layrnorm", width)
        else:
            self.add(f"{tower}.embeddings.patch_embedding.bias", width)
        self.add_layers(tower, config)
        self.add_norm(f"{tower}.post_layernorm", width)

    def add_attention_head(self, width: int, wide: int) -> None:
        head = "vision_model.head"
        self.add(f"{head}.probe", 1, 1, width)
        self.add(f"{head}.attention.in_proj_weight", 3 * width, width)
        self.add(f"{head}.attention.in_proj_bias", 3 * width)
        self.add_linear(f"{head}.attention.out_proj", width, width)
        self.add_norm(f"{head}.layernorm", width)
        self.add_linear(f"{head}.mlp.fc1", width, wide)
        self.add_linear(f"{head}.mlp.fc2", wide, width)


def _save(folder: Path, config: Mapping[str, Any], tensors: Tensors) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def _save_byte_pairs(folder: Path) -> dict[str, int]:
    """Save the vocabulary of a tokenizer of CLIP: the signs of all bytes, at the end of a word and before."""
    signs = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    pieces = [*signs, *(f"{sign}</w>" for sign in signs), *("".join(pair.split()) for pair in MERGES)]
    vocabulary = {piece: number for number, piece in enumerate((*pieces, START, END))}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("\n".join(("#version: 0.2", *MERGES, "")))
    settings = {"tokenizer_class": "CLIPTokenizer", "model_max_length": CLIP_LENGTH}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return vocabulary


def _save_words(folder: Path, padding_side: str) -> dict[str, int]:
    """Save a tokenizer of whole words, with an end after each text."""
    words = {word: number for number, word in enumerate(("<pad>", "</s>", "<unk>", "cat", "dog", "a", "the"))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        "$A </s>", special_tokens=[("</s>", words["</s>"])]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "model_max_length": SIGLIP_LENGTH,
        "padding_side": padding_side,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return words


def embed_by_library(folder: Path, texts: Sequence[str], pictures: Sequence[bytes]) -> FloatArray:
    """What transformers gives for each text alone, and for each file of a picture: (n, dim).

    Texts of SigLIP are padded to the longest, as the model's card says.
    """
    question = ["two towers", digest_directory(folder), list(texts), list(pictures)]
    found: FloatArray = answer(question, lambda: _ask_library(folder, texts, pictures))
    return found


def _ask_library(folder: Path, texts: Sequence[str], pictures: Sequence[bytes]) -> FloatArray:
    import io

    import torch
    import transformers
    from PIL import Image
    from transformers.image_utils import load_image

    is_clip = json.loads((folder / "config.json").read_text())["model_type"] == "clip"
    model_class = transformers.CLIPModel if is_clip else transformers.SiglipModel
    processor_class = transformers.CLIPImageProcessorPil if is_clip else transformers.SiglipImageProcessorPil
    model = model_class.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    processor = processor_class.from_pretrained(folder)
    rows = []
    with torch.inference_mode():
        for text in texts:
            padding = False if is_clip else "max_length"
            ids = tokenizer(text, truncation=True, padding=padding, return_tensors="pt")["input_ids"]
            rows.append(model.get_text_features(input_ids=ids).pooler_output[0].numpy())
        for data in pictures:
            image = load_image(Image.open(io.BytesIO(data)))
            pixels = processor(images=image, return_tensors="pt")
            rows.append(model.get_image_features(**pixels).pooler_output[0].numpy())
    return np.stack(rows)


def score_by_library(folder: Path, texts: Sequence[str], pictures: Sequence[bytes]) -> FloatArray:
    """What transformers' zero-shot pipeline gives each text for each picture: (pictures, texts)."""
    question = ["labels of pictures", digest_directory(folder), list(texts), list(pictures)]
    found: FloatArray = answer(question, lambda: _score_by_library(folder, texts, pictures))
    return found


def _score_by_library(folder: Path, texts: Sequence[str], pictures: Sequence[bytes]) -> FloatArray:
    import io

    import torch
    import transformers
    from PIL import Image

    is_clip = json.loads((folder / "config.json").read_text())["model_type"] == "clip"
    model_class = transformers.CLIPModel if is_clip else transformers.SiglipModel
    processor_class = transformers.CLIPImageProcessorPil if is_clip else transformers.SiglipImageProcessorPil
    model = model_class.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    processor = processor_class.from_pretrained(folder)
    if not is_clip:
        padding: dict[str, Any] = {"padding": "max_length", "truncation": True}
    else:
        # transformers pads with the token that ends a text, behind it, which a causal encoder never reads.
        tokenizer.pad_token = END
        padding = {"padding": True}
    ids = tokenizer(list(texts), return_tensors="pt", **padding)["input_ids"]
    images = [Image.open(io.BytesIO(data)).convert("RGB") for data in pictures]
    with torch.inference_mode():
        logits = model(input_ids=ids, **processor(images=images, return_tensors="pt")).logits_per_image
        scores = logits.softmax(dim=-1) if is_clip else logits.sigmoid()
    return np.asarray(scores.numpy())
