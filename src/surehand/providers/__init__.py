"""Floor 2, plug-ins: language models, one file a vendor. Imported when chosen."""
