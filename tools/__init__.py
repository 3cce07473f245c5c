"""What `make lint` checks beyond style and types."""
