"""The routes that read pictures, and zero-shot classification, at a server whose models read texts alone."""

# A request is a line.
# ruff: noqa: E501
# fmt: off

from recorded.cases import family, post

PICTURE = "data:image/png;base64,AAAA"
TEXT = {"type": "text", "text": "hello"}
IMAGE = {"type": "image_url", "image_url": {"url": PICTURE}}
LABELS = ["cat", "dog"]

CASES = family(
    "pictures",
    *(post(f"picture at {path}", path, {"input": [PICTURE]}) for path in ("/embeddings_image", "/v1/embeddings_image", "/images/embeddings", "/models/images/embeddings")),
    post("picture with a text", "/images/embeddings", {"input": [{"image": PICTURE, "text": "hello"}]}),
    *(post(f"texts at {path}", path, {"inputs": [{"content": [TEXT]}, {"content": [TEXT, TEXT]}], "encoding_format": None}) for path in ("/v1/multimodalembeddings", "/multimodalembeddings", "/voyage/v1/multimodalembeddings")),
    post("voyage base64", "/v1/multimodalembeddings", {"inputs": [{"content": [TEXT]}], "output_encoding": "base64"}, base64="<f4"),
    post("voyage picture", "/v1/multimodalembeddings", {"inputs": [{"content": [IMAGE]}]}),
    post("voyage picture with a text", "/v1/multimodalembeddings", {"inputs": [{"content": [TEXT, IMAGE]}]}),
    post("voyage missing", "/v1/multimodalembeddings", {}),
    post("vectorize texts", "/vectorize", {"texts": ["hello", "world"], "images": []}),
    post("vectorize pictures", "/vectorize", {"texts": None, "images": ["AAAA"]}),
    post("vectorize nothing", "/vectorize", {"texts": [], "images": None}),
    post("messages", "/v1/embeddings", {"messages": [{"role": "user", "content": [IMAGE]}]}),
    post("messages beside input", "/v1/embeddings", {"input": "hello", "messages": [{"role": "user", "content": "hello"}]}),
    post("prompt of llama.cpp", "/embedding", {"content": {"prompt_string": "hello", "multimodal_data": []}}),
    post("prompt of llama.cpp with a picture", "/embedding", {"content": [{"prompt_string": "<__media__>", "multimodal_data": ["AAAA"]}]}),
    post("labels", "/classify", {"input": ["hello", "world"], "candidate_labels": LABELS, "model": "model/embed"}),
    post("labels raw", "/classify", {"input": "hello", "candidate_labels": LABELS, "raw_scores": True}),
    post("labels of jina", "/v1/classify", {"input": [{"text": "hello"}], "labels": LABELS}),
    post("labels of a picture", "/classify", {"input": [{"image": PICTURE}], "candidate_labels": LABELS}),
    post("labels of a classifier", "/classify", {"input": "hello", "candidate_labels": LABELS, "model": "model/classify"}),
    post("labels of hugging face", "/", {"inputs": "hello", "parameters": {"candidate_labels": LABELS, "hypothesis_template": "a {}"}}),
    post("labels of hugging face at /classify", "/classify", {"inputs": "hello", "parameters": {"candidate_labels": LABELS}}),
    post("labels missing", "/classify", {"inputs": "hello"}),
    post("images of ollama", "/api/embed", {"input": "hello", "images": ["AAAA"]}),
)
