"""Programs that run the command given in their own words: wrappers like `env`, `sudo`, `timeout` and `xargs`."""

from __future__ import annotations

from surehand.shell.programs.record import Form, Program
from surehand.shell.wrappers import Wrapper, runner

_SUDO = (
    "-A -b -E -H -n -P -S -k -B -N -u: -g: -h: -p: -C: -r: -t: -T: -U: --askpass --background --preserve-env? "
    "--set-home "
    "--non-interactive --stdin --user: --group: --host: --prompt: --close-from: --role: --type: --command-timeout: "
    "--reset-timestamp --bell -D: --chdir:"
)
_XARGS = (
    "-0 -r -t -x -p -o -n: -P: -L: -l? -I: -i? -d: -E: -e? -s: --null --no-run-if-empty --verbose --exit "
    "--max-args: "
    "--max-procs: --max-lines? --replace? --delimiter: --eof? --max-chars: --interactive --open-tty"
)


PROGRAMS: tuple[Program, ...] = (
    Program("env", heeds="own", version="--version --help",
            wraps=Wrapper("-i -0 -v --ignore-environment --null --debug -u: --unset: -C: --chdir: --block-signal? "
            "--default-signal? --ignore-signal?", assigns=True, directory=("-C", "--chdir")), run_by_others=True,
            runs=("env -i ls", "env LANG=C ls"), asks=("env FOO=1 node x.js",)),
    Program("sudo", wraps=Wrapper(_SUDO, assigns=True, alters="runs as another user", directory=("-D", "--chdir")),
            run_by_others=True, asks=("sudo apt install -y jq",)),
    Program("doas", wraps=Wrapper("-n -L -u: -C:", alters="runs as another user"), run_by_others=True,
            asks=("doas ls",)),
    Program("nohup", version="--version --help",
            wraps=Wrapper("", alters="writes nohup.out and outlives the session"), runs=("nohup --version",),
            asks=("nohup ls",)),
    Program("timeout", heeds="own", version="--version --help",
            wraps=Wrapper("-v -k: -s: --verbose --foreground --preserve-status --kill-after: --signal:", operands=1),
            run_by_others=True, runs=("timeout 5 ls", "timeout 10 ls"), asks=("timeout 5 sh",)),
    Program("nice", version="--version --help", wraps=Wrapper("-n: --adjustment: -#"), run_by_others=True,
            runs=("nice ls",), asks=("nice rm f",)),
    Program("ionice", wraps=Wrapper("-c: -n: -t --class: --classdata: --ignore"), runs=("ionice -c 3 ls",),
            asks=("ionice -p 1",)),
    Program("chrt",
            wraps=Wrapper("-b -f -i -o -r -d -v --batch --fifo --idle --other --rr --verbose", operands=1,
            alters="priority"), asks=("chrt -p 1",)),
    Program("taskset", wraps=Wrapper("-c --cpu-list", operands=1), runs=("taskset 1 ls",), asks=("taskset -p 1 1",)),
    Program("stdbuf", version="--version --help", wraps=Wrapper("-i: -o: -e: --input: --output: --error:"),
            runs=("stdbuf -oL grep foo app.log", "stdbuf ls"), asks=("stdbuf -o0 rm f",)),
    Program("setsid", wraps=Wrapper("-c -f -w --ctty --fork --wait", alters="leaves the process group"),
            asks=("setsid touch x",)),
    Program("time", heeds="own", wraps=Wrapper("-p -v --portability --verbose -f: --format:"), run_by_others=True,
            runs=("time git status", "time ls"), asks=("time make",)),
    Program("command", forms=(Form("", "-vVp @text"),), wraps=Wrapper("-p"), run_by_others=True,
            exit_1_means_no=True, runs=("command -V ls", "command -v git"), asks=("command rm f",)),
    Program("builtin", wraps=Wrapper(""), runs=("builtin pwd",), asks=("builtin eval id",)),
    Program("exec", wraps=Wrapper("-c -l -a:", alters="replaces the shell"), run_by_others=True, asks=("exec rm x",)),
    Program("chroot",
            wraps=Wrapper("--userspec: --groups: --skip-chdir", operands=1, alters="runs under another root"),
            asks=("chroot . ls",)),
    Program("fakeroot", wraps=Wrapper("", alters="runs under fakeroot"), asks=("fakeroot ls",)),
    Program("unshare",
            wraps=Wrapper("-i -m -n -p -u -U -C -T -f -r -c -R: -w: -S: -G: --ipc? --mount? --net? --pid? --uts? "
            "--user? --cgroup? --time? --fork --map-root-user --map-current-user --mount-proc? --kill-child? "
            "--root: --wd: --setuid: --setgid:", alters="runs in other namespaces"), asks=("unshare -r id",)),
    Program("flock",
            wraps=Wrapper("-n -x -s -e -u -o -F -w: -E: --nonblock --exclusive --shared --unlock --close --no-fork "
            "--timeout: --wait: --conflict-exit-code: --verbose", operands=1, alters="takes a lock", as_script="-c"),
            asks=("flock x ls",)),
    Program("strace",
            wraps=Wrapper("-f -ff -c -C -q -r -t -T -v -x -y -i -k -e: -s: -a: -o: -O: -S: -P: -b: -u: -E: "
            "--follow-forks --output: --trace: --string-limit:", alters="traces a program"), asks=("strace ls",)),
    Program("ltrace", version="--version --help", starts=runner(),
            wraps=Wrapper("-f -c -C -i -r -t -T -S -e: -s: -a: -n: -l: -u: -o:", alters="traces a program"),
            runs=("ltrace --version",), asks=("ltrace ls",)),
    Program("setarch", wraps=Wrapper("-R -v --addr-no-randomize", operands=1, alters="changes the personality"),
            asks=("setarch a.txt",)),
    Program("setpriv",
            wraps=Wrapper("--no-new-privs --reuid: --regid: --clear-groups --init-groups", alters="changes rights"),
            asks=("setpriv ls",)),
    Program("runuser",
            wraps=Wrapper("-l -m -p -u: -s: -g: --login --user: --group:", alters="runs as another user",
            as_script="-c"), asks=("runuser -u x ls",)),
    Program("su",
            wraps=Wrapper("-l -m -p -s: -g: --login --preserve-environment", alters="runs as another user",
            as_script="-c"), asks=("su -c id",)),
    Program("script",
            wraps=Wrapper("-q -a -e -f --quiet --append --return --flush", alters="writes a transcript",
            as_script="-c"), asks=("script -c id",)),
    Program("xargs", heeds="own",
            version="--version --help", wraps=Wrapper(_XARGS, adds_words=True), run_by_others=True,
            runs=("xargs --version",), asks=("xargs jq .",)),
    Program("watch",
            wraps=Wrapper("-n: -d? -t -b -e -g -c -p -x --exec --interval: --differences? --no-title --beep "
            "--errexit --chgexit --color --precise", alters="runs again and again", as_script="*"),
            asks=("watch -n1 date",)),
    Program("entr", wraps=Wrapper("-a -c -d -n -p -r -z", alters="runs when files change", adds_words=True),
            asks=("entr touch x",)),
    Program("busybox", wraps=Wrapper("", alters="runs an applet"), run_by_others=True, asks=("busybox rm x",)),
    Program("toybox", wraps=Wrapper("", alters="runs an applet"), asks=("toybox ls",)),
    Program("unbuffer", wraps=Wrapper("-p", alters="runs on a terminal"), asks=("unbuffer ls",)),
    Program("rlwrap", wraps=Wrapper("", alters="runs on a terminal"), asks=("rlwrap sh",)),
    Program("catchsegv", wraps=Wrapper("", alters="traces a program"), asks=("catchsegv ls",)),
    Program("systemd-run",
            wraps=Wrapper("-q -G -d -P -t -p: -u: -E: --user --system --scope --quiet --wait --pipe --pty --collect "
            "--unit: --property: --setenv: --working-directory: --slice:", alters="starts a service"),
            asks=("systemd-run id",)),
    Program("systemd-inhibit",
            wraps=Wrapper("--what: --who: --why: --mode: --no-pager --list", alters="holds the system awake"),
            asks=("systemd-inhibit a.txt",)),
    Program("dbus-run-session", wraps=Wrapper("--dbus-daemon: --config-file:", alters="starts a message bus"),
            asks=("dbus-run-session a.txt",)),
    Program("xvfb-run",
            wraps=Wrapper("-a -l -e: -f: -n: -p: -s: -w: --auto-servernum --server-args:", alters="starts a "
            "display"), asks=("xvfb-run a.txt",)),
    Program("nsenter",
            wraps=Wrapper("-a -F -m? -u? -i? -n? -p? -C? -U? -T? -t: -S: -G: -r? -w? -W? -Z --all --target: "
            "--mount? --uts? --ipc? --net? --pid? --cgroup? --user? --time? --root? --wd? --no-fork "
            "--preserve-credentials", alters="runs in other namespaces"), asks=("nsenter -t 1 id",)),
    Program("prlimit",
            wraps=Wrapper("-v? -n? -u? -c? -d? -e? -f? -i? -l? -m? -q? -r? -s? -t? -x? -y? --as? --nofile? --nproc? "
            "--core? --cpu? --data? --fsize? --memlock? --rss? --stack?", alters="changes limits"),
            asks=("prlimit a.txt",)),
    Program("choom", wraps=Wrapper("-n: --adjust:", alters="changes limits"), asks=("choom a.txt",)),
    Program("numactl",
            wraps=Wrapper("-l -a -N: -m: -C: -i: -p: --localalloc --cpunodebind: --membind: --physcpubind: "
            "--interleave:"), runs=("numactl -l ls",), asks=("numactl a.txt",)),
    Program("cpulimit",
            wraps=Wrapper("-b -f -i -z -m -q -v -l: -c: --limit: --foreground --include-children", alters="stops "
            "it"), asks=("cpulimit a.txt",)),
    Program("firejail",
            wraps=Wrapper("--quiet --noprofile --private? --net: --profile: --seccomp? --noroot", alters="starts a "
            "jail"), asks=("firejail ls",)),
    Program("linux32", aliases=("linux64", "i386", "i686", "x86_64", "uname26"),
            wraps=Wrapper("-R -v --addr-no-randomize", alters="changes the personality"), asks=("linux32 a.txt",)),
    Program("caffeinate", wraps=Wrapper("-d -i -m -s -u -t: -w:", alters="keeps the machine awake"),
            asks=("caffeinate a.txt",)),
    Program("proxychains", wraps=Wrapper("-q -f:", alters="redirects the network"), asks=("proxychains a.txt",)),
    Program("torsocks", wraps=Wrapper("", alters="redirects the network"), asks=("torsocks a.txt",)),
)  # fmt: skip
