"""Commands that change files or talk to hosts: their options with values, and what their operands stand for.

The plan names how operands become effects (`effects.py` has one function per plan). Options matter only so far that
a value is not taken for an operand; an option that is not listed is taken to have no value of its own.
"""

from __future__ import annotations

PLANS: dict[str, tuple[str, str]] = {
    "rm": ("delete", "-rRfidvI --recursive --force --dir --verbose --interactive? --one-file-system --preserve-root?"),
    "unlink": ("delete", ""),
    "rmdir": ("delete", "-pv --parents --verbose --ignore-fail-on-non-empty"),
    "shred": ("delete", "-fuvxz -n: -s: --iterations: --size: --random-source:"),
    "srm": ("delete", "-rfvz"),
    "trash": ("delete", ""),
    "mv": ("move", "-bfinuvTZ -t: -S: --target-directory: --suffix: --backup?"),
    "cp": ("copy", "-abdfilLnPprRsuvxTZH -t: -S: --target-directory: --suffix: --backup? --preserve? --sparse:"),
    "install": ("copy", "-bcCDdpsTvZ -g: -m: -o: -S: -t: --group: --mode: --owner: --target-directory: --suffix:"),
    "ln": ("link", "-bdfFiLnPrsTv -t: -S: --target-directory: --suffix:"),
    "touch": ("write", "-acfhm -d: -r: -t: --date: --reference: --time:"),
    "mkdir": ("write", "-pvZ -m: --mode: --parents"),
    "mkfifo": ("write", "-m: --mode:"),
    "mknod": ("first", "-m: --mode:"),
    "truncate": ("write", "-co -r: -s: --reference: --size:"),
    "fallocate": ("write", "-cdinpxz -l: -o: --length: --offset:"),
    "tee": ("write", "-aip --append --ignore-interrupts --output-error?"),
    "sponge": ("write", "-a"),
    "chmod": ("mode", "-cfvR --reference: --recursive"),
    "chown": ("mode", "-cfvhHLPR --from: --reference: --recursive"),
    "chgrp": ("mode", "-cfvhHLPR --reference: --recursive"),
    "chattr": ("mode", "-RVf"),
    "setfacl": ("write", "-bkRLPd -m: -x: -M: -X:"),
    "patch": ("patch", "-bcefNRstuvZ -B: -d: -D: -F: -g: -i: -o: -p: -r: -V: -Y: -z: --input: --output: --directory:"),
    "split": ("prefix", "-dexu -a: -b: -C: -l: -n: -t: --bytes: --lines: --filter:"),
    "csplit": ("prefix", "-ksz -b: -f: -n:"),
    "mkfs": ("device", "-Vv -t:"),
    "mke2fs": ("device", "-t: -b: -L:"),
    "mkswap": ("device", "-L:"),
    "wipefs": ("device", "-afnq"),
    "fdisk": ("device", "-l"),
    "sfdisk": ("device", "-l"),
    "gdisk": ("device", "-l"),
    "sgdisk": ("device", ""),
    "parted": ("device", "-ls"),
    "blkdiscard": ("device", "-f"),
    "cryptsetup": ("device", ""),
    "badblocks": ("device", "-wsv"),
    "hdparm": ("device", ""),
    "mount": ("write", "-arw -t: -o:"),
    "umount": ("write", "-afl"),
    "gzip": ("compress", "-cdfhklnNqrtvV123456789 -S:"),
    "gunzip": ("compress", "-cfklnNqrtv -S:"),
    "bzip2": ("compress", "-cdfkqstvz123456789"),
    "bunzip2": ("compress", "-cfkqstv"),
    "xz": ("compress", "-cdfklqtvz0123456789eT: -S:"),
    "unxz": ("compress", "-cfkqtv"),
    "zstd": ("compress", "-cdfklqrtv0123456789 -o:"),
    "zip": ("archive", "-rqujmy9 -x: -i: -P: -t:"),
    "unzip": ("extract", "-anoqjvltpZ -d: -x: -P:"),
    "7z": ("read", ""),
    "rsync": ("sync", "-aAcdDgHhIiklLmnNoOpPqrRsStuvWxXyz -e: -f: -B: -T: -M: --rsh: --exclude: --include: "
    "--exclude-from: "
              "--files-from: --filter: --partial-dir: --temp-dir: --log-file: --bwlimit: --port: --password-file:"),
    "scp": ("sync", "-346BCpqrTvAOR -c: -D: -F: -i: -J: -l: -o: -P: -S: -X:"),
    "sftp": ("host", "-46aCfNpqrv -B: -b: -c: -D: -F: -i: -J: -l: -o: -P: -R: -S: -s: -X:"),
    "ssh": ("host", "-46AaCfGgKkMNnqsTtVvXxYy -B: -b: -c: -D: -E: -e: -F: -I: -i: -J: -L: -l: -m: -O: -o: -p: -Q: "
    "-R: -S: -W: -w:"),
    "mosh": ("host", "-46a -p: --ssh:"),
    "telnet": ("host", "-468EFKLacdfrx -l: -n:"),
    "nc": ("host", "-46bCDdFhklNnrStUuvZz -e: -I: -i: -M: -m: -O: -P: -p: -q: -s: -T: -V: -W: -w: -X: -x: -c:"),
    "ncat": ("host", "-46Cklnuv -e: -c: -p: -w: -i: -s:"),
    "netcat": ("host", "-46klnuvz -p: -w:"),
    "ping": ("host", "-46AaBbDdfhLnOqRrUvV -c: -F: -i: -I: -l: -m: -M: -N: -p: -Q: -s: -S: -t: -T: -w: -W:"),
    "ping6": ("host", "-c: -i: -I: -w: -W:"),
    "traceroute": ("host", "-46dFInrUv -f: -g: -i: -m: -p: -q: -s: -t: -w: -z:"),
    "dig": ("host", "-46 -b: -c: -f: -k: -p: -q: -t: -x: -y:"),
    "nslookup": ("host", ""),
    "host": ("host", "-aCdlnrsTvw46 -c: -N: -R: -t: -W: -m:"),
    "whois": ("host", "-h: -p:"),
    "ftp": ("host", "-46Aadefginpv -P:"),
}  # fmt: skip

CURL = (
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
WGET = (
    "-bcdEFHhkKLmNnNpqrSvVx46 -A: -a: -B: -D: -e: -i: -I: -l: -o: -O: -P: -Q: -R: -t: -T: -U: -w: -X: "
    "--output-document: "
    "--output-file: --directory-prefix: --input-file: --header: --post-data: --post-file: --body-data: --body-file: "
    "--method: --user: --password: --user-agent: --referer: --tries: --timeout: --wait: --level: --accept: --reject: "
    "--domains: --load-cookies: --save-cookies: --ca-certificate: --certificate: --private-key: --execute: --config: "
    "--limit-rate: --quota: --bind-address: --use-askpass:"
)
