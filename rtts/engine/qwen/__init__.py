"""The Qwen3-TTS engine: talker, code predictor and codec, batched frame by frame behind the waist.

Importing this package imports no torch. What computes lives in modules that import
`rtts.engine.qwen.extra`, which raises a `ConfigError` naming the extra where torch is missing.
Nothing here knows about sockets, sessions or Opus.
"""
