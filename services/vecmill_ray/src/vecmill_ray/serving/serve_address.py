"""The address on which Serve listens, and the check that it suits the cluster."""

from vecmill.errors import InvalidConfig

ALL_INTERFACES = "0.0.0.0"
_ALL = (ALL_INTERFACES, "::")


def check_host(host: str, nodes: int) -> None:
    """Check that the HAProxy of each node reaches the replicas of all nodes.

    Each replica listens on the address `host` of its own node. Raises `InvalidConfig` if the cluster has
    several nodes and `host` is not the address of all interfaces.
    """
    if nodes > 1 and host not in _ALL:
        raise InvalidConfig(
            f"The Ray cluster has {nodes} nodes, but on {host} a node does not reach the replicas of other "
            f'nodes. Write host = "{ALL_INTERFACES}" under [server] in the configuration file.'
        )


def format_url(host: str, port: int, prefix: str) -> str:
    """Return the URL of a server that listens on this address."""
    return f"http://[{host}]:{port}{prefix}" if ":" in host else f"http://{host}:{port}{prefix}"
