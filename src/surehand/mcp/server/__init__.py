"""The server side of MCP: Surehand's tools, resources and prompts for any client. Importing it imports no SDK."""
