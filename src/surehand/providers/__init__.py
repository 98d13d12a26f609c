"""Floor 2, providers of language models, a row of `table` each, one file a protocol. Imported when chosen."""
