"""GET goes to the address that was judged, and nothing a server does makes it long, large or unclear."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.loopback import Site, page, redirect

from surehand.core.errors import ToolFailure
from surehand.web import fetch as http
from surehand.web.addresses import read_url
from surehand.web.fetch import BODY_BYTES, FetchOptions, Reach, Reply, get

LOCAL = Reach(allowed_hosts=("127.0.0.1",))


async def fetch(url: str, reach: Reach = LOCAL, **wish: object) -> Reply:
    return await get(read_url(url), reach, FetchOptions(**{"timeout_s": 10.0, **wish}))  # pyright: ignore[reportArgumentType]


async def failure(url: str, reach: Reach = LOCAL, **wish: object) -> ToolFailure:
    with pytest.raises(ToolFailure) as raised:
        await fetch(url, reach, **wish)
    return raised.value


def names(*rows: tuple[str, str], allowed: tuple[str, ...] = ("127.0.0.1",)) -> Reach:
    """Return a reach whose resolver knows only `rows`, and counts nothing else as a host."""
    table: dict[str, list[str]] = {}
    for name, place in rows:
        table.setdefault(name, []).append(place)

    async def resolve(host: str, port: int) -> Sequence[str]:
        if host not in table:
            raise socket.gaierror(f"no such host: {host}")
        return table[host]

    return Reach(allowed_hosts=allowed, resolve=resolve)


# -- where it connects


async def test_a_page_is_read_with_its_headers() -> None:
    async with Site({"/": page("hello", "text/plain")}) as site:
        reply = await fetch(site.url())
    assert (reply.status, reply.body, reply.headers["content-type"], reply.size) == (200, b"hello", "text/plain", 5)
    assert not reply.cut
    assert not reply.trouble


async def test_nothing_of_the_user_goes_along(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password hunter2\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9/")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9/")
    async with Site({"/": page("x", "text/plain", "Set-Cookie: a=b")}) as site:
        await fetch(site.url())
        await fetch(site.url())
    for request in site.requests:
        fields = {line.partition(":")[0].lower() for line in request.splitlines()[1:] if line}
        assert fields == {"host", "user-agent", "accept", "accept-language", "accept-encoding", "connection"}


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://localhost:1/", "http://[::1]:1/", "http://0x7f.1:1/"])
async def test_loopback_is_refused_unless_the_user_opened_it(url: str) -> None:
    refused = await failure(url, Reach())
    assert refused.code == "permission_denied"
    assert "web.allowed_hosts" in refused.hint


async def test_a_name_that_leads_to_a_private_address_is_refused() -> None:
    for place in (
        "10.0.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "::1",
        "::ffff:127.0.0.1",
        "fe80::1%eth0",
        "64:ff9b::7f00:1",
    ):
        refused = await failure("http://rebind.test/", names(("rebind.test", place), allowed=()))
        assert refused.code == "permission_denied"
        assert "not a public address" in refused.message


async def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    reach = names(("mixed.test", "93.184.216.34"), ("mixed.test", "127.0.0.1"), allowed=())
    assert (await failure("http://mixed.test/", reach)).code == "permission_denied"


async def test_the_connection_goes_to_the_judged_address_and_the_name_is_looked_up_once() -> None:
    looked_up: list[str] = []
    async with Site({"/": page("x", "text/plain")}) as site:

        async def rebinding(host: str, port: int) -> Sequence[str]:
            looked_up.append(host)
            return ["127.0.0.1"] if len(looked_up) == 1 else ["127.0.0.2"]

        reply = await fetch(site.url(host="name.test"), Reach(("127.0.0.1",), resolve=rebinding))
    assert reply.body == b"x"
    assert looked_up == ["name.test"]
    assert f"Host: name.test:{site.port}" in site.requests[0]


async def test_the_next_address_is_tried_when_one_does_not_take_the_connection() -> None:
    async with Site({"/": page("x", "text/plain")}) as site:
        reach = names(("two.test", "127.0.0.3"), ("two.test", "127.0.0.1"), allowed=("127.0.0.0/8",))
        assert (await fetch(site.url(host="two.test"), reach)).body == b"x"


async def test_the_system_resolver_is_used_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def known(host: str, *rest: object, **options: object) -> object:
        return real("127.0.0.1" if host == "allowed.test" else host, *rest, **options)  # pyright: ignore

    monkeypatch.setattr(socket, "getaddrinfo", known)
    async with Site({"/": page("x", "text/plain")}) as site:
        assert (await fetch(site.url(host="allowed.test"))).body == b"x"


async def test_an_unknown_host_a_closed_port_and_a_server_of_another_protocol_are_clear() -> None:
    assert "no address was found for nowhere.test" in (await failure("http://nowhere.test/", names())).message
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert "refused" in (await failure(f"http://127.0.0.1:{taken.getsockname()[1]}/")).message
    async with Site({"/": b"SSH-2.0-OpenSSH_9.2\r\n\r\n"}) as site:
        assert "valid HTTP" in (await failure(site.url())).message


async def test_a_resolver_that_hangs_ends_with_the_deadline() -> None:
    async def hangs(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        raise AssertionError

    assert (await failure("http://slow.test/", Reach(resolve=hangs), timeout_s=0.2)).code == "timeout"


# -- TLS


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    made = tmp_path / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=secure.test"]
    names_in_it = ["-addext", "subjectAltName=DNS:secure.test"]
    subprocess.run(
        [*command, *names_in_it, "-keyout", str(made), "-out", str(tmp_path / "cert.pem")],
        check=True,
        capture_output=True,
    )
    made.write_text(made.read_text() + (tmp_path / "cert.pem").read_text())
    return made


async def test_the_certificate_must_belong_to_the_name_though_the_connection_goes_to_a_number(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(page("secret", "text/plain"))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    reach = names(("secure.test", "127.0.0.1"), ("other.test", "127.0.0.1"))
    async with server:
        untrusted = await failure(f"https://secure.test:{port}/", reach)
        assert "certificate" in untrusted.message.lower()
        trusting = ssl.create_default_context(cafile=str(certificate.parent / "cert.pem"))
        monkeypatch.setattr(http, "_tls", lambda: trusting)
        assert (await fetch(f"https://secure.test:{port}/", reach)).body == b"secret"
        assert "other.test" in (await failure(f"https://other.test:{port}/", reach)).message


# -- redirects


async def test_redirects_on_the_same_site_are_followed_and_told() -> None:
    async with Site({"/": redirect("/two?x=1"), "/two": redirect("three"), "/three": page("x")}) as site:
        reply = await fetch(site.url())
        assert reply.hops == (site.url("/two?x=1"), site.url("/three"))
        assert reply.address.url == site.url("/three")


@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://localhost:1/",
        "//10.0.0.1/",
        "http://[::1]/",
        "http://2130706434/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "http://user:pw@127.0.0.1/",
        "http://[bad/",
    ],
)
async def test_a_redirect_to_what_may_not_be_opened_ends_there(target: str) -> None:
    async with Site({"/": redirect(target)}) as site:
        reach = Reach(("127.0.0.1:" + str(site.port),))
        refused = await failure(site.url(), reach, follow=lambda address: True)
    assert refused.code == "permission_denied" or "cannot be opened" in refused.message
    assert len(site.requests) == 1


async def test_a_redirect_to_another_host_is_followed_only_when_permitted() -> None:
    reach = names(("here.test", "127.0.0.1"), ("there.test", "127.0.0.1"))
    async with Site({"/": page("there", "text/plain")}) as there, Site() as here:
        here.answers["/"] = redirect(there.url(host="there.test"))
        refused = await failure(here.url(host="here.test"), reach)
        assert refused.code == "permission_denied"
        assert refused.details["redirect"] == there.url(host="there.test")
        assert there.requests == []
        reply = await fetch(here.url(host="here.test"), reach, follow=lambda address: address.host == "there.test")
        assert reply.body == b"there"


async def test_a_redirect_to_another_port_of_the_same_host_is_another_place() -> None:
    async with Site({"/": page("x")}) as there, Site() as here:
        here.answers["/"] = redirect(there.url())
        assert (await failure(here.url())).code == "permission_denied"


@pytest.mark.parametrize("target", ["/", "/next"])
async def test_loops_and_long_chains_of_redirects_end(target: str) -> None:
    async with Site(default=redirect(target)) as site:
        assert "more than 5 times" in (await failure(site.url())).message
        assert len(site.requests) == 6


async def test_a_redirect_without_a_target_is_the_answer() -> None:
    async with Site({"/": b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"}) as site:
        assert (await fetch(site.url())).status == 302


# -- how much and how long


async def test_a_body_over_the_limit_is_cut() -> None:
    async with Site({"/": page(b"x" * (BODY_BYTES + 1), "text/plain"), "/fits": page(b"x" * BODY_BYTES)}) as site:
        reply = await fetch(site.url())
        assert (len(reply.body), reply.cut, reply.size) == (BODY_BYTES, True, BODY_BYTES + 1)
        assert not (await fetch(site.url("/fits"))).cut


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def test_an_endless_body_is_cut() -> None:
    async with Site({"/": endless}) as site:
        assert (await fetch(site.url())).cut


def packed(kind: str, data: bytes) -> bytes:
    match kind:
        case "gzip":
            return gzip.compress(data, mtime=0)
        case "deflate":
            return zlib.compress(data)
        case _:
            raw = zlib.compressobj(wbits=-15)
            return raw.compress(data) + raw.flush()


@pytest.mark.parametrize("kind", ["gzip", "deflate", "raw"])
async def test_packed_bodies_are_unpacked(kind: str) -> None:
    text = bytes(range(256)) * 1000
    header = "Content-Encoding: " + ("gzip" if kind == "gzip" else "deflate")
    async with Site({"/": page(packed(kind, text), "x/y", header)}) as site:
        reply = await fetch(site.url())
    assert (reply.body, reply.size, reply.cut) == (text, len(text), False)


async def test_a_body_in_several_gzip_members_is_read_whole() -> None:
    data = b"".join(gzip.compress(part) for part in (b"one ", b"two ", b"three"))
    async with Site({"/": page(data, "text/plain", "Content-Encoding: gzip")}) as site:
        assert (await fetch(site.url())).body == b"one two three"


async def test_a_compressed_bomb_is_cut_and_costs_little_memory() -> None:
    async with Site({"/": page(packed("gzip", bytes(200 << 20)), "text/html", "Content-Encoding: gzip")}) as site:
        before = peak_kib(reset=True)
        reply = await fetch(site.url())
        assert reply.cut
        assert len(reply.body) == BODY_BYTES
        assert peak_kib() - before < 16 * 1024


def peak_kib(reset: bool = False) -> int:
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(rows["VmHWM"].split()[0])


async def test_members_without_end_and_packing_not_asked_for_end_early() -> None:
    empty = gzip.compress(b"")
    answers = {
        "/members": page(empty * 100_000, "text/html", "Content-Encoding: gzip"),
        "/br": page(b"\x0b\x02\x80hello\x03", "text/html", "Content-Encoding: br"),
        "/zstd": page(b"\x28\xb5\x2f\xfd", "text/html", "Content-Encoding: zstd"),
        "/twice": page(gzip.compress(gzip.compress(b"x")), "text/html", "Content-Encoding: gzip, gzip"),
        "/lies": page(b"not gzip at all", "text/html", "Content-Encoding: gzip"),
    }
    async with Site(answers) as site:
        assert "no answer could be read" in (await failure(site.url("/members"))).message
        for path in ("/br", "/zstd", "/twice"):
            assert "was requested" in (await failure(site.url(path))).message
        assert "damaged" in (await failure(site.url("/lies"))).message


async def test_a_server_that_never_answers_ends_with_the_deadline() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with Site({"/": silent}) as site:
        assert (await failure(site.url(), timeout_s=0.3)).code == "timeout"


async def test_a_byte_now_and_then_does_not_stretch_the_deadline() -> None:
    async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with Site({"/": drips}) as site:
        assert (await failure(site.url(), timeout_s=0.4)).code == "timeout"


async def test_slow_downloads_report_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PROGRESS_S", 0.0)
    seen: list[tuple[int, int | None]] = []
    async with Site({"/": page(b"x" * 500_000, "text/plain")}) as site:
        await fetch(site.url(), report=lambda done, total: seen.append((done, total)))
    assert seen
    assert all(total == 500_000 for _, total in seen)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


async def test_a_server_that_closes_early_or_lies_about_the_length_gives_what_it_sent() -> None:
    answers = {
        "/early": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this",
        "/chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nff\r\nwor",
        "/longer": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nonly this",
        "/nothing": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
        "/gzip": page(gzip.compress(bytes(range(256)) * 99)[:90], "a/b", "Content-Encoding: gzip"),
        "/head": b"HTTP/1.1 200 OK\r\nContent-",
    }
    async with Site(answers) as site:
        early = await fetch(site.url("/early"))
        assert (early.body, early.trouble, early.size) == (b"only this", "the server closed the connection", 100)
        assert (await fetch(site.url("/chunked"))).body == b"hellowor"
        assert (await fetch(site.url("/longer"))).body == b"only"
        half = await fetch(site.url("/gzip"))
        assert (half.trouble, half.size) == ("its compression ends too soon", None)
        assert "closed the connection" in (await failure(site.url("/nothing"))).message
        assert "valid HTTP" in (await failure(site.url("/head"))).message


@pytest.mark.parametrize("count", [1, 2000])
async def test_headers_without_end_are_refused(count: int) -> None:
    lines = b"".join(b"X-%d: %s\r\n" % (at, b"a" * (80_000 // count)) for at in range(count))
    async with Site({"/": b"HTTP/1.1 200 OK\r\n" + lines + b"Content-Length: 1\r\n\r\nx"}) as site:
        assert "headers" in (await failure(site.url())).message
    async with Site({"/": b"HTTP/1.1 200 OK\r\n" + b"X-Long: a\r\n" * 200_000}) as site:
        await failure(site.url())


@pytest.mark.parametrize("status", ["100 Continue", "103 Early Hints", "199 "])
async def test_interim_answers_without_end_are_refused(status: str) -> None:
    async def hint_for_ever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(f"HTTP/1.1 {status}\r\n\r\n".encode() * 1000)
            await writer.drain()

    async with Site({"/": hint_for_ever}) as site:
        assert "headers" in (await failure(site.url())).message


async def test_a_body_in_single_bytes_is_cut_and_other_work_has_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CHUNKS", 5000)
    monkeypatch.setattr(http, "BREATH_S", 0.0)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with Site({"/": head + b"1\r\na\r\n" * 6000 + b"0\r\n\r\n"}) as site:
        counting = asyncio.ensure_future(count_turns())
        reply = await fetch(site.url())
        counting.cancel()
    assert reply.cut
    assert len(reply.body) == 5001
    assert turns > 5000


async def test_of_an_error_only_the_beginning_of_the_body_is_read() -> None:
    async with Site({"/": page(b"x" * 900_000, "text/plain", status="500 Internal Server Error")}) as site:
        reply = await fetch(site.url())
    assert (reply.status, reply.ok, reply.cut) == (500, False, True)
    assert len(reply.body) == http.ERROR_BODY_BYTES


async def test_a_body_that_is_not_wanted_is_not_downloaded() -> None:
    async with Site({"/": page(b"\0" * 5_000_000, "video/mp4")}) as site:
        reply = await fetch(site.url(), whole=lambda content_type: content_type != "video/mp4")
    assert (len(reply.body), reply.size) == (4096, 5_000_000)


# -- the proxy of the user


async def test_a_proxy_of_the_settings_is_used_and_gets_the_name() -> None:
    async with Site(default=page("by proxy", "text/plain")) as proxy:
        reach = Reach(proxy=proxy.url(), resolve=names().resolve)
        assert (await fetch("http://example.test/page", reach)).body == b"by proxy"
        assert (await failure("http://127.0.0.1/", reach)).code == "permission_denied"
        private = Reach(proxy=proxy.url(), resolve=names(("inside.test", "10.0.0.1"), allowed=()).resolve)
        assert (await failure("http://inside.test/", private)).code == "permission_denied"
    assert proxy.requests[0].startswith("GET http://example.test/page HTTP/1.1")
    assert len(proxy.requests) == 1
