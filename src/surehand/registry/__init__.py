"""Floor 2, what exists: the registry of tools, their life cycle, their dependencies, and how they are found."""
