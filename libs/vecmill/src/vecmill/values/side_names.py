"""The names of the sides of a model, each of which has an encoder and a queue of its own."""

from enum import StrEnum


class SideName(StrEnum):
    """A side of a model. Most models have one, that of documents, to which all texts belong.

    Asymmetric models have another one for queries, and models that read pictures have one for these.
    """

    DOCUMENTS = "documents"
    QUERIES = "queries"
    PICTURES = "pictures"
