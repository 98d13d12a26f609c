"""Floor 4, the agent: a model that calls tools in a loop. It knows no vendor."""
