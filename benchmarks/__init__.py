"""One script per job, each against its peers and the physical limit; `make bench` prints one table of ratios."""
