"""How many conversations there may be: in all, and of one client address."""

from __future__ import annotations

import ipaddress
from collections import Counter

from rtts.errors import CapacityError, OverloadedError, RateLimitedError
from rtts.server.options import parse_ip

# A full server frees a place when some conversation ends, which nobody can predict; a second keeps
# refused clients from hammering and costs a human little.
RETRY_AFTER_S = 1.0


class Places:
    """Counts who is connected.

    Owner: event loop.
    """

    def __init__(self, *, most: int, most_per_client: int) -> None:
        self.most = most
        self.most_per_client = most_per_client
        self._by_client: Counter[str] = Counter()
        self._taken = 0

    @property
    def taken(self) -> int:
        """Places in use."""
        return self._taken

    def take(self, address: str | None) -> Place:
        """Take a place; whoever does gives it back.

        Args:
            address: The peer's IP address; None on a Unix socket.

        Raises:
            OverloadedError: All places are taken.
            RateLimitedError: This client has all that one client may have.
        """
        if self._taken >= self.most:
            raise _full(OverloadedError, f"all {self.most} sessions are in use")
        client = client_of(address)
        if client is not None:
            if self._by_client[client] >= self.most_per_client:
                raise _full(
                    RateLimitedError, f"one client may have {self.most_per_client} sessions"
                )
            self._by_client[client] += 1
        self._taken += 1
        return Place(self, client)

    def give_back(self, client: str | None) -> None:
        """Free what `take` took; called by `Place`."""
        self._taken -= 1
        if client is not None:
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]


class Place:
    """One place taken; `give_back` is idempotent."""

    __slots__ = ("_client", "_places")

    def __init__(self, places: Places, client: str | None) -> None:
        self._places: Places | None = places
        self._client = client

    def give_back(self) -> None:
        """Free the place."""
        if self._places is not None:
            self._places.give_back(self._client)
            self._places = None


def client_of(address: str | None) -> str | None:
    """What counts as one client: an IPv4 address, an IPv6 /64; None for this machine itself.

    A household or a phone is handed a whole /64 (RFC 6177), so single IPv6 addresses are free.
    """
    ip = parse_ip(address or "")
    if ip is None or ip.is_loopback:
        return None
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)


def _full(error: type[CapacityError], message: str) -> CapacityError:
    return error(message, retry_after_s=RETRY_AFTER_S)
