"""Which addresses this machine may call on behalf of a visitor, and the one it then connects to.

A page that calls an address somebody typed could be made to call what only this machine can
reach. So a name is resolved once, every address it stands for is checked, and the connection is
made to the address that was checked: what the name stands for a moment later does not matter.
The list of what is allowed belongs to whoever runs the app (`SETTING`).
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from kvcore.serving.errors import AddressError

SETTING = "WORKBENCH_SERVERS"
LONGEST_ADDRESS = 2_000
MOST_ENTRIES = 1_000

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], list[str]]

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
# RFC 6052 and RFC 8215: IPv4 inside IPv6 for translators.
TRANSLATED = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
# RFC 4291, 2.5.5.1: the old way to write IPv4 inside IPv6.
COMPATIBLE = ipaddress.ip_network("::/96")

_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-)){0,20}")
_ENDPOINTS = ("/chat/completions", "/completions", "/models", "/responses", "/metrics")


@dataclass(frozen=True)
class Target:
    """A server that may be called.

    address: the one the connection is made to. base: the API's root path, such as "/v1". root:
    the path above it, where engines have /metrics and /health.
    """

    scheme: str
    host: str
    port: int
    address: str
    base: str = "/v1"

    @property
    def root(self) -> str:
        return self.base.removesuffix("/v1")

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"http": 80, "https": 443}[self.scheme]
        return f"{self.scheme}://{host}" + ("" if self.port == usual else f":{self.port}")

    @property
    def url(self) -> str:
        return self.origin + self.base

    @property
    def is_public(self) -> bool:
        """Whether it lies on the open internet, where somebody may be paid for it."""
        return ipaddress.ip_address(self.address).is_global

    @property
    def sends_in_clear(self) -> bool:
        """Whether a key would travel unencrypted, past this machine."""
        return self.scheme == "http" and not ipaddress.ip_address(self.address).is_loopback


@dataclass(frozen=True)
class Entry:
    """One entry of the list: a network, or a name (with `subdomains`, those below it)."""

    network: Network | None = None
    name: str = ""
    subdomains: bool = False
    port: int | None = None

    def names(self, host: str, port: int) -> bool:
        if not self.name or self.port not in (None, port):
            return False
        return host.endswith("." + self.name) if self.subdomains else host == self.name

    def holds(self, address: IPAddress, port: int) -> bool:
        if self.network is None or self.port not in (None, port):
            return False
        return address.version == self.network.version and address in self.network


@dataclass(frozen=True)
class Policy:
    """What may be called. `why` says, in a sentence, where the rule comes from."""

    entries: tuple[Entry, ...] = ()
    why: str = ""

    @property
    def is_off(self) -> bool:
        return not self.entries

    def target(self, typed: str, resolve: Resolve | None = None) -> Target:
        """The server behind what a visitor typed, resolved now and once.

        Raises AddressError, in one sentence, where the address cannot be read, is not allowed, or
        stands for any address that is not.
        """
        if self.is_off:
            raise AddressError(f"Calling servers is switched off here. {self.why}".strip())
        scheme, host, port, base = _parts(typed)
        literal = _literal(host)
        if literal is not None:
            self._allow(host, literal, port, named=False)
            return Target(scheme, str(literal), port, str(literal), base)
        named = any(entry.names(host, port) for entry in self.entries)
        if not named and not any(entry.network for entry in self.entries):
            raise AddressError(_not_listed(host, port, self.why))
        found = _resolved(host, port, resolve or system_resolve)
        for address in found:
            self._allow(host, address, port, named)
        first = min(found, key=lambda address: address.version)
        return Target(scheme, host, port, str(first), base)

    def _allow(self, host: str, address: IPAddress, port: int, named: bool) -> None:
        """Raise AddressError unless this address may be called under this name."""
        inner = embedded(address)
        if inner is not None:
            raise AddressError(
                f"{host} is {inner} written inside an IPv6 address: write {inner} itself."
            )
        if never_callable(address):
            raise AddressError(
                f"{host} is {address}, a link-local, multicast or reserved address, which is never "
                "called from here."
            )
        if any(entry.holds(address, port) for entry in self.entries):
            return
        if named and address.is_global:
            return
        if named:
            raise AddressError(
                f"{host} is on the list, but stands for {address}, which is not a public address: "
                f"whoever runs this app must list that address as well ({SETTING})."
            )
        raise AddressError(_not_listed(host, port, self.why))


def policy(setting: str | None, *, app_is_local: bool) -> Policy:
    """What the operator allows.

    setting: the value of `SETTING`: "off", or names, addresses and networks, separated by commas
    or spaces, each with a port if only that port is meant ("gpu.example.com:8000",
    "10.1.0.0/16", "[fd00::5]:30000", "*.example.com", "loopback"). app_is_local: whether only
    this machine can reach the app; then, with nothing set, addresses of this machine are allowed.

    Raises AddressError for an entry that cannot be read.
    """
    words = re.split(r"[,\s]+", (setting or "").strip())
    words = [word for word in words if word]
    if [word.lower() for word in words] == ["off"]:
        return Policy(why=f"Whoever runs this app switched it off ({SETTING}=off).")
    if words:
        if len(words) > MOST_ENTRIES:
            raise AddressError(f"{SETTING} has more than {MOST_ENTRIES:,} entries.")
        entries = tuple(entry for word in words for entry in _entries(word.lower()))
        return Policy(entries, f"Only servers listed in {SETTING} may be called.")
    if app_is_local:
        return Policy(
            tuple(Entry(network) for network in LOOPBACK),
            "This app is open to this machine alone, so servers on this machine may be called; "
            f"for others set {SETTING}.",
        )
    return Policy(
        why=f"This app can be reached by others, so it calls no address unless {SETTING} lists it."
    )


def never_callable(address: IPAddress) -> bool:
    """Addresses no list can open: link-local (cloud metadata), multicast, unspecified, reserved."""
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        return True
    return (
        address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or (address.is_reserved and not address.is_loopback)
        or (address.version == 4 and address in ipaddress.ip_network("0.0.0.0/8"))
    )


def embedded(address: IPAddress) -> ipaddress.IPv4Address | None:
    """The IPv4 address inside a mapped, compatible, 6to4, Teredo or translated IPv6 address."""
    if not isinstance(address, ipaddress.IPv6Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in network for network in TRANSLATED):
        return low
    return low if address in COMPATIBLE and int(address) > 1 else None


def is_loopback_host(host: str | None) -> bool:
    """Whether a host, as servers are told to listen on or browsers name it, is this machine."""
    name = (host or "").strip().lower().strip("[]")
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback


def app_is_local(listens_on: str | None, headers: Mapping[str, str]) -> bool:
    """Whether an app is open to this machine alone.

    listens_on: the address the app's server listens on; nothing means every address. headers: of
    the visitor's request; a proxy's mark or a foreign Host mean that others get in.
    """
    if not is_loopback_host(listens_on):
        return False
    lower = {name.lower(): value for name, value in headers.items()}
    if any(name in lower for name in ("x-forwarded-for", "x-forwarded-host", "forwarded", "via")):
        return False
    host = lower.get("host")
    return host is None or is_loopback_host(urlsplit(f"//{host}").hostname)


def system_resolve(host: str, port: int) -> list[str]:
    """All addresses of a name, as this machine resolves it."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [entry[4][0] for entry in found]


def _parts(typed: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and API path of what was typed. Raises AddressError."""
    text = typed.strip()
    if not text:
        raise AddressError("The address is empty: write one such as http://127.0.0.1:8000.")
    if len(text) > LONGEST_ADDRESS or not text.isascii() or not text.isprintable() or " " in text:
        raise AddressError(
            "The address may hold only plain letters, digits and signs, without spaces."
        )
    if "\\" in text:
        raise AddressError("The address holds a backslash; use / instead.")
    if "://" not in text:
        text = f"http://{text}"
    try:
        split = urlsplit(text)
        host, port = split.hostname, split.port
    except ValueError:
        raise AddressError(
            "The address cannot be read: write one such as http://127.0.0.1:8000."
        ) from None
    if split.scheme not in ("http", "https"):
        raise AddressError("Only http:// and https:// addresses are called.")
    if split.username is not None or split.password is not None or "@" in split.netloc:
        raise AddressError(
            "The address holds a name or password before an @: put the key into its own field."
        )
    if split.query or split.fragment or "?" in text or "#" in text:
        raise AddressError("The address must end before any ? or #: they may hold secrets.")
    if not host:
        raise AddressError("The address names no host: write one such as http://127.0.0.1:8000.")
    if port == 0:
        raise AddressError("The port must be from 1 to 65,535.")
    return split.scheme, host.rstrip("."), port or _usual(split.scheme), _base(split.path)


def _usual(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _base(path: str) -> str:
    """The API's root: what was typed without an endpoint's own path, "/v1" where nothing is."""
    if "//" in path or "%" in path or "/." in path:
        raise AddressError("The path of the address must be plain: no //, no % and no dots.")
    bare = path.rstrip("/")
    for endpoint in _ENDPOINTS:
        bare = bare.removesuffix(endpoint)
    return bare or "/v1"


def _literal(host: str) -> IPAddress | None:
    """The address a host is written as; None for a name.

    Raises AddressError for the forms that different programs read differently: decimal, octal and
    hexadecimal numbers, fewer than four of them, and zones.
    """
    if "%" in host:
        raise AddressError("Addresses with a zone (%) are not called.")
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    if ":" in host:
        raise AddressError(f"“{host}” is not an IPv6 address.")
    last = host.rsplit(".", 1)[-1]
    if re.fullmatch(r"\d+|0x[0-9a-f]*", last):
        raise AddressError(
            f"“{host}” is a number form of an address: write four decimal numbers, such as "
            "127.0.0.1."
        )
    if len(host) > 253 or not _NAME.fullmatch(host):
        raise AddressError("The address names no host that can exist.")
    return None


def _resolved(host: str, port: int, resolve: Resolve) -> list[IPAddress]:
    try:
        found = resolve(host, port)
        addresses = [ipaddress.ip_address(each.split("%")[0]) for each in found]
    except (OSError, ValueError):
        addresses = []
    if not addresses:
        raise AddressError(f"No address was found for {host}: check its spelling.")
    return addresses


def _not_listed(host: str, port: int, why: str) -> str:
    return f"{host}, port {port}, may not be called from here. {why}".strip()


def _entries(word: str) -> list[Entry]:
    """The entries one word of the list stands for. Raises AddressError."""
    if word in ("loopback", "localhost"):
        return [Entry(network) for network in LOOPBACK]
    try:
        return [Entry(ipaddress.ip_network(word.strip("[]")))]
    except ValueError:
        pass
    try:
        split = urlsplit(word if "://" in word else f"//{word}")
        if split.path.strip("/") or split.username or split.query:
            raise ValueError
        host, port = split.hostname or "", split.port
    except ValueError:
        raise AddressError(
            f"“{word}” in {SETTING} cannot be read: write a name or an address, with a port if "
            "need be, and no path."
        ) from None
    if split.scheme in ("http", "https"):
        port = port or _usual(split.scheme)
    if host == "localhost":
        return [Entry(network, port=port) for network in LOOPBACK]
    try:
        return [Entry(ipaddress.ip_network(host), port=port)]
    except ValueError:
        pass
    below = host.startswith("*.")
    name = host.removeprefix("*.")
    if not _NAME.fullmatch(name) or re.fullmatch(r"[\d.]+|0x.*", name):
        raise AddressError(f"“{word}” in {SETTING} is neither a name, an address nor a network.")
    return [Entry(name=name, subdomains=below, port=port)]
