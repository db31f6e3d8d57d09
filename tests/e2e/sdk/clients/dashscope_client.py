"""The dashscope package: Qwen-TTS-Realtime in both modes, cancelled, cleared, refused."""

import base64
import json
import os
import threading
from pathlib import Path

import dashscope
from dashscope.audio.qwen_tts_realtime import (
    AudioFormat,
    QwenTtsRealtime,
    QwenTtsRealtimeCallback,
)

OUT, TEXT, LONG = Path(os.environ["SDK_OUT"]), os.environ["SDK_TEXT"], os.environ["SDK_LONG"]
URL = os.environ["SDK_WS_URL"] + "/api-ws/v1/realtime"
PCM = AudioFormat.PCM_24000HZ_MONO_16BIT
dashscope.api_key = "wrong"
said = {}


class Heard(QwenTtsRealtimeCallback):
    """What came, and waiting for it."""

    def __init__(self):
        self.audio, self.kinds, self.last, self.closed = b"", [], {}, None
        self._changed = threading.Condition()

    def on_event(self, response):
        with self._changed:
            kind = response["type"]
            self.last[kind] = response
            if kind == "response.audio.delta":
                self.audio += base64.b64decode(response["delta"])
            if not self.kinds or self.kinds[-1] != kind or kind != "response.audio.delta":
                self.kinds.append(kind)
            self._changed.notify_all()

    def on_close(self, close_status_code, close_msg):
        with self._changed:
            self.closed = close_status_code
            self._changed.notify_all()

    def wait(self, kind, count=1):
        with self._changed:
            assert self._changed.wait_for(lambda: self.kinds.count(kind) >= count, 20), self.kinds

    def wait_closed(self):
        with self._changed:
            assert self._changed.wait_for(lambda: self.closed is not None, 5)


def connect():
    heard = Heard()
    tts = QwenTtsRealtime(model="qwen3-tts-flash-realtime", callback=heard, url=URL)
    tts.connect()
    return tts, heard


class Stranger(QwenTtsRealtime):
    """Has the wrong key, and waits five seconds for a socket that was refused at once."""

    refused = threading.Event()

    def on_error(self, ws, error):
        said["wrong_key"] = error.status_code
        self.refused.set()


stranger = Stranger(model="qwen3-tts-flash-realtime", callback=Heard(), url=URL)
threading.Thread(target=stranger.connect, daemon=True).start()
assert stranger.refused.wait(5)
dashscope.api_key = os.environ["SDK_KEY"]

tts, heard = connect()
tts.update_session(
    voice="Cherry", response_format=PCM, mode="server_commit", language_type="English"
)
for word in TEXT.split():
    tts.append_text(word + " ")
tts.finish()
heard.wait("session.finished")
heard.wait_closed()
(OUT / "server.pcm").write_bytes(heard.audio)
said["server"] = heard.kinds
said["closed"] = heard.closed
said["session"] = tts.get_session_id() == heard.last["session.updated"]["session"]["id"]
said["characters"] = heard.last["response.done"]["response"]["usage"]["characters"]
said["delay_ms"] = tts.get_first_audio_delay()

tts, heard = connect()
tts.update_session(voice="Ethan", mode="commit", audio_format="wav", sample_rate=16000)
for n in (1, 2):
    tts.append_text(TEXT)
    tts.commit()
    heard.wait("response.done", n)
    (OUT / f"commit{n}.wav").write_bytes(heard.audio)
    heard.audio = b""
tts.update_session(voice="Ethan", mode="commit", audio_format="opus", bit_rate=48)
tts.append_text(TEXT)
tts.commit()
heard.wait("response.done", 3)
(OUT / "commit3.opus").write_bytes(heard.audio)
tts.update_session(voice="Ethan", mode="server_commit")
heard.wait("session.updated", 3)
heard.kinds.clear()
tts.append_text(LONG)
heard.wait("response.audio.delta")
tts.clear_appended_text()
heard.wait("input_text_buffer.cleared")
said["cleared"] = [list(heard.kinds), heard.last["response.done"]["response"]["status"]]
heard.kinds.clear()
tts.append_text(LONG)
heard.wait("response.audio.delta")
tts.cancel_response()
heard.wait("response.done")
said["cancelled"] = [list(heard.kinds), heard.last["response.done"]["response"]["status"]]
tts.update_session(voice="Nobody")
heard.wait("error")
said["error"] = [heard.last["error"]["error"][name] for name in ("type", "code")]
tts.close()

print(json.dumps(said))
