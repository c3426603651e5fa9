"""The dialects of the clients, one module for each API, and the parts that several APIs share.

How it works. A module declares the bodies of its API: each body (`dialect.InferenceBody`) is a class whose
attributes are fields (`fields.Field`), which read the JSON object and describe it in the OpenAPI document.
Its method `read` returns the request for the model and a function that writes the result. `dialect_routes`
lists the routes of all dialects, which do not import each other: what several need is in modules without
routes. `dialect.Marks` are the keys that tell the bodies of several APIs apart whose clients send them to the
same path.

    HTTP body ──json_io──> JSON object ──body.read()──> self.asked(request, write, field_names)
                                                              │ mill.run(request)
    HTTP body <──json_io── JSON value <──write(result, envelope)

    The dialects
    openai            OpenAI and Azure         cohere         Cohere
    vllm              vLLM and Infinity        tei            Text Embeddings Inference
    ollama            Ollama                   llama_cpp      the server of llama.cpp
    nvidia            NVIDIA's rerank          flag_embedding FlagEmbedding
    pinecone          Pinecone               deepinfra      DeepInfra
    alibaba           Alibaba's Model Studio   voyage  Voyage's multimodal embeddings
    weaviate          Weaviate's multi2vec-clip
    other_rerankers   the rerank of Voyage, Weaviate, Mixedbread and Fireworks
    hugging_face      Hugging Face's and SageMaker's endpoints, Vertex AI

    The bodies that several have
    embeddings_body   `/embeddings` of OpenAI, Azure, Jina, Voyage, Mistral, Infinity and vLLM
    rerank_body       `/rerank` of Cohere, Jina, vLLM and Infinity, and what all bodies of a rerank share
    score_and_classify_bodies, tei_bodies, predict_body
                      those of vLLM, Infinity and Text Embeddings Inference that hugging_face has too
    label_bodies      zero-shot classification, of Hugging Face's client and at `/classify`

A dialect does not handle sockets, headers or batches.
"""
