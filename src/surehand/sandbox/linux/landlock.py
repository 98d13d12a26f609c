"""Landlock: a process and all its children lose every write outside the named folders.

Where no mounts can hide secrets, they lose reads the same way.
"""

import os

from surehand.sandbox.linux.system import syscall

# Access rights by the version of the interface that brought them.
_WRITES_V1 = 0b1_1111_1111_0010  # write file, remove and make of every kind; execute, read file and read dir stay free
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_READS = 0b1101  # execute, read file, read directory
_FILE_ONLY = 1 << 1 | _TRUNCATE | 0b101
_TCP = 0b11
_SCOPES = 0b11  # abstract sockets and signals to processes outside

_RULE_PATH_BENEATH = 1


def version() -> int:
    """Return the version of Landlock this kernel speaks; 0 when it has none."""
    try:
        return syscall("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def _writes(abi: int) -> int:
    rights = _WRITES_V1
    if abi >= 2:
        rights |= _REFER
    if abi >= 3:
        rights |= _TRUNCATE
    return rights


def ruleset(writable: list[str], readable: "list[str] | None" = None, *, tcp_off: bool) -> int:
    """Return the descriptor of a ruleset that confines writes to `writable`; -1 where there is no Landlock.

    With `readable`, reads are confined to both lists.
    """
    abi = version()
    if not abi or not writable:
        return -1
    reads = 0 if readable is None else _READS
    rights = _writes(abi) | reads
    tcp = _TCP if tcp_off and abi >= 4 else 0
    attributes = b"".join(value.to_bytes(8, "little") for value in (rights, tcp, _SCOPES))
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    rules = syscall("landlock_create_ruleset", attributes[:size], size, 0)
    for path in writable:
        _allow(rules, path, rights)
    for path in readable or ():
        _allow(rules, path, reads)
    return rules


def restrict(rules: int) -> None:
    """Enforce a ruleset on this process and its children; needs no_new_privs."""
    syscall("landlock_restrict_self", rules, 0)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a missing folder cannot be written either
    try:
        if not os.path.isdir(path):
            rights &= _FILE_ONLY
        rule = rights.to_bytes(8, "little") + descriptor.to_bytes(4, "little", signed=True)
        syscall("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)
