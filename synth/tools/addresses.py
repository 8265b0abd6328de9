"""Which network addresses an agent may be led to: a page must not make it call the network that it runs in."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Refused(Exception):
    """A page or file that is not read; the text is what the agent is told."""


async def resolve(host: str, port: int, *, allow_private: bool) -> str:
    """The address to connect to, as text. Every address of the host is checked, so that none can be slipped in.

    Raises Refused where the host has none, or where one is private and that is not allowed.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Refused(f"There is no host {host}.") from error
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    if not allow_private:
        for address in addresses:
            if not is_public(ipaddress.ip_address(address)):
                raise Refused(f"{host} lies in a private network: it is not opened.")
    return addresses[0]


def is_public(address: Address) -> bool:
    """Whether an address is anyone's to call; one that is wrapped in another counts as what it is inside."""
    inner = _wrapped(address)
    if inner is not None:
        return is_public(inner)
    return address.is_global and not address.is_multicast


def _wrapped(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for: mapped, 6to4, Teredo or NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
