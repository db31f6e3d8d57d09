"""The CPU engine: real speech on any machine with Python, no GPU and no model hub.

The embedded voice, "heart" (English), streams inside the sentence: about 10 ms of one core from text
to first audio, about 100 live streams a core. Kokoro's voices, among them Chinese, are an extra.

    options.py         what can be configured (imports nothing heavy)
    catalogue.py       the voices there are, and what each cannot do
    factory.py         options in, cores out
    engine.py, utterance.py, cost.py, refusals.py    the core: whose turn it is, credit, events
    library.py         which voices are loaded
    voice.py           what the core asks of a voice
    hibari_*.py        the embedded voice: network, speech of a segment, loading
    kokoro_*.py        the extra voices
    speakable.py, reading.py, pieces.py    from text to phonemes, with every word's place kept
    waveform.py, level.py    from spectra to samples to 16 bits
    onnx_graph.py      cutting a network in parts

This package knows nothing about threads, sockets or the clock: a core is told the time, and the
clock it measures its own work with is handed in.
"""

import os

# From the moment it is imported onnxruntime (1.32) reports to its maker's servers, under an identifier
# that it keeps in ~/.cache. A speech server must not; whoever wants it sets 0. Set here, because
# every import of it, hibari's own too, comes after this package's.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
