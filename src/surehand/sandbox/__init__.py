"""Sandbox: what contains a command. `protocol` says what a sandbox is and chooses one, `linux` enforces a profile,
`none` runs without; `profile` says what is to be enforced, `denials` explains to a model what was denied."""
