"""Floor 4, who calls tools: a model, in a loop. It knows no vendor."""
