"""Search: ripgrep, walks and globs, by git's own ignore rules."""
