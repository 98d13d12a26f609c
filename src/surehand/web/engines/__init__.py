"""Search engines behind one small protocol: a record for each service, and which one the user has set up."""
