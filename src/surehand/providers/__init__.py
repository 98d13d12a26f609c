"""Floor 2, providers of language models, one file a vendor. Imported when chosen."""
