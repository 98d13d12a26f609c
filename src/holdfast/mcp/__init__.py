"""MCP both ways: Holdfast's tools for any client, and any server's tools for Holdfast. Importing it imports no SDK."""
