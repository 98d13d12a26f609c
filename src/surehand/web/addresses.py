"""Which web addresses may be opened: parsing URLs, and telling public hosts and IP addresses from others.

A URL is parsed once, here, so that what is judged is what is connected to. Odd spellings (`127.1`, `0x7f000001`,
fullwidth digits, `localhost.`) are normalized before they are judged. No function here uses the network.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final, TypeAlias
from urllib.parse import quote

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_URL_CHARS: Final = 8192
PORTS: Final[dict[str, int]] = {"http": 80, "https": 443}

_SPECIAL: Final[dict[str, str]] = {
    "0.0.0.0/8": "this host",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared (carrier NAT, cloud metadata)",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "cloud metadata",
    "169.254.0.0/16": "link-local (cloud metadata)",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "documentation",
    "192.88.99.0/24": "6to4 relay",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "benchmarking",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
    "::1/128": "loopback",
    "::/128": "this host",
    "::/96": "IPv4-compatible",
    "::ffff:0:0:0/96": "IPv4-translated",
    "64:ff9b:1::/48": "local NAT64",
    "100::/64": "discard",
    "2001::/32": "Teredo",
    "2001::/23": "reserved",
    "2001:db8::/32": "documentation",
    "2002::/16": "6to4",
    "3fff::/20": "documentation",
    "fd00:ec2::254/128": "cloud metadata",
    "fd20:ce::254/128": "cloud metadata",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "fec0::/10": "site-local",
    "ff00::/8": "multicast",
}
"""Networks that are not public: the special-purpose registries of IANA, and metadata services of clouds."""

_EMBEDDING: Final = (ipaddress.IPv6Network("::ffff:0:0/96"), ipaddress.IPv6Network("64:ff9b::/96"))
"""Networks that embed an IPv4 address in the last 32 bits: IPv4-mapped, and NAT64 (all that some networks offer)."""

_PUBLIC_V6: Final = ipaddress.IPv6Network("2000::/3")
_NETWORKS: Final = tuple((ipaddress.ip_network(net), why) for net, why in _SPECIAL.items())

LOOPBACK: Final[tuple[IPAddress, ...]] = (ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1"))

_LOCAL_NAMES: Final[dict[str, str]] = {
    "localhost": "loopback",
    "localdomain": "local",
    "local": "local",
    "internal": "private",
    "home.arpa": "private",
    "svc": "private",
    "ip6-localhost": "loopback",
    "ip6-loopback": "loopback",
    "broadcasthost": "local",
    "metadata": "cloud metadata",
    "instance-data": "cloud metadata",
    "metadata.goog": "cloud metadata",
}
"""Names of this machine or its own network."""

_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<rest>.*)", re.DOTALL)
_AUTHORITY: Final = re.compile(r"//(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<query>\?[^#]*)?(?:#.*)?", re.DOTALL)
_HOST_PORT: Final = re.compile(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::(?P<port>[0-9]{0,20}))?")
_NAME: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
_ENTRY_PORT: Final = re.compile(r"(?P<host>\[[^\]]+\]|[^:\[\]]+):(?P<port>[0-9]{1,5})")
_NUMBER: Final = re.compile(r"0x[0-9a-f]*|[0-9]+")
_INVISIBLE: Final = re.compile(r"[\x00-\x20\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\\]")
_SAFE_IN_URL: Final = "!$&'()*+,-./:;=?@_~%[]|"


@frozen
class WebAddress:
    """A parsed URL: scheme, host (lower case, ASCII, no brackets, no final dot), port, and the normalized URL."""

    scheme: str
    host: str
    port: int
    url: str

    @property
    def ip(self) -> IPAddress | None:
        """The IP address that the host is, if it is no name."""
        return _parse_odd_ip(self.host)

    def same_site(self, other: WebAddress) -> bool:
        """Whether `other` has the same host and port, or is the same host with https instead of http."""
        same_port = (self.scheme, self.port) == (other.scheme, other.port)
        upgrade = (self.scheme, self.port, other.scheme, other.port) == ("http", 80, "https", 443)
        return self.host == other.host and (same_port or upgrade)


def read_url(url: str) -> WebAddress:
    """Parse a URL; raise ToolFailure (`invalid_args`) for one that no web tool may open."""
    url = url.strip(" \t\r\n")
    if len(url) > MAX_URL_CHARS:
        raise _invalid(f"the URL is {len(url)} characters long (at most {MAX_URL_CHARS})")
    found = _URL.fullmatch(url)
    if found is None:
        raise _invalid(f"{_shorten(url)} is not a URL", "Give the whole address, such as https://example.com/page.")
    scheme = found["scheme"].lower()
    if scheme not in PORTS:
        raise _invalid(f"{scheme}: addresses cannot be opened", "Only http and https are supported.")
    parts = _AUTHORITY.fullmatch(found["rest"])
    if parts is None:
        raise _invalid(f"{_shorten(url)} has no host", f"Write it as {scheme}://host/path.")
    if "@" in parts["authority"]:
        raise _invalid(
            "the URL carries a user name or password", "Remove everything between // and @ in the host part."
        )
    host, port = _host_and_port(parts["authority"], PORTS[scheme])
    return WebAddress(scheme, host, port, _build_url(scheme, host, port, parts["path"], parts["query"] or ""))


def normal_host(host: str) -> str:
    """Normalize a host: lower case, ASCII (punycode), no brackets, no final dot.

    Raises ToolFailure if it is no valid host.
    """
    host = host.strip("[]")
    if ":" in host:
        return _v6_text(_v6(host))
    if not host.isascii():
        host = _ascii(host)
    host = host.lower().removesuffix(".")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        return str(_v4(host))
    if len(host) > 253 or not _NAME.fullmatch(host):
        raise _invalid(f"{_shorten(host)} is not a host name")
    return host


def literal_problem(url: str, allowed_hosts: Iterable[str] = ()) -> str | None:
    """Return why `url` must not be opened, judged by its text alone, or None.

    A name that resolves to a private address is refused later, when the connection is opened.
    """
    try:
        address = read_url(url)
    except ToolFailure as failure:
        return failure.message
    loopback = LOOPBACK if _local_name(address.host) == "loopback" else ()
    if is_allowed(address, loopback, allowed_hosts):
        return None
    if (ip := address.ip) is not None:
        found = address_problem(ip) or _tunnel_problem(ip)
        return found and f"{address.host} is not a public address ({found})"
    found = _local_name(address.host)
    return found and f"{address.host} is not a public host ({found})"


def address_problem(ip: IPAddress) -> str | None:
    """Return the kind of a non-public address, or None for a public one. An embedded IPv4 address is judged itself."""
    if isinstance(ip, ipaddress.IPv6Address):
        if found := _special_range(ip):
            return found
        if (inner := _embedded_ipv4(ip)) is not None:
            return address_problem(inner)
        return None if ip in _PUBLIC_V6 else "reserved"
    return _special_range(ip)


def is_allowed(address: WebAddress, resolved: Iterable[IPAddress], allowed_hosts: Iterable[str]) -> bool:
    """Whether the user's `allowed_hosts` permits this address, or one of the IP addresses it resolved to.

    An entry is a host (`localhost` is all of loopback), an IP address, a network (`10.1.0.0/16`), or `*.name` for a
    name and all its subdomains; `host:port` permits that port only.
    """
    own = address.ip
    candidates = [*resolved, *([own] if own is not None else [])]
    return any(_entry_permits(entry.strip().lower(), address, candidates) for entry in allowed_hosts)


def _entry_permits(entry: str, address: WebAddress, candidates: list[IPAddress]) -> bool:
    if with_port := _ENTRY_PORT.fullmatch(entry):
        entry = with_port["host"]
        if int(with_port["port"]) != address.port:
            return False
    if entry == "localhost" and any(ip.is_loopback for ip in candidates):
        return True
    if entry.startswith("*."):
        return address.host == entry[2:] or address.host.endswith(entry[1:])
    try:
        network = ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return _normal_host_or_none(entry) == address.host
    return any(ip in network for ip in candidates)


def _normal_host_or_none(entry: str) -> str | None:
    try:
        return normal_host(entry)
    except ToolFailure:
        return None


def _host_and_port(authority: str, default: int) -> tuple[str, int]:
    if found := _INVISIBLE.search(authority):
        raise _invalid(f"the host part of the URL contains {found[0]!a}")
    parts = _HOST_PORT.fullmatch(authority)
    if parts is None or not (parts["v6"] or parts["name"]):
        raise _invalid(f"{_shorten(authority)} is not a host" if authority else "the URL has no host")
    port = int(parts["port"]) if parts["port"] else default
    if not 0 < port < 65536:
        raise _invalid(f"{port} is not a port (1 to 65535)")
    return (_v6_text(_v6(parts["v6"])) if parts["v6"] else normal_host(parts["name"])), port


def _build_url(scheme: str, host: str, port: int, path: str, query: str) -> str:
    shown = f"[{host}]" if ":" in host else host
    where = shown if port == PORTS[scheme] else f"{shown}:{port}"
    return f"{scheme}://{where}{_percent_encode(path or '/')}{_percent_encode(query)}"


def _percent_encode(text: str) -> str:
    """Percent-encode characters that are invalid in a URL; existing escapes stay."""
    return quote(text, safe=_SAFE_IN_URL, errors="surrogatepass")


def _ascii(host: str) -> str:
    import idna

    try:
        return idna.encode(host, uts46=True, transitional=False).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise _invalid(f"{_shorten(host)} is not a host name") from None


def _v4(host: str) -> ipaddress.IPv4Address:
    """Parse an IPv4 address as the C library does: 1 to 4 parts, each decimal, octal or hex."""
    parts = host.split(".")
    if len(parts) > 4 or not all(map(_NUMBER.fullmatch, parts)):
        raise _invalid(f"{_shorten(host)} is not an address")
    try:
        numbers = [_number(part) for part in parts]
    except ValueError:
        raise _invalid(f"{_shorten(host)} is not an address") from None
    *leading, last = numbers
    if any(number > 255 for number in leading) or last >= 256 ** (4 - len(leading)):
        raise _invalid(f"{_shorten(host)} is not an address")
    value = sum(number << (24 - 8 * at) for at, number in enumerate(leading)) + last
    return ipaddress.IPv4Address(value)


def _number(part: str) -> int:
    if len(part) > 64:
        raise ValueError(part)
    if part.startswith("0x"):
        return int(part[2:] or "0", 16)
    return int(part, 8) if part.startswith("0") and part != "0" else int(part)


def _v6(host: str) -> ipaddress.IPv6Address:
    try:
        return ipaddress.IPv6Address(host if "%" not in host else "")  # zones are for link-local addresses only
    except ValueError:
        raise _invalid(f"{_shorten(host)} is not an address") from None


def _v6_text(ip: ipaddress.IPv6Address) -> str:
    """Format an IPv6 address for URLs, in hex throughout; `str` differs between versions of Python."""
    if (inner := ip.ipv4_mapped) is None:
        return str(ip)
    return f"::ffff:{int(inner) >> 16:x}:{int(inner) & 0xFFFF:x}"


def _parse_odd_ip(host: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _special_range(ip: IPAddress) -> str | None:
    return next((why for net, why in _NETWORKS if net.version == ip.version and ip in net), None)


def _embedded_ipv4(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    bits = int(ip)
    isatap = (bits >> 32) & 0xFFFF_FFFF in (0x0000_5EFE, 0x0200_5EFE)
    if isatap or any(ip in net for net in _EMBEDDING):
        return ipaddress.IPv4Address(bits & 0xFFFF_FFFF)
    return None


def _tunnel_problem(ip: IPAddress) -> str | None:
    """Return why an IPv6 address in a URL is refused although it embeds a public IPv4 address, or None."""
    if isinstance(ip, ipaddress.IPv6Address) and _embedded_ipv4(ip) is not None:
        return "an IPv4 address wrapped in IPv6"
    return None


def _local_name(host: str) -> str | None:
    labels = host.split(".")
    tails = (".".join(labels[at:]) for at in range(len(labels)))
    return next((_LOCAL_NAMES[tail] for tail in tails if tail in _LOCAL_NAMES and (tail == host or _owns(tail))), None)


def _owns(tail: str) -> bool:
    """Whether subdomains of `tail` are local too (`a.localhost`), and not only itself (`metadata`)."""
    return tail in ("localhost", "localdomain", "local", "internal", "home.arpa", "svc")


def _shorten(text: str) -> str:
    return ascii(text if len(text) <= 100 else text[:97] + "...")


def _invalid(message: str, hint: str = "") -> ToolFailure:
    return ToolFailure(message, code="invalid_args", hint=hint)
