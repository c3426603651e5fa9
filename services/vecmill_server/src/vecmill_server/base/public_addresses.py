"""Which addresses of the internet are public: those that everybody reaches, and that are one host's.

All others are refused, listed or not: of this machine, of private networks, of links, of groups, and those
that stand for an IPv4 address of one of these.

Sources: the registries of special addresses of IANA (RFC 6890, 8190), RFC 6052 (NAT64), RFC 3056 (6to4), and
the pages of the clouds about the addresses of their metadata.
"""

import ipaddress

_IPV6_IN_USE = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # in which networks of IPv6 alone have all of IPv4
_REFUSED = tuple(
    map(
        ipaddress.ip_network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
            *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
            "168.63.129.16/32",  # of Azure, reached from inside only
            *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),  # Teredo and 6to4 are among them
        ),
    )
)


def is_public(text: str) -> bool:
    """Return whether the address in `text` is public."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)))
        if address not in _IPV6_IN_USE or address.scope_id is not None:
            return False
    return address.is_global and not any(address in network for network in _REFUSED)
