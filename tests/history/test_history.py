"""The history itself: contents by hash, deltas, compression, a limit that holds, damage that is noticed."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.forks import fork
from tests.tools.workbench import Workbench

from surehand.core.errors import ToolFailure
from surehand.core.session import digest_of
from surehand.files.text import Splice, apply_splices
from surehand.history import log
from surehand.history.contents import DELTA_DEPTH, digest_parts
from surehand.history.disk import state_at
from surehand.history.history import History
from surehand.history.recovery import recover, recover_interrupted
from surehand.history.words import ABSENT, Author, Compensation, FileChange, FileState

MB = 1024 * 1024


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "history")


def opened(folder: str | None, limit: int = 64 * MB) -> tuple[History, list[str]]:
    notes: list[str] = []
    return History(folder, limit, notes.append), notes


def file(data: bytes, mode: int = 0o644) -> FileState:
    return FileState("file", digest_of(data), mode, len(data))


def record(history: History, path: str, before: bytes, after: bytes) -> str:
    for data in (before, after):
        history.keep_bytes(data)
    change = FileChange(path, file(before), file(after))
    return history.record(Author("T", "c", "session_s", "d"), [change])


@pytest.mark.parametrize("size", [0, 1, 1000, 70_000, 300_000])
def test_contents_come_back_in_this_process_and_the_next(folder: str, size: int) -> None:
    data = random.Random(size).randbytes(size)
    first, _ = opened(folder)
    digest = first.keep_bytes(data)
    assert first.content(digest) == data
    first.close()
    second, _ = opened(folder)
    assert second.content(digest) == data
    assert second.keep_bytes(data) == digest
    second.close()


def test_what_was_read_is_kept_within_bounds_the_latest_longest(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "SEEN_BYTES", 25_000)
    history, _ = opened(folder)
    contents = [random.Random(number).randbytes(10_000) for number in range(4)]
    for data in contents:
        history.write_seen({digest_of(data): data})
    assert [history.read_seen(digest_of(data)) == data for data in contents] == [False, False, True, True]
    history.close()


def test_equal_contents_are_kept_once_and_compressed(folder: str) -> None:
    history, _ = opened(folder)
    data = b"the same line again and again\n" * 20_000
    for number in range(5):
        record(history, f"/f{number}", data, data + b"x")
    history.close()
    history, _ = opened(folder)
    assert history.contents.total() < len(data) / 10
    assert history.content(digest_of(data)) == data
    history.close()


def test_a_chain_of_edits_costs_its_differences(folder: str) -> None:
    history, _ = opened(folder)
    chance = random.Random(1)
    data = chance.randbytes(200_000)
    digests = [history.keep_bytes(data)]
    contents = [data]
    for _ in range(3 * DELTA_DEPTH):
        at = chance.randrange(len(data))
        splices = [Splice(at, min(at + 3, len(data)), b"edited")]
        parts = apply_splices(data, splices)
        after = digest_parts(parts)
        with history.transaction():
            history.contents.keep_after(after, digests[-1], splices, parts)
        data = b"".join(parts)
        digests.append(after)
        contents.append(data)
    assert history.contents.total() < 5 * len(data)
    assert all(history.content(digest) == data for digest, data in zip(digests, contents, strict=True))
    history.close()


def test_the_limit_drops_the_oldest_and_says_so(folder: str) -> None:
    history, notes = opened(folder, limit=2 * MB)
    chance = random.Random(2)
    datas = [chance.randbytes(50_000) for _ in range(121)]
    for number in range(120):
        record(history, "/f", datas[number], datas[number + 1])
    history.close()
    assert any("older changes were dropped" in note for note in notes)
    history, _ = opened(folder, limit=2 * MB)
    assert history.contents.total() <= 2 * MB
    kept = history.changes()
    assert 5 < len(kept) < 60
    assert kept[0].number == 120
    assert "limited to 2 MB" in history.describe_pruned()
    for change in kept:
        for state in (change.files[0].before, change.files[0].after):
            assert state is not None
            assert history.content(state.digest) is not None
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 3 * MB
    history.close()


def test_damaged_contents_are_noticed_and_appended_ones_restored(folder: str) -> None:
    history, _ = opened(folder)
    data = random.Random(3).randbytes(100_000)
    digest = history.keep_bytes(data)
    path = history.contents.path(digest)
    with open(path, "ab") as stored:
        stored.write(b"appended by a program that kept the file open")
    assert history.content(digest) == data
    with open(path, "r+b") as stored:
        stored.write(b"damaged")
    assert history.content(digest) is None
    history.close()


def test_a_broken_database_is_set_aside(folder: str) -> None:
    os.makedirs(folder)
    Path(folder, "history.db").write_bytes(b"this is no database at all" * 100)
    history, notes = opened(folder)
    assert any("set aside" in note for note in notes)
    record(history, "/f", b"a", b"b")
    assert len(history.changes()) == 1
    assert [name for name in os.listdir(folder) if "broken" in name]
    history.close()


def damage_pages(path: str) -> None:
    with open(path, "r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * (os.path.getsize(path) - 8192))


def damage_rows(path: str) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE change SET files = 'garbage', state = 'intent'")


def damage_tables(path: str) -> None:
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE content")


@pytest.mark.parametrize("damage", [damage_pages, damage_rows, damage_tables])
def test_a_history_damaged_in_part_gives_way_to_a_new_one(folder: str, damage: Callable[[str], None]) -> None:
    history, _ = opened(folder)
    record(history, "/f", b"a", b"b")
    history.close()
    damage(os.path.join(folder, "history.db"))
    history, notes = opened(folder)
    assert recover_interrupted(history) == ""
    if damage is damage_tables:  # found only by who needs the table: one call fails and says so, the next one works
        with pytest.raises(ToolFailure, match="it was set aside, and a new one begins"):
            record(history, "/f", b"b", b"c")
    record(history, "/f", b"b", b"c")
    assert len(history.changes()) == 1
    assert any("set aside" in note for note in notes)
    assert [name for name in os.listdir(folder) if "broken" in name]
    history.close()


def test_a_history_that_was_set_aside_keeps_its_contents(folder: str) -> None:
    data = os.urandom(300_000)
    history, _ = opened(folder)
    id = record(history, "/f", data, b"b")
    history.close()
    database = Path(folder, "history.db")
    sound = database.read_bytes()
    database.write_bytes(b"no database" + sound[11:])
    opened(folder)[0].close()  # and strays are removed
    [contents] = Path(folder).glob("contents.broken-*")
    shutil.rmtree(Path(folder, "contents"), ignore_errors=True)
    contents.rename(Path(folder, "contents"))
    database.write_bytes(sound)
    history, _ = opened(folder)
    assert history.change(id) is not None
    assert history.content(digest_of(data)) == data
    history.close()


def test_what_is_changed_after_the_history_was_removed_is_in_the_new_one(folder: str) -> None:
    history, notes = opened(folder)
    record(history, "/a", b"1", b"2")
    shutil.rmtree(folder)
    record(history, "/b", b"3" * 300_000, b"4")
    assert "removed or set aside by somebody else" in " ".join(notes)
    history.close()
    again, _ = opened(folder)
    assert [each.path for change in again.changes() for each in change.files] == ["/b"]
    assert again.content(digest_of(b"3" * 300_000)) == b"3" * 300_000
    again.close()


def test_a_history_that_another_process_set_aside_is_not_written_on(folder: str) -> None:
    history, _ = opened(folder)
    other, _ = opened(folder)
    record(history, "/a", b"1", b"2")
    log.set_aside(folder)
    record(other, "/b", b"3", b"4")
    record(history, "/c", b"5", b"6")
    for each in (history, other):
        assert sorted(file.path for change in each.changes() for file in change.files) == ["/b", "/c"]
        each.close()


def test_a_healthy_history_is_not_set_aside_because_it_is_busy_or_closed(folder: str) -> None:
    history, _ = opened(folder)
    record(history, "/f", b"a", b"b")
    history.close()
    with pytest.raises(ToolFailure):
        history.changes()
    assert not [name for name in os.listdir(folder) if "broken" in name]


def test_a_history_that_another_process_holds_is_said_to_be_in_use(folder: str) -> None:
    history, _ = opened(folder)
    history._database.execute("PRAGMA busy_timeout = 1")
    with sqlite3.connect(os.path.join(folder, "history.db"), isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ToolFailure, match="another process has been writing to it") as refused:
            history.keep_bytes(b"a")
        other.execute("ROLLBACK")
    assert "space" not in refused.value.hint
    other.close()
    history.keep_bytes(b"a")
    history.close()


def test_a_state_folder_that_cannot_be_used_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history, _ = opened(str(tmp_path / "file/history"))
    assert history.changes() == []
    with pytest.raises(ToolFailure, match="history cannot be written"):
        history.keep_bytes(b"")


def test_a_change_only_begun_is_not_listed_and_struck_when_nothing_happened(folder: str, tmp_path: Path) -> None:
    history, _ = opened(folder)
    target = tmp_path / "a"
    target.write_bytes(b"old")
    pending = history.begin(Author("T"), [FileChange(str(target), file(b"old"), file(b"new"))], before=b"old")
    (tmp_path / pending.temporary).write_bytes(b"half")
    assert history.changes() == []
    assert recover(history) == []
    assert history.log.intents() == []
    assert sorted(os.listdir(tmp_path)) == ["a", "history"]
    history.close()


def test_a_change_that_happened_is_confirmed_with_what_was_meant(folder: str, tmp_path: Path) -> None:
    history, _ = opened(folder)
    target = tmp_path / "a"
    pending = history.begin(
        Author("T"), [FileChange(str(target), file(b"old"), file(b"new"))], before=b"old", after=[b"new"]
    )
    target.write_bytes(b"new, and then changed by the user")
    assert recover(history) == [pending.id]
    [change] = history.changes()
    assert change.files[0].after == file(b"new")
    assert history.content(digest_of(b"new")) == b"new"
    history.close()


def test_a_change_whose_end_was_not_known_is_confirmed_with_what_is_there(folder: str, tmp_path: Path) -> None:
    history, _ = opened(folder)
    target = tmp_path / "a"
    history.begin(Author("T"), [FileChange(str(target), ABSENT, None)])
    target.write_bytes(b"new")
    recover(history)
    [change] = history.changes()
    after = change.files[0].after
    assert after is not None
    assert history.content(after.digest) == b"new"
    history.close()


def test_a_confirmation_does_not_overrule_another_process(folder: str, tmp_path: Path) -> None:
    mine, _ = opened(folder)
    target = tmp_path / "a"
    target.write_bytes(b"new")
    files = [FileChange(str(target), file(b"old"), file(b"new"))]
    pending = mine.begin(Author("T"), files, before=b"old", after=[b"new"])
    mine.commit(pending)
    other, _ = opened(folder)
    assert recover(other) == [pending.id]
    with other.transaction():
        other.log.set_state([pending.id], "undone")
    mine.flush()
    found = mine.change(pending.id)
    assert found is not None
    assert found.state == "undone"
    mine.close()
    other.close()


def test_changes_are_found_by_session_and_path(folder: str) -> None:
    history, _ = opened(folder)
    for path in ("/ws/a", "/ws/b/c", "/ws/bc"):
        record(history, path, b"1", b"2")
    assert [change.id for change in history.changes(path="/ws/b")] == ["2"]
    assert len(history.changes(session_id="session_s")) == 3
    assert history.changes(session_id="session_other") == []
    assert [change.id for change in history.changes(limit=1)] == ["3"]
    history.close()


def test_threads_and_processes_write_at_once(folder: str) -> None:
    history, _ = opened(folder)

    def write_from_a_process() -> None:
        other, _ = opened(folder)
        for number in range(50):
            record(other, "/child", b"%d" % number, b"%d" % (number + 1))
        other.close()

    child = fork(write_from_a_process)

    def work(name: str) -> None:
        for number in range(25):
            record(history, name, b"%d" % number, b"%d" % (number + 1))

    threads = [threading.Thread(target=work, args=(f"/t{n}",)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert len(history.changes()) == 100
    history.close()


def test_links_and_folders_are_states_too(folder: str, tmp_path: Path) -> None:
    history, _ = opened(folder)
    os.symlink("somewhere", tmp_path / "link")
    (tmp_path / "dir").mkdir()
    os.mkfifo(tmp_path / "fifo")
    kinds = [state_at(str(tmp_path / name))[0].kind for name in ("link", "dir", "fifo", "none", "no/where")]
    assert kinds == ["symlink", "directory", "absent", "absent", "absent"]
    state, data = state_at(str(tmp_path / "link"))
    assert data == b"somewhere"
    assert history.keep_bytes(data) == state.digest
    history.close()


def test_the_store_is_private(folder: str) -> None:
    history, _ = opened(folder)
    history.keep_bytes(b"secret" * 20_000)
    history.close()
    assert os.stat(folder).st_mode & 0o077 == 0
    with sqlite3.connect(os.path.join(folder, "history.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()


def make_old(folder: str, version: int) -> None:
    """Turn the database of a history into what an older format had."""
    with sqlite3.connect(f"{folder}/history.db") as database:
        for name in ("change_state", "change_kind", "change_turn"):
            database.execute(f"DROP INDEX {name}")
        database.execute("CREATE INDEX change_intent ON change(number) WHERE state = 'intent'")
        database.execute("CREATE INDEX change_kind ON change(kind, state)")
        database.execute("CREATE INDEX change_done ON change(number) WHERE state = 'done' AND kind != 'undo'")
        database.execute("CREATE INDEX change_turn ON change(turn)")
        database.execute("PRAGMA user_version=3")
    if version == 3:
        database.close()
        return
    with database:
        for kind, name in database.execute("SELECT type, name FROM sqlite_schema").fetchall():
            if kind == "trigger" or (kind == "index" and name.startswith(("change_", "content_"))):
                database.execute(f"DROP {kind} {name}")
        database.execute("DROP TABLE total")
        database.execute("CREATE INDEX change_intent ON change(number) WHERE state = 'intent'")
        database.execute("CREATE INDEX content_fresh ON content(form) WHERE form IN ('raw', 'file')")
        for column in ("main_session", "turn", "note", "compensation", "parts") if version == 1 else ():
            database.execute(f"ALTER TABLE change DROP COLUMN {column}")
        database.execute(f"PRAGMA user_version={version}")
    database.close()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_history_of_an_older_format_is_brought_up_to_date_with_all_it_has(folder: str, version: int) -> None:
    history, _ = opened(folder)
    id = record(history, "/a", b"old", b"new")
    size = history.size_bytes()
    history.close()
    make_old(folder, version)
    again, notes = opened(folder)
    assert again.size_bytes() == size
    change = again.change(id)
    assert change is not None
    assert (change.session_id, change.main_session_id, change.turn) == ("session_s", "session_s", "c")
    assert again.content(change.files[0].before.digest) == b"old"
    assert notes == []
    again.close()


def test_a_history_of_a_later_format_is_left_alone(folder: str) -> None:
    history, _ = opened(folder)
    record(history, "/a", b"old", b"new")
    history.close()
    with sqlite3.connect(f"{folder}/history.db") as database:
        database.execute("PRAGMA user_version=99")
    database.close()
    with pytest.raises(ToolFailure, match="newer version"):
        opened(folder)


def test_a_compensating_call_is_an_entry_of_its_own(folder: str) -> None:
    history, _ = opened(folder)
    wish = Compensation("Unsend", {"id": 7}, "take the letter back")
    id = history.record_compensation(Author("Send", "c", "session_s", "Send", turn="turn_1"), wish)
    history.close()
    again, _ = opened(folder)
    change = again.change(id)
    assert change is not None
    assert (change.compensation, change.files, change.turn) == (wish, (), "turn_1")
    again.close()


def cut_off(history: History, step: Callable[[], None]) -> None:
    """Do a step in a transaction that fails at its end."""
    try:
        with history.transaction():
            step()
            raise InterruptedError
    except ToolFailure:
        pass


def test_what_a_failed_transaction_knew_is_forgotten_so_that_a_retry_keeps_it(folder: str) -> None:
    history, _ = opened(folder)
    old = b"line\n" * 4000
    new, large = old.replace(b"line\nline", b"LINE\nline", 1), b"x" * 300_000
    history.keep_bytes(old)

    def keep() -> None:
        history.contents.keep_after(digest_of(new), digest_of(old), [Splice(0, 4, b"LINE")], [new])
        history.contents.keep(digest_of(large), [large])

    cut_off(history, keep)
    assert not any(name for _, _, names in os.walk(f"{folder}/contents") for name in names)
    with history.transaction():
        keep()
    assert (history.content(digest_of(new)), history.content(digest_of(large))) == (new, large)
    history.close()
    again, _ = opened(folder)
    assert (again.content(digest_of(new)), again.content(digest_of(large))) == (new, large)
    again.close()


def test_contents_that_are_dropped_go_from_the_disk_only_with_the_transaction(folder: str) -> None:
    history, _ = opened(folder)
    large = b"x" * 300_000
    digest = history.keep_bytes(large)
    cut_off(history, lambda: history.contents.forget([digest]))
    assert history.content(digest) == large
    with history.transaction():
        history.contents.forget([digest])
    assert not os.path.exists(history.contents.path(digest))
    history.close()


def test_the_size_of_the_store_is_known_without_counting(folder: str) -> None:
    history, _ = opened(folder)
    text = b"line\n" * 4000

    def counted() -> int:
        with sqlite3.connect(f"{folder}/history.db") as database:
            return database.execute("SELECT COALESCE(SUM(stored), 0) FROM content").fetchone()[0]

    first = history.keep_bytes(text)
    assert history.size_bytes() == counted() == len(text)
    history.keep_bytes(text)  # kept once
    history.keep_bytes(b"x" * 300_000)
    assert history.size_bytes() == counted() == len(text) + 300_000
    cut_off(history, lambda: history.contents.forget([first]))
    assert history.size_bytes() == counted() == len(text) + 300_000
    history.close()  # compresses
    again, _ = opened(folder)
    assert 0 < again.size_bytes() == counted() < len(text)
    with again.transaction():
        again.contents.forget([first])
    assert again.size_bytes() == counted()
    again.close()


def test_a_change_its_undo_and_its_redo_look_through_no_whole_table(tmp_path: Path) -> None:
    bench = Workbench(tmp_path)
    bench.put("a", "one\n")
    bench.edit("a", "one", "two")
    bench.call("Undo")
    said = list[str]()
    database = bench.history.log._database  # pyright: ignore[reportPrivateUsage]
    database.set_trace_callback(said.append)
    bench.edit("a", "one", "three")
    bench.call("Undo")
    bench.call("Redo")
    bench.history.standing(turns=["c"])
    bench.history.size_bytes()
    bench.history.contents.compress(1.0)
    database.set_trace_callback(None)
    looked = [each for each in said if each.lstrip().upper().startswith(("SELECT", "UPDATE", "DELETE"))]
    plans = {each: [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {each}")] for each in looked}
    assert any("FROM change" in each for each in plans)
    whole = {each: plan for each, plan in plans.items() if {"SCAN change", "SCAN content"} & set(plan)}
    assert whole == {}
