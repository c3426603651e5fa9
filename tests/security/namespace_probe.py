"""In a network namespace whose loopback has many addresses: which of them the fetcher of pictures reaches.

The program for `unshare -rn`. Prints JSON.
"""

import asyncio
import json
import socket
import subprocess
from contextlib import ExitStack
from typing import Any

from support.picture_host import respond, serve_pictures
from vecmill.errors import InvalidRequest
from vecmill.requests import PictureUrl
from vecmill_server.base.byte_budget import ByteBudget
from vecmill_server.base.picture_urls import PictureHosts, WebUrl
from vecmill_server.service.picture_fetcher import PictureFetcher

PUBLIC = ("93.184.216.34", "2606:2800:220:1::1")
INSIDE = (
    *("10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.9.9.9", "168.63.129.16", "169.254.1.1"),
    *("169.254.169.254", "172.16.5.5", "192.0.0.192", "192.168.1.1", "198.18.0.1", "203.0.113.5", "::1"),
    *("fc00::5", "fd00:ec2::254", "fec0::5", "2001:db8::5", "2002:7f00:1::5", "64:ff9b::a01:203"),
    "64:ff9b:1::5",
)


class EveryHost(PictureHosts):
    """All hosts are listed."""

    def require(self, url: WebUrl) -> WebUrl:
        """Return the URL."""
        return url


async def resolve(host: str, port: int) -> list[str]:
    """Return the address that a name spells, or a public one."""
    return [PUBLIC[0] if host == "public.example" else host]


async def probe() -> dict[str, Any]:
    """Ask for each address."""
    found: dict[str, Any] = {"fetched": [], "refused": {}, "reached": 0, "reachable": 0}
    with ExitStack() as stack:
        pages = {"/": respond(b"a picture")}
        public = [stack.enter_context(serve_pictures(pages, each, 80)) for each in PUBLIC]
        inside = [stack.enter_context(serve_pictures(pages, each, 80)) for each in INSIDE]
        fetcher = PictureFetcher(EveryHost(), ByteBudget(2**26), resolve=resolve)
        urls = ["http://public.example/", f"http://[{PUBLIC[1]}]/"]
        urls += [f"http://[{each}]/" if ":" in each else f"http://{each}/" for each in INSIDE]
        for url in urls:
            with ByteBudget(2**26).hold() as held:
                try:
                    await fetcher.fetch(None, held, [PictureUrl(url, "input")])
                except InvalidRequest as error:
                    found["refused"][url] = error.message
                else:
                    found["fetched"].append(url)
        found["reached"] = sum(len(each.heads) for each in inside)
        assert [len(each.heads) for each in public] == [1, 1]
        for each in INSIDE:
            with socket.create_connection((each, 80), timeout=5):
                found["reachable"] += 1
    return found


if __name__ == "__main__":
    own = [f"addr add {each}/{'128' if ':' in each else '32'} dev lo" for each in (*PUBLIC, *INSIDE)]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for command in own:  # lo has some already
        subprocess.run(["ip", *command.split()], check=False, stderr=subprocess.DEVNULL)
    print(json.dumps(asyncio.run(probe())))
