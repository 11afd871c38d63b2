"""Programs that write files of this project out of its tables; nothing of it is installed."""
