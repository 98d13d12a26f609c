"""Floor 3, the engine: how one call runs, how many run, and what is recorded. It knows no tool."""
