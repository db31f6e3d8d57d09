"""The conversation: contexts, their speech, pacing and resume. Sans-I/O: time is an argument."""

from rtts.session.delivery import DeliveryMarker
from rtts.session.effort import OpusEffort
from rtts.session.options import SessionOptions
from rtts.session.record import ClientReport, UtteranceRecord
from rtts.session.service import Service
from rtts.session.session import Closing, Session
from rtts.session.speech import Speech

__all__ = [
    "ClientReport",
    "Closing",
    "DeliveryMarker",
    "OpusEffort",
    "Service",
    "Session",
    "SessionOptions",
    "Speech",
    "UtteranceRecord",
]
