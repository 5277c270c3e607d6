"""What `make bench` and `make bench-all` run."""
