"""Real-time text-to-speech: text that is still being written, heard as it is written."""

__version__ = "0.1.0"
