"""The threads of a consumer, and how work crosses from one to another."""
