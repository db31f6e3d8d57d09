"""The shell: sockets, HTTP, timers and signals around the sans-I/O sessions.

The only part of rtts, beside the engine hosts, that knows an event loop.
"""

from rtts.server.encoders import threads_here
from rtts.server.options import ServerOptions
from rtts.server.run import new_event_loop, running_server, serve
from rtts.server.server import Server
from rtts.server.websocket import TransportOptions

__all__ = [
    "Server",
    "ServerOptions",
    "TransportOptions",
    "new_event_loop",
    "running_server",
    "serve",
    "threads_here",
]
