"""What contains a command: `plan` says what is to be enforced, `linux` enforces it."""
