"""What a model directory says: where it is, what it computes, its limits and its fingerprint."""

from vecmill.models.description import ModelDescription, Task
from vecmill.models.fingerprint import fingerprint_model
from vecmill.models.layouts import describe_model
from vecmill.models.location import EMBEDDED_MODEL, ModelLocation, locate_model
from vecmill.models.stages import Normalize, Pooling, PoolingMode

__all__ = [
    "EMBEDDED_MODEL",
    "ModelDescription",
    "ModelLocation",
    "Normalize",
    "Pooling",
    "PoolingMode",
    "Task",
    "describe_model",
    "fingerprint_model",
    "locate_model",
]
