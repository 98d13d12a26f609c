"""Floor 1, the machine: files, processes, sandbox, web, git. Knows the words of floor 0 and nothing above."""
