"""The description of the API that `/openapi.json` gives, in OpenAPI 3.0, which the page at `/docs` renders.

One module for each family of routes, named as the one that reads and writes it (`dialects`, `routes`).
`document` puts the families together; `vocabulary` and `operations` are what they are written in, `fields`
what several of them share. A schema takes what the readers take, their leniency included, and refuses what
they refuse. Where that depends on the model, the field is marked `x-depends-on-model`.
"""
