"""URLs are read one way, and nothing but the public internet is reached by name, number or trick of spelling."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surehand.core.errors import ToolFailure
from surehand.web.addresses import address_problem, is_allowed, literal_problem, normal_host, read_url

NOT_PUBLIC = [
    "hTTp://LOCALHOST/",
    "http://localhost./",
    "http://api.localhost:8080/x",
    "http://localhost.localdomain/",
    "http://ip6-localhost/",
    "http://127.0.0.1/",
    "http://127.0.0.1./",
    "http://127.1/",
    "http://127.0.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7F.0.0.1/",
    "http://0x7f.1/",
    "http://0177.0.0.1/",
    "http://017700000001/",
    "http://0/",
    "http://0.0.0.0/",
    "http://00.0x0.0/",
    "http://[::1]/",
    "http://[::]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::127.0.0.1]/",
    "http://[64:ff9b::8.8.8.8]/",
    "http://[64:ff9b:1::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    "http://[2606:4700::5efe:127.0.0.1]/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://3232235777/",
    "http://0300.0250.0.1/",
    "http://100.64.0.1/",
    "http://100.100.100.200/",
    "http://169.254.169.254/latest/meta-data/",
    "http://0xa9fea9fe/",
    "http://168.63.129.16/",
    "http://192.0.0.192/",
    "http://[fd00:ec2::254]/",
    "http://[fe80::1]/",
    "http://[fec0::1]/",
    "http://[fc00::1]/",
    "http://[ff02::1]/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://240.0.0.1/",
    "http://198.18.0.1/",
    "http://metadata/",
    "http://metadata.google.internal/",
    "http://metadata.goog/",
    "http://instance-data/",
    "http://printer.local/",
    "http://vault.corp.internal/",
    "http://１２７.0.0.1/",
    "http://127。0。0。1/",
    "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/",
    "http://LOCALHOST:65535/",
]

NOT_A_WEB_ADDRESS = [
    "",
    "example.com",
    "//example.com/",
    "/etc/passwd",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_INFO",
    "ftp://127.0.0.1/",
    "data:text/html,hi",
    "javascript:alert(1)",
    "http:",
    "http://",
    "http:///path",
    "http:example.com",
    "http:/example.com",
    "http://:80/",
    "http://?q",
    "http://user:password@example.com/",
    "http://user@example.com/",
    "http://example.com@127.0.0.1/",
    "http://127.0.0.1:80@example.com/",
    "http://example.com\\@127.0.0.1/",
    "http://exa mple.com/",
    "http://example.com\t/",
    "http://exam\nple.com/",
    "http://exam\u200bple.com/",
    "http://example.com:0/",
    "http://example.com:65536/",
    f"http://example.com:{'1' * 5000}/",
    "http://example.com:http/",
    "http://example.com:80:80/",
    "http://[::1/",
    "http://::1/",
    "http://[fe80::1%25eth0]/",
    "http://[::1]x/",
    "http://[v7.x]/",
    "http://1.2.3.4.5/",
    "http://256.0.0.1/",
    "http://08.0.0.1/",
    "http://4294967296/",
    "http://" + "9" * 5000 + "/",
    "http://1.2.3.x.0x/",
    "http://%6c%6f%63alhost/",
    "http://a..b/",
    "http://-a.example/",
    "http://exa*mple.com/",
    "http://" + "a" * 64 + ".example/",
    "http://xn--a.example.\udc80/",
    "http://example.com/" + "a" * 9000,
]

PUBLIC = {
    "https://example.com": ("https://example.com/", "example.com", 443),
    "HTTPS://EXAMPLE.COM./a/../b?q=1#top": ("https://example.com/a/../b?q=1", "example.com", 443),
    "  http://example.com:80/ ": ("http://example.com/", "example.com", 80),
    "http://example.com:8080": ("http://example.com:8080/", "example.com", 8080),
    "https://example.com:80/": ("https://example.com:80/", "example.com", 80),
    "http://example.com?q=a b": ("http://example.com/?q=a%20b", "example.com", 80),
    "https://Bücher.example/ä?q=ü": ("https://xn--bcher-kva.example/%C3%A4?q=%C3%BC", "xn--bcher-kva.example", 443),
    "https://例え.テスト/": ("https://xn--r8jz45g.xn--zckzah/", "xn--r8jz45g.xn--zckzah", 443),
    "https://my_host.example/%20%zz": ("https://my_host.example/%20%zz", "my_host.example", 443),
    "http://8.8.8.8/": ("http://8.8.8.8/", "8.8.8.8", 80),
    "http://134744072/": ("http://8.8.8.8/", "8.8.8.8", 80),
    "http://[2606:4700:4700::1111]:99/x": ("http://[2606:4700:4700::1111]:99/x", "2606:4700:4700::1111", 99),
    "http://172.32.0.1/": ("http://172.32.0.1/", "172.32.0.1", 80),
    "http://local.example/": ("http://local.example/", "local.example", 80),
    "http://metadata.example/": ("http://metadata.example/", "metadata.example", 80),
    "https://notlocalhost/": ("https://notlocalhost/", "notlocalhost", 443),
    "https://example.com/a@b:c": ("https://example.com/a@b:c", "example.com", 443),
}


@pytest.mark.parametrize("url", NOT_PUBLIC)
def test_spellings_of_hosts_that_are_not_public_are_refused_without_a_look_up(url: str) -> None:
    assert "not a public" in (literal_problem(url) or "")


@pytest.mark.parametrize("url", NOT_A_WEB_ADDRESS)
def test_what_is_no_web_address_is_refused_as_a_wrong_argument(url: str) -> None:
    with pytest.raises(ToolFailure) as raised:
        read_url(url)
    assert raised.value.code == "invalid_args"
    assert literal_problem(url) == raised.value.message


@pytest.mark.parametrize(("url", "expected"), PUBLIC.items())
def test_public_addresses_are_read_into_one_form(url: str, expected: tuple[str, str, int]) -> None:
    address = read_url(url)
    assert (address.url, address.host, address.port) == expected
    assert literal_problem(url) is None


def test_a_password_in_a_url_is_not_repeated() -> None:
    assert "hunter2" not in (literal_problem("http://me:hunter2@example.com/") or "")


def test_hosts_of_rules_and_of_urls_have_the_same_form() -> None:
    assert normal_host("Bücher.Example.") == read_url("http://BÜCHER.example/").host
    assert normal_host("[::FFFF:1.2.3.4]") == read_url("http://[::ffff:102:304]/").host
    assert normal_host("0x7f.1") == "127.0.0.1"


@pytest.mark.parametrize(
    ("url", "entry", "opened"),
    [
        ("http://127.0.0.1:8000/", "127.0.0.1", True),
        ("http://0x7f000001/", "127.0.0.1", True),
        ("http://localhost:8000/", "127.0.0.1", True),
        ("http://localhost:8000/", "localhost", True),
        ("http://127.0.0.1:8000/", "localhost", True),
        ("http://[::1]:8000/", "localhost", True),
        ("http://127.0.0.1:8000/", "127.0.0.1:8000", True),
        ("http://127.0.0.1:9000/", "127.0.0.1:8000", False),
        ("http://[::1]:9000/", "[::1]:9000", True),
        ("http://10.1.2.3/", "10.1.0.0/16", True),
        ("http://10.2.2.3/", "10.1.0.0/16", False),
        ("http://a.dev.internal/", "*.dev.internal", True),
        ("http://dev.internal/", "*.dev.internal", True),
        ("http://evildev.internal/", "*.dev.internal", False),
        ("http://169.254.169.254/", "127.0.0.1", False),
        ("http://192.168.0.1/", "example.com", False),
        ("http://192.168.0.1/", "%%%", False),
    ],
)
def test_allowed_hosts_opens_exactly_what_it_names(url: str, entry: str, opened: bool) -> None:
    assert (literal_problem(url, [entry]) is None) is opened


def test_allowed_hosts_never_opens_another_scheme_or_a_password() -> None:
    assert literal_problem("ftp://127.0.0.1/", ["127.0.0.1"])
    assert literal_problem("http://a:b@127.0.0.1/", ["127.0.0.1"])


def test_an_address_found_by_looking_up_counts_for_allowed_hosts() -> None:
    address = read_url("http://dev.test/")
    assert is_allowed(address, [ipaddress.ip_address("10.0.0.7")], ["10.0.0.0/8"])
    assert not is_allowed(address, [ipaddress.ip_address("11.0.0.7")], ["10.0.0.0/8"])


def test_nat64_is_judged_by_what_it_leads_to_when_a_resolver_gives_it() -> None:
    assert address_problem(ipaddress.ip_address("64:ff9b::8.8.8.8")) is None
    assert address_problem(ipaddress.ip_address("64:ff9b::169.254.169.254")) is not None


@given(st.ip_addresses())
def test_no_address_that_the_standard_library_calls_private_is_called_public(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if ip.is_private or ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_reserved or ip.is_unspecified:
        wraps_another = any(ip in ipaddress.ip_network(net) for net in ("::ffff:0:0/96", "64:ff9b::/96"))
        assert wraps_another or address_problem(ip) is not None


@given(st.text())
def test_any_text_is_read_or_refused_and_reading_twice_changes_nothing(text: str) -> None:
    for url in (text, "http://" + text):
        try:
            address = read_url(url)
        except ToolFailure:
            continue
        again = read_url(address.url)
        assert (again.url, again.host, again.port) == (address.url, address.host, address.port)
        assert address.url.isascii()
