"""MCP both ways: Surehand's tools for any client, and any server's tools for Surehand. Importing it imports no SDK."""
