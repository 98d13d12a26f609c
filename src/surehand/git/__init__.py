"""What a repository can make git do: its settings, its real places, and what of them may run, read or be left behind.

One model, used wherever git matters: judging commands, Surehand's own calls of git, what the sandbox keeps as it is,
and what is looked through when a command has ended. git itself is not needed to know any of it.
"""
