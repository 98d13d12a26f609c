"""ACP, the Agent Client Protocol: our agent inside an editor that starts it."""
