"""The OpenAPI 3.0 document at `/openapi.json`, assembled from the descriptions in `dialects` and `routes`.

A schema accepts the same values as the code that reads the field, and no others. Fields whose accepted values
depend on the model are marked `x-depends-on-model`.
"""
