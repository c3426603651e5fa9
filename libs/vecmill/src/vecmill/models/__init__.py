"""Model directories: where a model is, what it computes, its limits and its fingerprint."""

from vecmill.models.description import ModelDescription
from vecmill.models.fingerprint import fingerprint_model, prepared_name
from vecmill.models.location import EMBEDDED_MODEL, ModelLocation, locate_model
from vecmill.models.stages import Normalize, Pooling, PoolingMode
from vecmill.values.task import Task

__all__ = [
    "EMBEDDED_MODEL",
    "ModelDescription",
    "ModelLocation",
    "Normalize",
    "Pooling",
    "PoolingMode",
    "Task",
    "fingerprint_model",
    "locate_model",
    "prepared_name",
]
