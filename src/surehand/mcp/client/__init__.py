"""The client side of MCP: the tools of any server, as tools of Surehand. Importing it imports no SDK."""
