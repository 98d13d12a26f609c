"""Sandbox: what contains a command. `protocol` says what a sandbox is and chooses one, `linux` enforces a plan, `none`
runs without; `plan` says what is to be enforced, `denials` explains to a model what was denied."""
