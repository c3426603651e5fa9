"""The page itself: its HTML with the addresses of this server, and its headers."""

from html import escape
from string import Template

from starlette.types import Scope

from vecmill_server.app.browser_page import BrowserPage, page_headers
from vecmill_server.app.console.page_assets import PageAssets
from vecmill_server.base.headers import HeaderList

# All comes from this server, nothing is written into the page as script or style, and no other page may
# show it in a frame. The charts set styles of elements from scripts, which needs no further permission.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ASSETS_PATH = "/console/assets"


class ConsolePage:
    """The page of a server. `plain` makes the command for browsers without scripts."""

    def __init__(self, plain: BrowserPage) -> None:
        self.assets = PageAssets.read()
        self._plain = plain

    def render(self, scope: Scope) -> tuple[HeaderList, bytes]:
        """Return the headers and the body of the page for a request."""
        settings = self._plain.service.settings
        body = (
            Template(self.assets.page)
            .substitute(
                assets=escape(f"{settings.url_prefix}{ASSETS_PATH}/{self.assets.version}"),
                prefix=escape(settings.url_prefix),
                needs_key="true" if settings.has_api_keys else "false",
                command=escape(self._plain.command(scope)),
            )
            .encode()
        )
        return page_headers(POLICY, body), body
