"""Serving with Ray Serve: one deployment for each model, and one HTTP address for all models.

How it works. `build` reads the configuration file of `vecmill serve`, and returns a Serve application:

    one model        client -> HAProxy -> replica of the model
    several models   client -> HAProxy -> router -> replica of the model that the request names

Each replica runs the ASGI application of the server with one model, so the queue, the limits and the error
responses are those of `vecmill serve`. The router is the same application without models: it reads the body
within the same limits, resolves the name of the model, and hands the request to the deployment of the model.

Rules:
1. Serve queues and refuses nothing. `max_ongoing_requests` is out of reach, so an overloaded replica answers
   429 itself, with a body and `Retry-After`.
2. Serve ends no request. The time limits are those of the server.
3. No file or batch is kept, because other replicas would not know it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.serve import Application


def build(args: dict[str, Any]) -> "Application":
    """Return the Serve application of a configuration file, for `serve run`, `serve deploy` and RayService.

    `args["config"]` is the path of the file. The other keys are the fields of `RaySettings`. Raises
    `InvalidConfig` if a key, a value or the file is invalid.
    """
    # Imported here, so that modules that need no Ray can be imported without Ray.
    from vecmill_ray.serving.application import build_application

    return build_application(args)
