"""Error messages for downloads from a hub that fail, with their cause and the remedy."""

import errno
import socket
import ssl
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from vecmill.models.downloads import DiskFull

_SHOWN_CHARACTERS = 500
_NOT_WRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NO_WAY = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH})


def explain_lookup(repository: str, revision: str | None, error: Exception) -> str:
    """Return the message for a hub that cannot be asked about a model which the cache does not have."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    match error:
        case GatedRepoError():
            return _explain_terms(repository)
        case RepositoryNotFoundError():
            return (
                f"The hub has no model {repository}, or it is private and HF_TOKEN is not set to a token "
                "that may read it."
            )
        case RevisionNotFoundError():
            return f"The hub's {repository} has no revision {revision!r}."
        case HFValidationError():
            return f"{repository!r} is not a model name: {error}"
    return (
        f"{repository} is not in the cache in full, and the hub cannot be asked for it: {find_cause(error)}"
    )


def explain_download(repository: str, error: Exception) -> str:
    """Return the message for a download that began and failed."""
    from huggingface_hub.errors import GatedRepoError

    if isinstance(error, GatedRepoError):  # the hub shows the names of files to everybody
        return _explain_terms(repository)
    failed = f"{repository} could not be downloaded: {find_cause(error)}"
    if isinstance(error, OSError) and error.errno in _NOT_WRITABLE:
        return failed
    remedy = "Partial" if isinstance(error, DiskFull) else "Try again: partial"
    return f"{failed} {remedy} downloads are kept."


def _explain_terms(repository: str) -> str:
    return (
        f"The hub gives {repository} only to those who accepted its terms. Accept them on its page, and set "
        "HF_TOKEN to a token of yours."
    )


def find_cause(error: BaseException) -> str:
    """Return the cause of `error` and the remedy as the rest of a sentence, with its full stop."""
    for cause in _causes(error):
        found = _explain(cause, _peer(error))
        if found is not None:
            return found
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{text[:_SHOWN_CHARACTERS].rstrip('.')}."


def _explain(cause: BaseException, peer: str) -> str | None:
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    match cause:
        case OfflineModeIsEnabled():
            return "HF_HUB_OFFLINE is set. Unset it, or copy the model into the cache of HF_HOME."
        case ssl.SSLCertVerificationError():
            return (
                f"the certificate of {peer} is not trusted ({cause.verify_message}). If your network has its "
                "own certificate authority, name the authority's file in SSL_CERT_FILE."
            )
        case httpx2.ProxyError():
            return f"{peer} refuses to connect ({cause}). Check HTTPS_PROXY and NO_PROXY."
        case socket.gaierror():
            return (
                f"the name of {peer} cannot be resolved ({cause.strerror}). Check the network, HF_ENDPOINT "
                "and HTTPS_PROXY."
            )
        case ConnectionRefusedError():
            return f"{peer} refuses connections. Check HF_ENDPOINT and HTTPS_PROXY."
        case httpx2.TimeoutException():
            return (
                f"{peer} does not answer in time. Check the network, or set HTTPS_PROXY if it needs a proxy."
            )
        case HfHubHTTPError():
            return _explain_status(cause.response.status_code, peer)
        case OSError() if cause.errno in _NO_WAY:
            return f"{peer} cannot be reached ({cause.strerror}). Check the network."
        case OSError() if cause.errno in _NOT_WRITABLE and cause.filename:
            return (
                f"{cause.filename} cannot be written ({cause.strerror}). Choose a folder that can be written "
                "with HF_HOME."
            )
    return None


_STATUS_REMEDIES: Mapping[int, str] = {
    HTTPStatus.UNAUTHORIZED: "(unauthorised). Set HF_TOKEN to a valid token.",
    HTTPStatus.FORBIDDEN: "(forbidden). Set HF_TOKEN to a token that may read the model.",
    HTTPStatus.NOT_FOUND: "(not found). Check the model's name, and HF_ENDPOINT.",
    HTTPStatus.PROXY_AUTHENTICATION_REQUIRED: "(the proxy asks for a password). Put the user and the "
    "password in HTTPS_PROXY.",
    HTTPStatus.TOO_MANY_REQUESTS: "(too many requests). Wait, or set HF_TOKEN to a token of yours.",
}


def _explain_status(status: int, peer: str) -> str:
    remedy = _STATUS_REMEDIES.get(status)
    return f"{peer} answers {status}" + (f" {remedy}" if remedy else ", which is a fault of the hub.")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the causes of `error`, the first cause first, and then `error`."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return reversed(chain)


def _peer(error: BaseException) -> str:
    """Return the host of the request that failed, or the proxy that the request went to."""
    for cause in _causes(error):
        try:
            url = str(cause.request.url)  # type: ignore[attr-defined]
        except (AttributeError, RuntimeError):  # an error of the client that has no request
            continue
        parts = urlsplit(url)
        host = parts.hostname or "the hub"
        proxies = getproxies()
        proxy = proxies.get(parts.scheme) or proxies.get("all")
        if proxy and not proxy_bypass(host):
            return f"the proxy {_address(proxy)}"
        return host
    return "the hub"


def _address(url: str) -> str:
    """Return the host and the port of a URL, without its user and password."""
    parts = urlsplit(url if "://" in url else f"//{url}")
    return parts.netloc.rpartition("@")[2]
