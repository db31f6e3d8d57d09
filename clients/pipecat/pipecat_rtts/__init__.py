"""Speech of an rtts server in a Pipecat pipeline: put `RttsTTSService` where a TTS service goes."""

from pipecat_rtts.service import RttsTTSService, RttsTTSSettings

__version__ = "0.1.0"

__all__ = ["RttsTTSService", "RttsTTSSettings"]
