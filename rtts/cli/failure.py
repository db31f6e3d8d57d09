"""The one error of commands themselves."""


class CommandError(Exception):
    """A command cannot do what was asked of it; the message says why and what to do."""
