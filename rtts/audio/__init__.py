"""Audio as bytes: Opus, Ogg, WAV, G.711, resampling. Knows no sessions, sockets or clocks."""
