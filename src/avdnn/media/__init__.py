"""Files: what is read, and what is written."""
