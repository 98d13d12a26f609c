"""The Linux sandbox: Landlock, namespaces, seccomp and limits, by system call alone, with no package needed.

`probe` says what this system can, and `client` talks to the launcher; both serve the program. The others run inside the
launcher (`surehand.sandbox.linux.launcher`), which starts often and must start fast: they import almost nothing.
"""
