"""History: every change any tool makes to a file, kept before and after by content, so that it can be taken back.

    words.py      what a file was and became (`FileState`, `FileChange`, `Change`)
    contents.py   contents by hash: small ones in the database, large ones in files, edits as differences
    log.py        the list of changes, in SQLite, and pruning it to the size limit
    history.py    `History`: begin, commit, record, when to prune; what tools use
    store.py      the database: opening it, transactions, what is done when it is damaged or full
    steps.py      carrying out a list of changes, all or nothing
    change_logs.py, command_changes.py   what a command changed, as the launcher recorded it
    read_contents.py   contents a session has read, for merging
    disk.py       a file as it is on the disk, and putting one back
    recovery.py   what a killed process left behind
    undo.py       what an undo or redo is about, and taking changes back or bringing them back again

A change is written down before it happens and confirmed afterwards. Whoever opens the history next finds what was
only begun, looks at the file, and decides: the old content means it did not happen, anything else that it did.
"""
