"""ElevenLabs' lists: voices, models, and the user a key belongs to.

Source: the types of the SDKs 2.7x. Answers hold what there is here, and neutral values for what there is
not. `/v1/voices` and `/v1/models` are also places of rtts and of OpenAI: requests are told apart by their
headers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from rtts.engine.interface import Voice
from rtts.protocol.dialect import House, Listing, Reply, Request, Route
from rtts.protocol.elevenlabs import ElevenLabs


def voices(request: Request, house: House) -> Reply:
    """`GET /v1/voices` of a client with their key: our fields beside theirs."""
    del request
    listed = [_voice(voice, house) for voice in house.capabilities.voices]
    return _json({"voices": listed, "default_voice": house.capabilities.default_voice})


def searched_voices(request: Request, house: House) -> Reply:
    """`GET /v2/voices`, in pages."""
    query = request.query
    wanted = query.get("search", "").casefold()
    found = [_voice(voice, house) for voice in house.capabilities.voices]
    found = [each for each in found if wanted in f"{each['name']} {each['description']}".casefold()]
    if query.get("voice_ids"):
        found = [each for each in found if each["voice_id"] in query["voice_ids"].split(",")]
    after = query.get("next_page_token", "")
    begin = int(after) if after.isdecimal() and len(after) < 10 else 0
    size = query.get("page_size", "")
    end = begin + (min(max(1, int(size)), 100) if size.isdecimal() and len(size) < 10 else 10)
    has_more = end < len(found)
    fields = {
        "voices": found[begin:end],
        "has_more": has_more,
        "total_count": len(found),
        "next_page_token": str(end) if has_more else None,
    }
    return _json(fields)


def voice(request: Request, house: House) -> Reply:
    """`GET /v1/voices/{voice}`, under any of its names."""
    name = request.params["voice"]
    known = house.names.voice(name, or_default=False) or house.capabilities.default_voice
    found = house.capabilities.voice(known)
    assert found is not None, "names are those of voices"
    return _json(_voice(found, house))


def voice_settings(request: Request, house: House) -> Reply:
    """`GET /v1/voices/{voice}/settings`, and of `settings/default`."""
    del request, house
    return _json(_SETTINGS)


def models(request: Request, house: House) -> Reply:
    """`GET /v1/models` of a client with their key: the model under each of its names."""
    del request
    capabilities = house.capabilities
    languages = [{"language_id": tag, "name": tag} for tag in capabilities.languages]
    common = {
        "description": f"{capabilities.model} on the {capabilities.engine} engine",
        "can_do_text_to_speech": True,
        "can_do_voice_conversion": False,
        "can_be_finetuned": False,
        "can_use_style": False,
        "can_use_speaker_boost": False,
        "serves_pro_voices": False,
        "requires_alpha_access": False,
        "token_cost_factor": 0.0,
        "model_rates": {"character_cost_multiplier": 0.0},
        "languages": languages,
    }
    return _json([{"model_id": name, "name": name, **common} for name in house.names.models])


_SETTINGS = {
    "stability": 0.5,
    "similarity_boost": 0.75,
    "style": 0.0,
    "use_speaker_boost": False,
    "speed": 1.0,
}
_CATEGORIES = {"preset": "premade", "clone": "cloned", "design": "generated"}


def _voice(voice: Voice, house: House) -> dict[str, Any]:
    labels = {"language": voice.languages[0], "gender": voice.gender, "accent": voice.locale}
    return {
        **asdict(voice),
        "engine": house.capabilities.engine,
        "sample_rate": house.capabilities.sample_rate_hz,
        "default": voice.id == house.capabilities.default_voice,
        "voice_id": voice.id,
        "name": voice.name or voice.id,
        "category": _CATEGORIES[voice.kind],
        "labels": {name: value for name, value in labels.items() if value},
        "preview_url": None,
        "samples": [],
        "settings": _SETTINGS,
        "available_for_tiers": [],
        "high_quality_base_model_ids": list(house.names.models),
        "verified_languages": [
            {"language": tag, "model_id": house.capabilities.model, "accent": voice.locale or None}
            for tag in voice.languages
        ],
        "is_owner": voice.kind != "preset",
        "is_legacy": False,
        "is_mixed": False,
    }


_UNLIMITED = 2**31 - 1


def subscription(request: Request, house: House) -> Reply:
    """`GET /v1/user/subscription`: nothing is counted and nothing is sold here."""
    del request
    return _json(_subscription(house))


def user(request: Request, house: House) -> Reply:
    """`GET /v1/user`, which clients ask to see whether a key is good."""
    del request
    fields = {
        "user_id": "rtts",
        "workspace_id": "rtts",
        "subscription": _subscription(house),
        "is_new_user": False,
        "can_use_delayed_payment_methods": False,
        "is_onboarding_completed": True,
        "is_onboarding_checklist_completed": True,
        "first_name": "rtts",
        "xi_api_key": None,
        "created_at": 0,
        "seat_type": "workspace_admin",
    }
    return _json(fields)


def _subscription(house: House) -> dict[str, Any]:
    return {
        "tier": "self-hosted",
        "status": "active",
        "character_count": 0,
        "character_limit": _UNLIMITED,
        "max_character_limit_extension": None,
        "max_credit_limit_extension": "unlimited",
        "can_extend_character_limit": False,
        "allowed_to_extend_character_limit": False,
        "next_character_count_reset_unix": None,
        "voice_slots_used": len(house.capabilities.voices),
        "professional_voice_slots_used": 0,
        "professional_voice_slots_used_in_workspace": 0,
        "max_voice_add_edits": None,
        "voice_add_edit_counter": 0,
        "voice_limit": _UNLIMITED,
        "professional_voice_limit": 0,
        "can_extend_voice_limit": False,
        "can_use_instant_voice_cloning": house.capabilities.clones_voices,
        "can_use_professional_voice_cloning": False,
        "current_overage": {"amount": "0", "currency": "usd"},
        "open_invoices": [],
        "has_open_invoices": False,
        "currency": None,
        "billing_period": None,
        "character_refresh_period": None,
    }


def _json(body: Any) -> Reply:
    headers = (("content-type", "application/json"), ("cache-control", "no-store"))
    return Reply(status=200, body=msgspec.json.encode(body), headers=headers)


def is_meant(headers: Mapping[str, str]) -> bool:
    """Whether a request comes from a client of this API: by where it shows its key, or its SDK."""
    return "xi-api-key" in headers or "elevenlabs" in headers.get("x-fern-sdk-name", "")


ROUTES = (
    Route("GET", "/v1/voices", Listing(ElevenLabs, voices), meant=is_meant),
    Route("GET", "/v2/voices", Listing(ElevenLabs, searched_voices)),
    Route("GET", "/v1/voices/settings/default", Listing(ElevenLabs, voice_settings)),
    Route("GET", "/v1/voices/{voice}", Listing(ElevenLabs, voice), meant=is_meant),
    Route("GET", "/v1/voices/{voice}/settings", Listing(ElevenLabs, voice_settings)),
    Route("GET", "/v1/models", Listing(ElevenLabs, models), meant=is_meant),
    Route("GET", "/v1/user", Listing(ElevenLabs, user)),
    Route("GET", "/v1/user/subscription", Listing(ElevenLabs, subscription)),
)
