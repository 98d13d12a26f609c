"""Every simple command is found, through every wrapper and construct."""

from __future__ import annotations

import time

import pytest

from surehand.core.effects import Unreadable
from surehand.shell import ShellReport, understand

CWD, HOME = "/work/space", "/home/user"


def _report(command: str) -> ShellReport:
    return understand(command, CWD, home=HOME)


WRAPPED = r"""
sudo rm -rf src
sudo -n rm -rf src
sudo -u bob -E X=1 rm -rf src
sudo --user=bob -- rm -rf src
doas -u bob rm -rf src
env rm -rf src
env -i rm -rf src
env -u X -C /tmp A=1 B=2 rm -rf src
env - A=1 rm -rf src
env -S 'rm -rf src'
env -iS 'A=1 rm -rf src'
env --split-string='rm -rf' src
nohup rm -rf src
timeout 5 rm -rf src
timeout -k 1 -s KILL 5 rm -rf src
timeout --preserve-status --kill-after=1 5s rm -rf src
nice rm -rf src
nice -n 5 rm -rf src
nice -5 rm -rf src
nice -n 5 stdbuf -oL setsid -w rm -rf src
ionice -c 3 rm -rf src
chrt -f 5 rm -rf src
taskset -c 0 rm -rf src
stdbuf -o L rm -rf src
setsid rm -rf src
time rm -rf src
time -p rm -rf src
/usr/bin/time -f %e rm -rf src
command rm -rf src
command -p rm -rf src
builtin command rm -rf src
exec rm -rf src
exec -a x rm -rf src
xargs rm -rf src
xargs -0 -n 1 -P4 -I{} rm -rf src
find . -exec rm -rf src \;
find . -name x -execdir rm -rf src +x \;
find . -ok rm -rf src ';'
fd -x rm -rf src
bash -c 'rm -rf src'
bash -xec 'rm -rf src' _ a b
bash -o pipefail -c 'rm -rf src'
sh -c "rm -rf src"
zsh -c 'rm -rf src'
dash -c 'rm -rf src'
bash -c "bash -c 'rm -rf src'"
eval rm -rf src
eval 'rm -rf src'
eval "rm" "-rf src"
trap 'rm -rf src' EXIT
trap -- 'rm -rf src' INT TERM
su -c 'rm -rf src'
su bob -c 'rm -rf src'
runuser -u bob -- rm -rf src
script -qc 'rm -rf src' /dev/null
watch -n 1 rm -rf src
busybox rm -rf src
flock /tmp/x rm -rf src
chroot / rm -rf src
unshare -r rm -rf src
strace -f rm -rf src
ls | entr rm -rf src
parallel rm -rf src
/lib64/ld-linux-x86-64.so.2 rm -rf src
git bisect run rm -rf src
git -c alias.x='!rm -rf src' x
git submodule foreach 'rm -rf src'
git rebase -x 'rm -rf src' main
go test -exec 'rm -rf src' ./...
tar -cf x y --checkpoint=1 --checkpoint-action=exec='rm -rf src'
tar --to-command='rm -rf src' -xf x
rsync -e 'rm -rf src' a b:c
rg --pre='rm -rf src' x
kubectl get pods --kubeconfig='rm -rf src'
sort --compress-program='rm -rf src' x
ssh -oProxyCommand='rm -rf src' host
ssh -o 'ProxyCommand rm -rf src' host
echo 'rm -rf src' | sh
printf 'rm -rf src' | bash -s
cat <<'EOF' | bash
rm -rf src
EOF
bash <<EOF
rm -rf src
EOF
sh <<< 'rm -rf src'
r'm' -rf src
"rm" -rf src
\rm -rf src
r\m -rf src
$'rm' -rf src
$'\x72\x6d' -rf src
/usr/bin/rm -rf src
A=1 B=2 rm -rf src
A= rm -rf src
X=rm; $X -rf src
{rm,-rf,src}
f(){ rm -rf src; }; f
function f { rm -rf src; }
(rm -rf src)
{ rm -rf src; }
! rm -rf src
rm -rf src &
true; rm -rf src
true && rm -rf src
false || rm -rf src
echo x | rm -rf src
if rm -rf src; then :; fi
if x; then :; elif y; then rm -rf src; fi
while rm -rf src; do :; done
until x; do rm -rf src; done
for i in a; do rm -rf src; done
for ((;;)); do rm -rf src; done
select i in a; do rm -rf src; done
case a in *) rm -rf src;; esac
coproc rm -rf src
coproc n { rm -rf src; }
echo $(rm -rf src)
echo "`rm -rf src`"
cat <(rm -rf src)
ls > >(rm -rf src)
echo ${x:-$(rm -rf src)}
echo $((1 + $(rm -rf src)))
[[ -n $(rm -rf src) ]]
x=$(rm -rf src)
a=($(rm -rf src))
a[$(rm -rf src)]=1
export x=$(rm -rf src)
cat <<EOF
$(rm -rf src)
EOF
""".strip()


def _cases(text: str) -> list[str]:
    lines = text.replace("\nrm -rf src\nEOF", "¶rm -rf src¶EOF").replace("\n$(rm -rf src)\nEOF", "¶$(rm -rf src)¶EOF")
    return [line.replace("¶", "\n") for line in lines.split("\n")]


@pytest.mark.parametrize("command", _cases(WRAPPED))
def test_a_command_is_found_through_wrapper_quoting_and_construct(command: str) -> None:
    report = _report(command)
    assert report.ok, report.error
    found = [each for each in report.commands if each.name == "rm"]
    assert [each.words[1:3] for each in found][:1] == [("-rf", "src")], report.commands
    assert not report.read_only


@pytest.mark.parametrize(
    "command",
    [
        "sudo --frobnicate rm x",
        "sudo -i rm x",
        "timeout --what 5 rm x",
        "timeout $T rm x",
        "nice $X rm x",
        "env -S 'a \"b\" $c' x",
        "xargs --unheard rm",
        "bash -c $X",
        'bash -c "$X"',
        "sh",
        "curl http://x | sh",
        "eval $X",
        "source x",
        ". x",
    ],
)
def test_a_wrapper_that_is_not_understood_is_unreadable(command: str) -> None:
    report = _report(command)
    assert any(isinstance(effect, Unreadable) for effect in report.effects)
    assert not report.read_only


def test_positions_wrappers_assignments_and_nesting_are_told() -> None:
    report = _report("A=1 sudo ls | grep $(cat x) && pwd")
    told = [(each.name, each.position, each.nested, each.wrappers, each.assignments) for each in report.commands]
    assert told == [
        ("sudo", 0, False, (), (("A", "1"),)),
        ("ls", 0, False, ("sudo",), (("A", "1"),)),
        ("cat", 0, True, (), ()),
        ("grep", 1, False, (), ()),
        ("pwd", 0, False, (), ()),
    ]
    assert [each.literal for each in report.commands] == [True, True, True, False, True]


def test_the_directory_of_each_command_is_told() -> None:
    report = _report("cd src && ls; (cd /etc && cat x); cat y; cd $X; cat z")
    told = [(each.words[-1], each.cwd) for each in report.commands if each.name in ("ls", "cat")]
    assert told == [("ls", "/work/space/src"), ("x", "/etc"), ("y", "/work/space/src"), ("z", None)]


@pytest.mark.parametrize(
    "command",
    [
        "f() { cd /etc; } && cat x",
        "f() { cd /etc; } || true && cat x",
        "f() { cd /etc; } > log && cat x",
        "f() ( cd /etc ) | cat x",
        "function f { cd /etc; } && cat x && f",
    ],
)
def test_what_follows_a_definition_is_no_part_of_its_body(command: str) -> None:
    report = _report(command)
    assert [each.cwd for each in report.commands if each.name == "cat"] == ["/work/space"]


def test_redirections_are_told_with_descriptor_and_whether_they_are_static() -> None:
    report = _report("ls 2>&1 >out <in 2>>$X <<EOF\ntext\nEOF")
    assert [(each.fd, each.op, each.target, each.static) for each in report.redirects] == [
        ("2", ">&", "1", True),
        ("", ">", "out", True),
        ("", "<", "in", True),
        ("2", ">>", "$X", False),
        ("", "<<", "EOF", True),
    ]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("grep x a", "search"),
        ("find . -name x", "search"),
        ("cat a", "read"),
        ("grep x a | wc -l", "read"),
        ("cat a | grep x", "read"),
        ("ls", "list"),
        ("cat a; ls", "list"),
        ("find . | xargs echo", "search"),
        ("mkdir x", "silent"),
        ("ls && rm x", "silent"),
        ("ls > out", "write"),
        ("rm x > out", "write"),
        ("echo x > out", "write"),
        ("ls > /dev/null", "list"),
        ("npm test", "general"),
        ("ls | npm test", "general"),
        ("cat a && make", "general"),
        ("echo x | cat", "read"),
        ("printf x && ls", "list"),
        ("test -f x && cat x", "read"),
        ("sudo ls", "list"),
        ("sed -i s/a/b/ x", "write"),
        ("find . -delete", "write"),
        ("sort -o x y", "write"),
        ("echo hi", "general"),
        ("'", "general"),
    ],
)
def test_a_line_has_the_class_of_its_least_safe_part(command: str, expected: str) -> None:
    assert _report(command).class_ == expected


def test_a_report_says_why_it_is_not_read_only() -> None:
    report = _report("git -c core.autocrlf=x log > out")
    assert report.reasons == (
        "`git -c` before the subcommand is not known to be read-only",
        "`> out` writes",
    )


def test_a_parse_error_names_line_and_column() -> None:
    report = _report("ls\nif true; then ls")
    assert not report.ok
    assert "line 2, column 1" in report.error
    assert report.commands == ()


@pytest.mark.parametrize("wrapper", ["eval ", "bash -c "])
def test_a_long_script_that_is_wrapped_very_often_is_given_up_soon(wrapper: str) -> None:
    began = time.process_time()
    report = _report(wrapper * 9_000 + "true")
    assert not report.read_only
    assert time.process_time() - began < 60  # what hangs, hangs without end
