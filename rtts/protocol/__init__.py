"""Dialects: how clients say what the session understands. Sans-I/O."""
