"""What a configuration file cannot have on Ray, for those who serve it there or write its manifests."""

from vecmill.errors import InvalidConfig
from vecmill_server.base.settings import ServerSettings


def refuse_on_ray(settings: ServerSettings) -> None:
    """Raise `InvalidConfig` if a server keeps what the replicas of Ray do not share."""
    if settings.batch_dir is not None:
        raise InvalidConfig(
            "server.batch_dir does not work on Ray: a file that one replica keeps is unknown to the others. "
            "Remove the key."
        )
    if settings.has_embedding_cache:
        raise InvalidConfig(
            "server.result_cache_dir and server.result_cache_memory_bytes do not work on Ray: a "
            "replica does not know whose key a request has. Remove the keys."
        )
    if settings.memory_budget_mib is not None:
        raise InvalidConfig(
            "server.memory_budget_mib does not work on Ray: each replica holds one model, and Serve "
            "starts and stops replicas. Remove the key."
        )
