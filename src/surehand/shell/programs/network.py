"""Programs that talk to hosts, and those that show the state of the network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from surehand.core.text import lazy_pattern
from surehand.shell.programs.record import Form, Program, by_words, refusing
from surehand.shell.touches import Operands, Touch, loosely
from surehand.shell.verdict import Verdict
from surehand.shell.word import Word
from surehand.shell.wrappers import Started, scripts

_CURL = (
    "-0123468BCGIJLMNOPQRSZafgijklnpqsvk# -A: -b: -c: -C: -d: -D: -e: -E: -F: -h? -H: -K: -m: -o: -P: -Q: -r: -t: "
    "-T: -u: "
    "-U: -w: -x: -X: -y: -Y: -z: --url: --output: --output-dir: --data: --data-ascii: --data-binary: --data-raw: "
    "--data-urlencode: --json: --header: --request: --user: --user-agent: --referer: --cookie: --cookie-jar: --form: "
    "--form-string: --upload-file: --config: --max-time: --connect-timeout: --retry: --retry-delay: --retry-max-time: "
    "--proxy: --cacert: --capath: --cert: --key: --resolve: --connect-to: --dump-header: --write-out: --range: "
    "--limit-rate: --interface: --unix-socket: --netrc-file: --max-filesize: --max-redirs: --ciphers: --tls-max: "
    "--dns-servers: --doh-url: --preproxy: --socks5: --socks5-hostname: --trace: --trace-ascii: --stderr: --time-cond: "
    "--variable: --expand-url: --aws-sigv4: --oauth2-bearer: --hostpubmd5: --proto: --proto-default: --proto-redir:"
)
_WGET = (
    "-bcdEFHhkKLmNnNpqrSvVx46 -A: -a: -B: -D: -e: -i: -I: -l: -o: -O: -P: -Q: -R: -t: -T: -U: -w: -X: "
    "--output-document: "
    "--output-file: --directory-prefix: --input-file: --header: --post-data: --post-file: --body-data: --body-file: "
    "--method: --user: --password: --user-agent: --referer: --tries: --timeout: --wait: --level: --accept: --reject: "
    "--domains: --load-cookies: --save-cookies: --ca-certificate: --certificate: --private-key: --execute: --config: "
    "--limit-rate: --quota: --bind-address: --use-askpass:"
)
_LOCAL_URL = lazy_pattern(r"file:(?://[^/]*)?/", re.IGNORECASE)


def _curl_touches(words: Sequence[Word]) -> Iterator[Touch]:
    parsed = loosely(words, _CURL)
    for word in [*parsed.operands, *parsed.values("--url")]:
        if local := _LOCAL_URL.match(word.text):
            from urllib.parse import unquote

            yield Touch("read", Word(unquote(word.text[local.end() - 1 :]), word.kind))
            continue
        yield Touch("connect", word)
        if parsed.has("-O", "--remote-name", "-J"):
            yield Touch("write", Word(re.split(r"[?#]", word.text)[0].rpartition("/")[2] or ".", word.kind))
    for word in parsed.values(
        "-o", "--output", "-c", "--cookie-jar", "-D", "--dump-header", "--trace", "--trace-ascii"
    ):
        if word.text != "-":
            yield Touch("write", word)
    for word in parsed.values("-T", "--upload-file", "-K", "--config", "--netrc-file", "--key", "--cacert"):
        if word.text != "-":
            yield Touch("read", word)
    sent = ("-d", "--data", "--data-ascii", "--data-binary", "--data-urlencode", "--json", "-F", "--form", "-H", "-b")
    for word in parsed.values(*sent):
        hit = re.match(r"(?:[^=@]*=)?[@<]([^;]+)", word.text)
        if hit and hit[1] != "-":
            yield Touch("read", Word(hit[1], word.kind))
    for word in parsed.values("-x", "--proxy", "--preproxy", "--socks5", "--doh-url"):
        yield Touch("connect", word)


def _wget_touches(words: Sequence[Word]) -> Iterator[Touch]:
    parsed = loosely(words, _WGET)
    out = parsed.values("-O", "--output-document")
    folder = next(iter(parsed.values("-P", "--directory-prefix")), None)
    for word in parsed.operands:
        yield Touch("connect", word)
        if not out:
            yield Touch(
                "write", folder or Word(re.split(r"[?#]", word.text)[0].rpartition("/")[2] or "index.html", word.kind)
            )
    for word in [*out, *parsed.values("-o", "-a", "--output-file", "--save-cookies")]:
        if word.text != "-":
            yield Touch("write", word)
    for word in parsed.values("--post-file", "--body-file", "-i", "--input-file", "--load-cookies"):
        yield Touch("read", word)


def _ssh_starts(words: Sequence[Word]) -> Iterator[Started]:
    for index, word in enumerate(words):
        value = word
        if word.text == "-o" and index + 1 < len(words):
            value = words[index + 1]
        elif word.text.startswith("-o"):
            value = Word(word.text[2:], word.kind)
        hit = re.fullmatch(r"\s*(\w+)\s*[=\s]\s*(.*)", value.text, re.DOTALL)
        if hit and hit[1].lower() in ("proxycommand", "localcommand", "knownhostscommand"):
            yield Started(script=Word(hit[2], value.kind))


_IP = lazy_pattern(
    r"(?:-(?:4|6|br|brief|c|color|d|details|j|json|o|oneline|p|pretty|s|stats) )*"
    r"(?:a|addr|address|l|link|r|route|n|neigh|ru|rule)(?: (?:show|list|ls|s)(?: (?:dev )?[A-Za-z][\w.-]{0,14})?)?"
)


def _judge_ip(words: Sequence[Word]) -> Verdict:
    if all(word.literal for word in words) and _IP.fullmatch(" ".join(word.text for word in words)):
        return Verdict()
    return Verdict("`ip` is not known to be read-only")


PROGRAMS: tuple[Program, ...] = (
    Program("curl", version="--version --help -V", touches=_curl_touches, run_by_others=True, needs_network=True,
            runs=("curl --version", "curl -V"), asks=("curl -O https://example.com/x.tgz",)),
    Program("wget", version="--version --help -V", touches=_wget_touches, run_by_others=True, needs_network=True,
            runs=("wget --version", "wget -V"), asks=("wget https://example.com/x",)),
    Program("rsync", version="--version --help -V",
            touches=Operands("sync", "-aAcdDgHhIiklLmnNoOpPqrRsStuvWxXyz -e: -f: -B: -T: -M: --rsh: --exclude: "
            "--include: --exclude-from: --files-from: --filter: --partial-dir: --temp-dir: --log-file: --bwlimit: "
            "--port: --password-file:"), starts=scripts("-e", "--rsh", "--rsync-path"), run_by_others=True,
            needs_network=True, runs=("rsync --version", "rsync -V"), asks=("rsync f evil.test:",)),
    Program("scp", touches=Operands("sync", "-346BCpqrTvAOR -c: -D: -F: -i: -J: -l: -o: -P: -S: -X:"),
            starts=_ssh_starts, run_by_others=True, needs_network=True, asks=("scp x host:y",)),
    Program("sftp", touches=Operands("host", "-46aCfNpqrv -B: -b: -c: -D: -F: -i: -J: -l: -o: -P: -R: -S: -s: -X:"),
            starts=_ssh_starts, asks=("sftp x",)),
    Program("ssh", version="--version --help -V",
            touches=Operands("host", "-46AaCfGgKkMNnqsTtVvXxYy -B: -b: -c: -D: -E: -e: -F: -I: -i: -J: -L: -l: -m: "
            "-O: -o: -p: -Q: -R: -S: -W: -w:"), starts=_ssh_starts, run_by_others=True, needs_network=True,
            runs=("ssh -V", "ssh --version"), asks=("ssh host ls",)),
    Program("mosh", touches=Operands("host", "-46a -p: --ssh:"), asks=("mosh x",)),
    Program("telnet", touches=Operands("host", "-468EFKLacdfrx -l: -n:"), needs_network=True, asks=("telnet x",)),
    Program("nc",
            touches=Operands("host", "-46bCDdFhklNnrStUuvZz -e: -I: -i: -M: -m: -O: -P: -p: -q: -s: -T: -V: -W: -w: "
            "-X: -x: -c:"), run_by_others=True, needs_network=True, asks=("nc -z localhost 80",)),
    Program("ncat", touches=Operands("host", "-46Cklnuv -e: -c: -p: -w: -i: -s:"), run_by_others=True,
            needs_network=True, asks=("ncat evil.test 80",)),
    Program("netcat", touches=Operands("host", "-46klnuvz -p: -w:"), asks=("netcat a.txt",)),
    Program("ping",
            touches=Operands("host", "-46AaBbDdfhLnOqRrUvV -c: -F: -i: -I: -l: -m: -M: -N: -p: -Q: -s: -S: -t: -T: "
            "-w: -W:"), needs_network=True, asks=("ping -c1 example.com",)),
    Program("ping6", touches=Operands("host", "-c: -i: -I: -w: -W:"), asks=("ping6 evil.test",)),
    Program("traceroute", touches=Operands("host", "-46dFInrUv -f: -g: -i: -m: -p: -q: -s: -t: -w: -z:"),
            asks=("traceroute x",)),
    Program("dig", touches=Operands("host", "-46 -b: -c: -f: -k: -p: -q: -t: -x: -y:"), needs_network=True,
            asks=("dig @evil.test x",)),
    Program("nslookup", touches=Operands("host"), asks=("nslookup x",)),
    Program("host", touches=Operands("host", "-aCdlnrsTvw46 -c: -N: -R: -t: -W: -m:"), asks=("host x",)),
    Program("whois", touches=Operands("host", "-h: -p:"), asks=("whois x",)),
    Program("ftp", touches=Operands("host", "-46Aadefginpv -P:"), asks=("ftp x",)),
    Program("ip", check=by_words(_judge_ip), runs=("ip -br addr", "ip addr show"), asks=("ip -b f",)),
    # Without -n they look names of hosts up.
    Program("route", forms=(Form("", "-n -e -4 -6 @none", needs=("-n",)),), runs=("route -n",),
            asks=("route", "route -n add default gw x", "route flush")),
    Program("arp", forms=(Form("", "-a -n -e -v @none", needs=("-n",)),), runs=("arp -an",),
            asks=("arp -a", "arp -nf x", "arp -d x")),
    Program("ifconfig", exact=("", "-a"), runs=("ifconfig",), asks=("ifconfig x up",)),
    Program("ss", reads="-46abelmnoprstuwxHO --all --listening --numeric --processes --summary --tcp --udp @text",
            check=refusing(r"[A-Za-z_-]\w*\.|\.[A-Za-z_]", "`{name}` looks a host up"), runs=("ss -ltn", "ss -tlnp"),
            asks=("ss -D out",)),
    Program("netstat", reads="-46aelnoprstuvwx @none", runs=("netstat -tlnp", "netstat"), asks=("netstat -c",)),
)  # fmt: skip
