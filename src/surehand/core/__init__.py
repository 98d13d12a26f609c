"""Floor 0, the core words: what a tool, a call, a result, an effect and a session are. Data in memory, no I/O."""
