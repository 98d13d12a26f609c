"""`shfmt` as a process: one reads a script from its input to the end, prints the tree and is gone.

Most of what a parse costs is the start of the process, so once scripts come one after another the next one is started
ahead and waits for its input. It holds nothing but two pipes, ends when nobody needs it for a while, and when this
process ends, however that happens: its input is closed then.
"""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
from typing import Final

WAITS_S: Final = 20.0
_ENVIRONMENT: Final[dict[str, str]] = {"GOMAXPROCS": "2", "GOGC": "400"}
_BLOCK: Final = 1 << 16


class ParserFailure(Exception):
    """The parser could not be started, took too long or printed too much."""


class ParserProcess:
    """One run of the parser."""

    def __init__(self, argv: tuple[str, ...]) -> None:
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env=_ENVIRONMENT,
                start_new_session=True,  # a signal to our group (Ctrl-C) is not meant for it
            )
        except OSError as error:
            raise ParserFailure(f"the parser cannot be started ({error})") from error
        self.pid = self._process.pid

    def parse(self, source: bytes, timeout_s: float, limit_bytes: int) -> tuple[int, bytes, str]:
        """Return the exit code, the printed tree and the complaint; end the process at either limit."""
        try:
            printed, complaint = self._exchange(source, time.monotonic() + timeout_s, limit_bytes)
            return self._process.wait(), printed, complaint.decode(errors="replace")
        except TimeoutError as error:
            raise ParserFailure(f"the parser did not finish within {timeout_s:g} s") from error
        finally:
            self.end()

    def _exchange(self, source: bytes, deadline: float, limit_bytes: int) -> tuple[bytes, bytes]:
        """Feed the script in and collect what comes out, until both outputs are closed."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        inlet, outlets = process.stdin.fileno(), (process.stdout.fileno(), process.stderr.fileno())
        collected: dict[int, list[bytes]] = {outlet: [] for outlet in outlets}
        left, total = memoryview(source), 0
        os.set_blocking(inlet, False)
        poll = select.poll()
        for outlet in outlets:
            poll.register(outlet, select.POLLIN)
        poll.register(inlet, select.POLLOUT)
        waiting = {inlet, *outlets}
        while waiting & set(outlets):
            events = poll.poll(max(deadline - time.monotonic(), 0) * 1000)
            if not events:
                raise TimeoutError
            for descriptor, _ in events:
                if descriptor == inlet:
                    left = left[_write(inlet, left) :]
                    over = not left
                else:
                    data = os.read(descriptor, _BLOCK)
                    total += len(data)
                    collected[descriptor].append(data)
                    over = not data
                if total > limit_bytes:
                    raise ParserFailure("the command is too large to be read")
                if over:
                    poll.unregister(descriptor)
                    waiting.discard(descriptor)
                    if descriptor == inlet:
                        process.stdin.close()
        return b"".join(collected[outlets[0]]), b"".join(collected[outlets[1]])

    def end(self) -> None:
        """End the process, whatever it does."""
        process = self._process
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:
                pass


def _write(descriptor: int, data: memoryview) -> int:
    try:
        return os.write(descriptor, data)
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(data)  # it has ended already, and its complaint says why


class Parsers:
    """Hands out parser processes, from the third on one that was started ahead."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare: ParserProcess | None = None
        self._taken = threading.Event()
        self._starting = False
        self._asked = 0
        os.register_at_fork(after_in_child=self._forget)

    def take(self, argv: tuple[str, ...]) -> ParserProcess:
        """Return a parser nobody else has; the one that waited, if there is one."""
        with self._lock:
            spare, self._spare = self._spare, None
            self._taken.set()
            self._asked += 1
            ahead = self._asked > 1 and not self._starting
            self._starting = self._starting or ahead
        if ahead:
            threading.Thread(target=self._keep_one_waiting, args=(argv,), name="shell-parser", daemon=True).start()
        return spare or ParserProcess(argv)

    def end(self) -> None:
        """End the parser that waits; the next script starts one of its own."""
        with self._lock:
            spare, self._spare, self._asked = self._spare, None, 0
            self._taken.set()
        if spare is not None:
            spare.end()

    def _keep_one_waiting(self, argv: tuple[str, ...]) -> None:
        try:
            process = ParserProcess(argv)
        except ParserFailure:
            process = None
        with self._lock:
            self._starting = False
            taken = self._taken = threading.Event()
            surplus, self._spare = self._spare, process
        if surplus is not None:
            surplus.end()
        if not taken.wait(WAITS_S):
            with self._lock:
                idle = self._spare is process
                if idle:
                    self._spare = None
            if idle and process is not None:
                process.end()

    def _forget(self) -> None:
        """In a child made by fork the parser belongs to the parent."""
        self._lock = threading.Lock()
        self._spare, self._starting, self._asked = None, False, 0


PARSERS: Final = Parsers()
