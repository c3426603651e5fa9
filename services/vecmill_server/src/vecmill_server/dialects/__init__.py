"""The dialects of the clients, one module for each API, and the fields that several APIs share.

How it works. A module declares the bodies of its API: each body (`dialect.InferenceBody`) is a class whose
attributes are fields (`fields.Field`), which read the JSON object and describe it in the OpenAPI document.
Its method `read` returns the request for the model and a function that writes the result. `dialect_routes`
lists the routes of all modules. `dialect.Marks` are the keys that tell the bodies of several APIs apart whose
clients send them to the same path.

    HTTP body ──json_io──> JSON object ──body.read()──> self.asked(request, write, field_names)
                                                              │ mill.run(request)
    HTTP body <──json_io── JSON value <──write(result, envelope)

    openai           OpenAI and Azure, and the embeddings of Jina, Voyage, Mistral, Infinity and vLLM
    cohere           Cohere, and the rerank of Jina, vLLM and Infinity
    other_rerankers  the rerank of Voyage, Weaviate, Mixedbread, NVIDIA, DeepInfra and Pinecone
    vllm             vLLM and Infinity        tei, predict  Text Embeddings Inference
    ollama           Ollama                   llama_cpp     the server of llama.cpp
    hugging_face     Hugging Face's and SageMaker's endpoints, Vertex AI

A dialect does not handle sockets, headers or batches.
"""
