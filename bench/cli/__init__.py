"""``kfast`` on the command line against kcat, and against what writes the same files."""
