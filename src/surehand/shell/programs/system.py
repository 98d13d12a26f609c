"""Programs that show the state of the system and its network, and those that talk to hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from surehand.core.text import lazy_pattern
from surehand.shell import options
from surehand.shell.options import Verdict
from surehand.shell.programs.record import Call, Form, Program, by_words, refusing
from surehand.shell.touches import Operands, Touch, parse_leniently
from surehand.shell.word import Word
from surehand.shell.wrappers import Started, scripts


def _judge_ps(call: Call) -> Verdict:
    """Judge `ps`; its BSD option `e`, without a dash, shows the environment of every process."""
    parsed = options.parse(call.words, options.flags(call.program.reads))
    before = ""
    for word in parsed.operands:
        value = re.fullmatch(r"[A-Za-z]*[oOpqtUkN]", before) is not None
        if not word.literal or (not value and "e" in word.text.lower()):
            return Verdict("`ps e` shows the environment of processes", unreadable=not word.literal)
        before = "" if value else word.text
    if _reads_as_bsd(parsed):
        return Verdict("`ps` may take its options for those without a dash, of which `e` shows the environment")
    if any("env" in word.text.lower() for word in call.words):
        return Verdict("`ps` may show the environment of processes")
    # An unknown process id (`ps -p $$`) is one word and never an option.
    certain = [Word("0") if word.kind == "opaque" and not word.many else word for word in call.words]
    return call.judge_options(certain)


def _reads_as_bsd(parsed: options.Parsed) -> bool:
    """Whether `ps` may read options with a dash as BSD options: `ps -auxe`, `ps -et`."""
    letters = [
        name[1:] + ("" if value is None or name in ("-o", "-O") else value.text) for name, value in parsed.options
    ]
    lacks = any(value is None and name[1:] in "CGgoOpstuU" for name, value in parsed.options)
    return any("e" in each for each in letters) and (lacks or any("x" in each for each in letters))


_lsof_addresses = refusing(r"@.*[A-Za-z]", "`{name}` looks a host up")


def _judge_lsof(call: Call) -> Verdict:
    """Judge `lsof`; an unknown process id (`lsof -p $$`) is one word and never an option."""
    certain = [
        Word("0") if before.text == "-p" and word.text in _PROCESSES and not word.many else word
        for before, word in zip((Word(""), *call.words), call.words, strict=False)
    ]
    return _lsof_addresses(Call(call.program, call.name, certain))


# Harmless properties of a unit; others contain variables, credentials and command lines.
_UNIT_PROPERTIES = options.names(
    """Id Names Description LoadState ActiveState SubState UnitFileState UnitFilePreset FragmentPath DropInPaths Result
    Type Restart NRestarts MainPID ControlPID ExecMainPID ExecMainCode ExecMainStatus ExecMainStartTimestamp
    ExecMainExitTimestamp ActiveEnterTimestamp ActiveExitTimestamp InactiveEnterTimestamp InactiveExitTimestamp
    StateChangeTimestamp MemoryCurrent MemoryPeak MemoryMax TasksCurrent TasksMax CPUUsageNSec User Group Slice
    ControlGroup WorkingDirectory Requires Wants WantedBy After Before Conflicts TriggeredBy Triggers NeedDaemonReload
    NextElapseUSecRealtime LastTriggerUSec"""
)
_SYSTEMCTL_SHOW = "-p: -P: --property: --value --no-pager @text"


def _judge_systemctl(call: Call) -> Verdict:
    """Judge `systemctl show`, which prints the environment of a unit unless properties are selected."""
    if [word.text for word in call.words[:1]] != ["show"]:
        return Verdict(f"`{call.name}` is not known to be read-only")
    known = options.flags(_SYSTEMCTL_SHOW)
    values = options.parse(call.words[1:], known).values("-p", "-P", "--property")
    named = {name for value in values for name in (value.text if value.literal else "?").split(",")}
    if not named or not named <= _UNIT_PROPERTIES:
        return Verdict("`systemctl show` may print the environment of a unit")
    return options.judge_words("systemctl show", call.words[1:], known)


def _judge_journalctl(call: Call) -> Verdict:
    """Judge `journalctl`. `-1` is a value in `-b -1`; operands must be fields (`_PID=1`), not paths."""
    words = [
        word
        for before, word in zip((Word(""), *call.words), call.words, strict=False)
        if not (before.text == "-b" and word.literal and re.fullmatch(r"-\d{1,3}", word.text))
    ]
    known = options.flags(call.program.reads)
    if odd := next((each for each in options.parse(words, known).operands if not _FIELD.fullmatch(each.text)), None):
        return Verdict(f"`journalctl {odd.text}` is not known to be read-only")
    return call.judge_options(words)


_FIELD = lazy_pattern(r"_?[A-Z][A-Z_]*=[\w./@:-]*|\+")
_PROCESSES = options.names("""$$ "$$" $! "$!" $PPID "$PPID" """)
_IDENTIFIER = lazy_pattern(r"[A-Za-z_]\w*", re.ASCII)


def _judge_printenv(call: Call) -> Verdict:
    named = [word for word in call.words if not (word.literal and word.text.startswith("-"))]
    if not named:
        return Verdict("prints the whole environment")
    if not all(word.literal and _IDENTIFIER.fullmatch(word.text) for word in named):
        return Verdict("prints a variable whose name is not literal", unreadable=True)
    return call.judge_options()


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
_RSYNC_TELLS = (
    "-acghiHlnopPqrRtuvxzDWS --dry-run --archive --recursive --verbose --quiet --checksum --delete --existing "
    "--update --ignore-existing --itemize-changes --human-readable --stats --size-only --progress --exclude: "
    "--include: --max-size: --min-size: @walk_operands"
)
_LOCAL_URL = lazy_pattern(r"file:(?://[^/]*)?/", re.IGNORECASE)


def _curl_touches(words: Sequence[Word]) -> Iterator[Touch]:
    parsed = parse_leniently(words, _CURL)
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
    parsed = parse_leniently(words, _WGET)
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
    r"(?:(?:a|addr|address|l|link|r|route|n|neigh|ru|rule|maddr|mroute|tunnel|netconf)"
    r"(?: (?:show|list|ls|s)(?: up)?(?: (?:dev )?[A-Za-z][\w.-]{0,14})?(?: up)?)?"
    r"|(?:r|route) get [0-9a-fA-F.:]+)"
)


def _judge_ip(words: Sequence[Word]) -> Verdict:
    if all(word.literal for word in words) and _IP.fullmatch(" ".join(word.text for word in words)):
        return Verdict()
    return Verdict("`ip` is not known to be read-only")


PROGRAMS: tuple[Program, ...] = (
    Program("date", heeds="own", kind="read",
            reads="-uRI? -d: -r:r -u -R --date: --utc --universal --rfc-email --rfc-3339: --iso-8601? --reference:r "
            "--debug @date", runs=("date -d @0", "date -u +%FT%TZ"), asks=("date -s now",)),
    Program("cal", aliases=("ncal",), reads="-1 -3 -b -j -h -J -M -p -s -S -y -Y -w -n: -A: -B: -d: -m? * @text",
            runs=("cal 2024", "cal", "ncal", "cal $(date +%Y)"), asks=("cal --output=out a.txt",)),
    Program("uname", heeds="own", kind="list",
            reads="-asnrvmpio --all --kernel-name --nodename --kernel-release --kernel-version --machine "
            "--processor --hardware-platform --operating-system * @none", runs=("uname -a", "uname -m"),
            asks=("uname a.txt",)),
    Program("arch", kind="list", reads="* @none", runs=("arch", "arch --version"), asks=("arch a.txt",)),
    Program("nproc", kind="list", reads="--all --ignore: @none", runs=("nproc", "nproc --version"),
            asks=("nproc a.txt",)),
    Program("whoami", heeds="own",
            kind="list", reads="* @none", runs=("whoami", "whoami --version"), asks=("whoami a.txt",)),
    Program("logname", reads="* @none", runs=("logname", "logname --version"), asks=("logname a.txt",)),
    Program("id", heeds="own",
            kind="list", reads="-aGgnruzZ --group --groups --name --real --user --zero --context * @text",
            runs=("id -u", "id -Gn"), asks=("id --output=out a.txt",)),
    Program("groups", kind="list", reads="* @text", runs=("groups root", "groups"),
            asks=("groups --output=out a.txt",)),
    Program("users", kind="list", reads="* @none", runs=("users", "users --version"), asks=("users a.txt",)),
    Program("who", kind="list", reads="-abdHlmpqrstTu --all --heading * @read", runs=("who -b", "who"),
            asks=("who --lookup",)),
    Program("w", kind="list", reads="-hfsio @text", runs=("w",), asks=("w --output=out a.txt",)),
    Program("last", forms=(Form("", "-awxFiRd -n: -# @text", operand=r"[\w-]+"),), runs=("last -5", "last reboot"),
            asks=("last -f x",)),
    *(Program(name, forms=(Form(""),), version="--version --help", runs=(name,), asks=(f"{name} --sysroot x",))
      for name in ("lastlog", "lsfd", "lsipc", "lsirq", "lslocks", "lslogins", "lsmem", "lsns")),
    Program("sensors", forms=(Form("", "-A -u -j -f @none"),), runs=("sensors",), asks=("sensors -c x", "sensors -s")),
    Program("namei", kind="list", reads="-l -m -o -v -x --long --modes --owners --vertical @read",
            runs=("namei -l src/app.py",), asks=("namei --output=x a.txt",)),
    Program("infocmp", forms=(Form("", "-1 -C -L -x @text", operand=r"[\w+-]+"),), runs=("infocmp -1",),
            asks=("infocmp -A x y",)),
    Program("fuser", kind="list", forms=(Form("", "-v -a -u -n: -4 -6 @read", least=1, operand=r"[\w./-]+"),),
            exit_1_means_no=True, runs=("fuser -v 8080/tcp", "fuser README.md"),
            asks=("fuser -k 8080/tcp", "fuser -m /", "fuser")),
    Program("hostname", heeds="own", kind="list",
            reads="-fsdiIAy --fqdn --long --short --domain --ip-address --all-ip-addresses --all-fqdns @none",
            runs=("hostname -I", "hostname -f"), asks=("hostname -F f",)),
    Program("hostid", reads="@none", runs=("hostid", "hostid --version"), asks=("hostid a.txt",)),
    Program("hostnamectl",
            forms=(Form("", "--static --pretty --transient --json: @none"), Form("status", "--json: @none")),
            runs=("hostnamectl",), asks=("hostnamectl hostname x",)),
    Program("tty", reads="-s --silent --quiet @none", runs=("tty", "tty --version"), asks=("tty a.txt",)),
    Program("stty", forms=(Form("-a"), Form("size"), Form("speed")), runs=("stty -a", "stty size"),
            asks=("stty raw",)),
    Program("tput", reads="@text",
            check=refusing(r"\A(?:init|reset)\Z", "`tput` runs the program that sets a terminal up"),
            runs=("tput cols",), asks=("tput -S",)),
    Program("uptime", heeds="own", kind="list", reads="-ps --pretty --since @none", runs=("uptime -p", "uptime"),
            asks=("uptime a.txt",)),
    Program("free", kind="list",
            reads="-bkmghltw -s: -c: --bytes --kibi --mebi --gibi --human --si --lohi --total --wide @none",
            runs=("free -g", "free -h"), asks=("free a.txt",)),
    Program("ps", heeds="own", kind="list",
            reads="-AadefFHjlLmMNrTuvwxXyZcgsS1 -C: -G: -g: -o: -O: -p: -s: -t: -u: -U: --pid: --ppid: --sort: "
            "--format: --forest --no-headers --headers --cols: --columns: --width: --user: --group: --sid: --tty: "
            "--deselect @text", check=_judge_ps, runs=("ps -p 1", "ps -u root", "ps -eo pid,args"),
            asks=("ps 'e f'", "ps -auxe", "ps -xe", "ps -et")),
    Program("pgrep", heeds="own", kind="list",
            reads="-acfilLnovwx -d: -g: -G: -P: -s: -t: -u: -U: --list-name --list-full --count --full --exact "
            "--newest --oldest --parent: --euid: * @text", exit_1_means_no=True,
            runs=("pgrep -a node", "pgrep -f node"), asks=("pgrep --output=out a.txt",)),
    Program("pidof", kind="list", reads="-sqcx -o: * @text", exit_1_means_no=True, runs=("pidof bash",),
            asks=("pidof --output=out a.txt",)),
    Program("pstree", kind="list", reads="-aAcghlnNpsStTuUZ -H: * @text", runs=("pstree -p", "pstree", "pstree -a $$"),
            asks=("pstree --output=out a.txt",)),
    Program("kill", version="--version --help -V", run_by_others=True, runs=("kill --version", "kill -V"),
            asks=("kill 123",)),
    Program("killall", aliases=("pkill",), run_by_others=True, asks=("killall x",)),
    Program("vmstat", reads="-adDfmnstwS: @text", runs=("vmstat 1 1", "vmstat"), asks=("vmstat --output=out a.txt",)),
    Program("iostat", forms=(Form("", "-cdhkmNtxyz @text", operand=r"\d{1,3}"),), runs=("iostat",),
            asks=("iostat a.txt",)),
    Program("sar", forms=(Form("", "-A -b -B -d -F -H -h -p -q -r -R -S -u -v -w -W -y -P: -n: @text",
                               operand=r"\d{1,3}"),), runs=("sar -u 1 3", "sar -q 1 1"),
            asks=("sar -o x 1 1", "sar -f x", "sar -u 1 3 out")),
    Program("mpstat", forms=(Form("", "-A -P: -u @text", operand=r"\d{1,3}"),), runs=("mpstat",),
            asks=("mpstat a.txt",)),
    Program("top", reads="-bHiSc -n: -d: -p: -o: -u: -w? -E: -e: -# @none", runs=("top -bn1", "top"),
            asks=("top -b -n1 -x",)),
    Program("lscpu", kind="list", reads="-abceJpxy -e? -p? --all --extended? --json --parse? @none",
            runs=("lscpu", "lscpu --version"), asks=("lscpu a.txt",)),
    Program("lsmod", reads="@none", runs=("lsmod", "lsmod --version"), asks=("lsmod a.txt",)),
    Program("lspci", forms=(Form("", "-nvkmtDx @none"),), runs=("lspci -nn", "lspci"), asks=("lspci -A x",)),
    Program("lsusb", forms=(Form("", "-tv -d: -s: @none"),), runs=("lsusb",), asks=("lsusb -D x",)),
    Program("lshw", forms=(Form("-short"),), runs=("lshw -short",), asks=("lshw a.txt",)),
    Program("lsblk", kind="list",
            reads="-abdDfJilmnOPpSstTz -o: -e: -I: -x: --all --bytes --fs --json --list --output: --paths "
            "--topology @text", runs=("lsblk -f", "lsblk"), asks=("lsblk --sysroot x",)),
    Program("lsof", kind="list", reads="-ablnPRtUVw -p: -i? -s? -c: -u: -d: @read",
            check=_judge_lsof, runs=("lsof -p 1", "lsof -i :3000", "lsof -p $$"),
            asks=("lsof -i @evil.test",)),
    Program("findmnt", reads="-aAlrJnuD -t: -o: --json --list --raw @text", runs=("findmnt /", "findmnt"),
            asks=("findmnt --output=out a.txt",)),
    Program("nvidia-smi",
            forms=(
                Form(""),
                Form("-L"),
                Form("-q"),
                Form("", "--query-gpu: --format: --query-compute-apps: @none", needs=("--query-gpu",
                     "--query-compute-apps")),
            ),
            runs=("nvidia-smi -L",), asks=("nvidia-smi -f x",)),
    Program("sysctl",
            forms=(Form("", "-n -e -N -b --values --names --ignore @text", operand=r"[a-z]\w*(?:[./][\w-]+)*"),),
            runs=("sysctl kernel.hostname",), asks=("sysctl -f x", "sysctl -n kernel/../../../etc/passwd")),
    Program("dmesg", forms=(Form("", "-HTtxkuP -l: -f: --human --ctime --level: @none"),), runs=("dmesg",),
            asks=("dmesg -n 1",)),
    Program("journalctl",
            reads="-aefrxqm -n: -u: -p: -S: -U: -g: -o: -t: -b? -k -N -F: --no-pager --since: --until: --unit: "
            "--lines: --priority: --output: --grep: --reverse --boot? --dmesg --list-boots --disk-usage --user "
            "--system --identifier: --facility: --field: --fields --merge --utc --no-hostname --no-full --all "
            "--catalog --quiet --case-sensitive? --follow --header --output-fields: --user-unit: @text",
            check=_judge_journalctl,
            runs=("journalctl -n 20", "journalctl -b -1 -n 20 --no-pager", "journalctl _PID=1 -t kernel"),
            asks=("journalctl -D /x", "journalctl -n --rotate", "journalctl /usr/bin/x", "journalctl -b --rotate",
                  "journalctl --cursor-file=x", "journalctl -1")),
    Program("systemctl",
            forms=(
                *(Form(words, "--no-pager -q --quiet -l --full -n: --lines: -o: --output: --user --system @text")
                  for words in ("status", "is-active", "is-enabled", "is-failed", "is-system-running", "get-default")),
                *(Form(f"{user}{words}", "--no-pager --no-legend --plain --all --type: --state: --failed --reverse "
                       "--recursive --user -a -l --full -t: @text")
                  for user in ("", "--user ")
                  for words in ("list-units", "list-unit-files", "list-timers", "list-sockets", "list-dependencies",
                                "list-jobs")),
                Form("--failed", "--no-pager --all -a @none"),
            ),
            check=_judge_systemctl, version="--version --help",
            runs=("systemctl status nginx", "systemctl status -l --no-pager nginx", "systemctl --user list-units",
                  "systemctl show -p ActiveState,SubState nginx"),
            asks=("systemctl restart nginx", "systemctl show nginx", "systemctl show -p Environment nginx",
                  "systemctl show -p Id -P Environment nginx", "systemctl cat nginx")),
    Program("systemd-analyze",
            forms=(
                *(Form(words, "--no-pager --user @none") for words in ("", "time", "blame")),
                Form("critical-chain", "--no-pager --user @text", operand=r"[\w.@:-]+"),
                *(Form(words, "@text") for words in ("calendar", "timespan", "timestamp")),
            ),
            version="--version --help", runs=("systemd-analyze blame", "systemd-analyze calendar daily"),
            asks=("systemd-analyze verify x.service", "systemd-analyze log-level debug", "systemd-analyze blame -H x")),
    Program("loginctl",
            forms=(*(Form(words, "--no-pager --no-legend @none") for words in ("", "list-sessions", "list-users",
                                                                              "list-seats")),),
            version="--version --help", runs=("loginctl", "loginctl list-sessions"),
            asks=("loginctl terminate-session 1", "loginctl -H x")),
    Program("networkctl", forms=tuple(Form(words, "-a --all --no-pager --no-legend @text", operand=r"[\w.-]+")
                                      for words in ("status", "list")), exact=("",),
            version="--version --help", runs=("networkctl status", "networkctl list"), asks=("networkctl down eth0",)),
    Program("timedatectl",
            forms=(
                Form(""),
                Form("status"),
                Form("show", "-p: --property: --value -a --all @none"),
                Form("list-timezones", "--no-pager @none"),
            ),
            runs=("timedatectl status",), asks=("timedatectl set-time x",)),
    Program("localectl", forms=(Form(""), Form("status"), Form("list-locales", "--no-pager @none")),
            runs=("localectl",), asks=("localectl set-locale x",)),
    Program("getconf", reads="-a @text", runs=("getconf ARG_MAX", "getconf LONG_BIT"), asks=("getconf -v ../x y",)),
    Program("getent",
            forms=tuple(Form(database, "@text") for database in ("passwd", "group", "services", "protocols")),
            runs=("getent passwd root", "getent group"), asks=("getent hosts evil.test",)),
    Program("locale", reads="-a -m -c -k --all-locales --charmaps @text", runs=("locale",),
            asks=("locale --output=out a.txt",)),
    Program("printenv", kind="read", reads="-0 --null * @text", check=_judge_printenv, heeds="none",
            runs=("printenv HOME USER", "printenv HOME"), asks=("printenv -0",)),
    Program("uuidgen", kind="read", forms=(Form("", "-r --random @none"),), version="--version --help",
            runs=("uuidgen",), asks=("uuidgen -t",)),
    Program("ssh-keygen", kind="read", forms=(Form("", "-l -v -E: -f:r @none", needs=("-l",)),),
            runs=("ssh-keygen -lf key.pub", "ssh-keygen -l -E md5 -f key.pub"),
            asks=("ssh-keygen -f x", "ssh-keygen -l -D x.so", "ssh-keygen -lf key.pub -p")),
    Program("lsb_release",
            forms=(Form("", "-aidrcsv --all --id --description --release --codename --short --version @none"),),
            runs=("lsb_release -a", "lsb_release -ds"), asks=("lsb_release x",)),
    Program("sw_vers", forms=(Form(""), Form("-productVersion"), Form("--productVersion"), Form("-buildVersion")),
            runs=("sw_vers", "sw_vers -productVersion"), asks=("sw_vers a.txt",)),
    Program("xcode-select", forms=(Form("-p"), Form("--print-path")), runs=("xcode-select -p",),
            asks=("xcode-select a.txt",)),
    Program("at", aliases=("batch",), runs_input=True, asks=("at now",)),
    Program("curl", version="--version --help -V", touches=_curl_touches, run_by_others=True, needs_network=True,
            runs=("curl --version", "curl -V"), asks=("curl -O https://example.com/x.tgz",)),
    Program("wget", version="--version --help -V", touches=_wget_touches, run_by_others=True, needs_network=True,
            runs=("wget --version", "wget -V"), asks=("wget https://example.com/x",)),
    Program("rsync", version="--version --help -V",
            forms=(Form("", _RSYNC_TELLS, needs=("-n", "--dry-run"), operand="[^:]+", least=1, everything=True),),
            touches=Operands("sync", "-aAcdDgHhIiklLmnNoOpPqrRsStuvWxXyz -e: -f: -B: -T: -M: --rsh: --exclude: "
            "--include: --exclude-from: --files-from: --filter: --partial-dir: --temp-dir: --log-file: --bwlimit: "
            "--port: --password-file:"), starts=scripts("-e", "--rsh", "--rsync-path"), run_by_others=True,
            needs_network=True, runs=("rsync --version", "rsync -V", "rsync -avn --delete src/ docs/"),
            asks=("rsync f evil.test:", "rsync -n f evil.test:", "rsync -av src/ docs/", "rsync -avn --no-n src/ docs/",
                  "rsync -n --log-file=x src/ docs/", "rsync -n --write-batch=x src/ docs/")),
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
    Program("ip", check=by_words(_judge_ip), runs=("ip -br addr", "ip addr show", "ip route get 1.1.1.1"),
            asks=("ip -b f", "ip route get a.test")),
    # Without -n they resolve host names.
    Program("route", forms=(Form("", "-n -e -4 -6 @none", needs=("-n",)),), runs=("route -n",),
            asks=("route", "route -n add default gw x", "route flush")),
    Program("arp", forms=(Form("", "-a -n -e -v @none", needs=("-n",)),), runs=("arp -an",),
            asks=("arp -a", "arp -nf x", "arp -d x")),
    Program("ifconfig", exact=("-a",), forms=(Form("", "@one", operand=r"[A-Za-z]\w{0,14}"),),
            runs=("ifconfig", "ifconfig eth0"), asks=("ifconfig x up",)),
    Program("ss", reads="-46abelmnoprstuwxHO --all --listening --numeric --processes --summary --tcp --udp @text",
            check=refusing(r"[A-Za-z_-]\w*\.|\.[A-Za-z_]", "`{name}` looks a host up"), runs=("ss -ltn", "ss -tlnp"),
            asks=("ss -D out",)),
    Program("netstat", reads="-46aeilnoprstuvwx @none", runs=("netstat -tlnp", "netstat"), asks=("netstat -c",)),
)  # fmt: skip
