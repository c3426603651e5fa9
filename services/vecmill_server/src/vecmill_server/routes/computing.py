"""Every route that computes: which dialects are spoken at which paths.

The versions that clients put before a path are part of it here; doubled ones (`/v1/v1`) are
`middleware.paths`'s business.
"""

from functools import partial

from starlette.routing import Route

from vecmill_server.catalog import Catalog
from vecmill_server.dialects import Dialect, Document, cohere, hugging_face, ollama, openai, tei, vllm
from vecmill_server.dialects.predict import PREDICT
from vecmill_server.dialects.rerank import RERANK, choose_rerank
from vecmill_server.documents import read_string
from vecmill_server.routes.work import Choose, Endpoint
from vecmill_server.service import Service


def computing_routes(service: Service) -> list[Route]:
    """In the order of how often they are asked for: the router tries one after the other."""
    choose_untold = partial(_choose_by_model, service.catalog)
    table: list[tuple[str, tuple[str, ...], Dialect, Choose | None]] = [
        ("embeddings", ("/v1/embeddings", "/embeddings", "/v1/embedding"), openai.EMBEDDINGS, None),
        ("rerank", ("/rerank", "/v1/rerank", "/v2/rerank"), RERANK, choose_rerank),
        ("embed", ("/embed",), tei.TEI_EMBED, None),
        ("embed", ("/v1/embed",), cohere.EMBED_V1, None),
        ("embed", ("/v2/embed",), cohere.EMBED_V2, None),
        ("score", ("/score", "/v1/score"), vllm.SCORE, None),
        ("classify", ("/classify", "/v1/classify"), vllm.CLASSIFY, None),
        ("predict", ("/predict",), PREDICT, None),
        ("similarity", ("/similarity",), tei.TEI_SIMILARITY, None),
        ("embed_sparse", ("/embed_sparse",), tei.TEI_SPARSE, None),
        ("embed_all", ("/embed_all",), tei.TEI_EMBED_ALL, None),
        ("pooling", ("/pooling", "/v1/pooling"), vllm.POOLING, None),
        ("tokenize", ("/tokenize", "/v1/tokenize"), vllm.TOKENIZE, _choose_tokenize),
        ("detokenize", ("/detokenize",), vllm.DETOKENIZE, None),
        ("detokenize", ("/v1/detokenize",), cohere.DETOKENIZE, None),
        ("decode", ("/decode",), tei.TEI_DECODE, None),
        ("embed", ("/api/embed",), ollama.EMBED, None),
        ("embeddings", ("/api/embeddings",), ollama.EMBEDDINGS, None),
        (
            "embeddings",
            ("/openai/deployments/{model:path}/embeddings", "/openai/v1/embeddings"),
            openai.EMBEDDINGS,
            None,
        ),
        ("any", ("/", "/invocations"), tei.TEI_EMBED, choose_untold),
        ("vertex", ("/vertex",), hugging_face.vertex_dialect(service.catalog.task_of), None),
    ]
    return [
        Route(path, Endpoint(service, usual, choose), methods=["POST"], name=name)
        for name, paths, usual, choose in table
        for path in paths
    ]


def _choose_tokenize(document: Document) -> Dialect:
    if "inputs" in document:
        return tei.TEI_TOKENIZE
    return cohere.TOKENIZE if "text" in document else vllm.TOKENIZE


def _choose_by_model(catalog: Catalog, document: Document) -> Dialect:
    return hugging_face.choose_by_task(document, catalog.task_of(read_string(document, "model")))
