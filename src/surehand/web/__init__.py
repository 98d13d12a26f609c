"""Web: fetching within bounds, addresses that may be reached, pages as text, search engines."""
