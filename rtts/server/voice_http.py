"""`/v1/voices`: list, add, look at, warm and remove voices; add and remove also as ElevenLabs does.

Knows requests and JSON; what happens to a voice is the desk's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, NoReturn

import msgspec
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from rtts.engine.interface import Capabilities, Voice
from rtts.errors import (
    BadRequestError,
    EngineDeadError,
    MessageTooBigError,
    RttsError,
    UnknownVoiceError,
)
from rtts.protocol import elevenlabs_lists
from rtts.protocol.elevenlabs import ElevenLabs
from rtts.protocol.events import Error
from rtts.server.json_reply import json_reply
from rtts.server.voice_desk import VoiceDesk
from rtts.session import Service
from rtts.text.languages import normalise_language
from rtts.voices.store import StoredVoice

# A form's other fields, and its boundaries.
_OVERHEAD_BYTES = 64 * 1024
_MAX_TRANSCRIPT = 2000
# So many times the limit is read and thrown away before the connection is cut.
_PATIENCE = 4
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class Wanted(msgspec.Struct):
    """What a voice is to be, whichever way it came.

    Attributes:
        name: What people call it; names the voice as its id does.
        transcript: What is said in the recording.
        description: Of a design, how it sounds; of a clone, a note.
        language: BCP 47 tag or English name of the recording's language.
    """

    name: _Name
    transcript: Annotated[str, msgspec.Meta(max_length=_MAX_TRANSCRIPT)] = ""
    description: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    language: Annotated[str, msgspec.Meta(max_length=64)] = ""


class VoiceEndpoints:
    """The endpoints."""

    def __init__(
        self,
        desk: VoiceDesk,
        service: Service,
        max_upload_bytes: int,
        refusal: Callable[[], RttsError | None],
    ) -> None:
        """Take what the endpoints read.

        Args:
            refusal: What to tell who comes before the engine has said what it can do.
        """
        self._desk, self._service = desk, service
        self._refusal = refusal
        self._max_bytes = max_upload_bytes

    def routes(self) -> list[BaseRoute]:
        """Every path."""
        return [
            Route("/v1/voices", self.listed, methods=["GET"]),
            Route("/v1/voices", self.add, methods=["POST"]),
            Route("/v1/voices/add", self.add_theirs, methods=["POST"]),
            Route("/v1/voices/{voice_id}", self.one, methods=["GET"]),
            Route("/v1/voices/{voice_id}", self.remove, methods=["DELETE"]),
            Route("/v1/voices/{voice_id}/prewarm", self.prewarm, methods=["POST"]),
        ]

    async def listed(self, request: Request) -> Response:
        """Every voice, with what it speaks, its licence and what it cannot do."""
        del request
        capabilities = self._capabilities()
        voices = [self._fields(voice, capabilities) for voice in capabilities.voices]
        return json_reply({"voices": voices, "default_voice": capabilities.default_voice})

    async def one(self, request: Request) -> Response:
        """One voice, by id or name."""
        capabilities = self._capabilities()
        voice = capabilities.voice(request.path_params["voice_id"])
        if voice is None:
            raise HTTPException(404, "there is no such voice")
        return json_reply(self._fields(voice, capabilities))

    async def add(self, request: Request) -> Response:
        """Clone a recording (multipart/form-data) or design a voice (application/json)."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/json":
            wanted = _convert(msgspec.json.decode, await self._body(request))
            voice, is_new = await self._desk.design(
                name=_clean(wanted.name),
                description=wanted.description.strip(),
                language=_language(wanted.language),
            )
        elif kind == "multipart/form-data":
            voice, is_new = await self._clone(request)
        else:
            raise HTTPException(
                415,
                "send multipart/form-data with a recording, or application/json with a description",
            )
        capabilities = self._capabilities()
        made = capabilities.voice(voice.id)
        assert made is not None, "it was added"
        return json_reply(self._fields(made, capabilities), status=201 if is_new else 200)

    async def add_theirs(self, request: Request) -> Response:
        """Clone a recording for a client of ElevenLabs' API, in its words."""
        try:
            voice, _ = await self._clone(request)
        except RttsError as error:
            return _refuse_theirs(error)
        return json_reply({"voice_id": voice.id, "requires_verification": False})

    async def remove(self, request: Request) -> Response:
        """Remove a voice that was added."""
        is_theirs = elevenlabs_lists.is_meant(request.headers)
        try:
            self._desk.remove(request.path_params["voice_id"])
        except RttsError as error:
            if is_theirs:
                return _refuse_theirs(error)
            if isinstance(error, UnknownVoiceError):
                raise HTTPException(404, error.message) from error
            raise
        return json_reply({"status": "ok"}) if is_theirs else Response(status_code=204)

    async def prewarm(self, request: Request) -> Response:
        """Load a voice; answers when it is warm."""
        try:
            load_s = await self._desk.prewarm(request.path_params["voice_id"])
        except UnknownVoiceError as error:
            raise HTTPException(404, error.message) from error
        return json_reply({"load_ms": round(1000 * load_s, 2)})

    # --- parts ----------------------------------------------------------------------------------

    async def _clone(self, request: Request) -> tuple[StoredVoice, bool]:
        fields, data = await self._form(request)
        wanted = _convert(msgspec.convert, fields)
        return await self._desk.clone(
            name=_clean(wanted.name),
            data=data,
            transcript=wanted.transcript.strip(),
            language=_language(wanted.language),
            description=wanted.description.strip(),
        )

    def _capabilities(self) -> Capabilities:
        if self._service.capabilities is None:
            raise self._refusal() or EngineDeadError("the engine is down", retry_after_s=1.0)
        return self._service.capabilities

    def _fields(self, voice: Voice, capabilities: Capabilities) -> dict[str, Any]:
        stored = self._desk.store.voices.get(voice.id)
        return {
            **asdict(voice),
            "name": voice.name or voice.id,
            "engine": capabilities.engine,
            "sample_rate": capabilities.sample_rate_hz,
            "default": voice.id == capabilities.default_voice,
            "removable": stored is not None,
        } | ({} if stored is None else {"created": stored.created, "seconds": stored.seconds})

    async def _body(self, request: Request) -> bytes:
        limited = await self._limited(request)
        try:
            return await limited.body()
        except ClientDisconnect:
            raise BadRequestError("the request was cut off") from None

    async def _form(self, request: Request) -> tuple[dict[str, str], bytes]:
        """Fields, and the one file."""
        limited = await self._limited(request)
        fields: dict[str, str] = {}
        data: bytes | None = None
        try:
            async with limited.form(max_files=1, max_fields=16) as form:
                for name, value in form.multi_items():
                    if isinstance(value, str):
                        fields[name] = value
                    else:
                        data = await value.read()
        except ClientDisconnect:
            raise BadRequestError("the request was cut off") from None
        except (MultiPartException, HTTPException) as error:
            raise BadRequestError(f"not a form: {getattr(error, 'detail', error)}") from error
        if data is None:
            raise BadRequestError("audio: the form has no file")
        return fields, data

    async def _limited(self, request: Request) -> Request:
        """The same request; more than the limit is not kept.

        Raises:
            MessageTooBigError: It is said to be larger; reading it may raise that too.
        """
        limit = self._max_bytes + _OVERHEAD_BYTES
        announced = request.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > limit:
            await self._refuse(request, 0)
        read = 0

        async def receive() -> Any:
            nonlocal read
            part = await request.receive()
            read += len(part.get("body", b""))
            if read > limit:
                await self._refuse(request, read)
            return part

        return Request(request.scope, receive)

    async def _refuse(self, request: Request, read: int) -> NoReturn:
        """Hear the sender out, within reason: who is cut off in mid-sentence sees no answer."""
        while read < _PATIENCE * self._max_bytes:
            part = await request.receive()
            read += len(part.get("body", b""))
            if not part.get("more_body", False):
                break
        raise MessageTooBigError(f"at most {self._max_bytes / 1e6:g} MB are taken")


def _convert(convert: Any, value: Any) -> Wanted:
    try:
        wanted: Wanted = convert(value, type=Wanted)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise BadRequestError(str(error)) from error
    return wanted


def _clean(name: str) -> str:
    name = name.strip()
    if not name or any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise BadRequestError("name: it must have letters, and no control characters")
    if "/" in name or name in (".", ".."):
        raise BadRequestError("name: a slash, . and .. cannot be part of an address")
    return name


def _language(given: str) -> str:
    if given in ("", "auto"):
        return ""
    tag = normalise_language(given)
    if tag is None:
        raise BadRequestError(f"language: {given!r} is not known")
    return tag


def _refuse_theirs(error: RttsError) -> Response:
    said = Error(code=error.code, message=error.message, fatal=False)
    reply = ElevenLabs.refusal(said)
    return Response(reply.body, reply.status, media_type="application/json")
