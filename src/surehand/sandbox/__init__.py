"""What contains a command: Landlock, namespaces, seccomp and limits, by system call alone, with no package needed.

`plan` says what is to be enforced and `probe` what this system can; both serve the program. The others run inside
the launcher (`surehand.sandbox.launcher`), which starts often and must start fast: they import almost nothing.
"""
