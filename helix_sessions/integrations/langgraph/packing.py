"""Documents as short texts: msgpack, compressed with what most documents are made of, base64."""

import base64
import zlib
from typing import Any

from helix_sessions.integrations.extras import needed_from

with needed_from("langgraph"):
    import ormsgpack

_WORDS = (
    b"\xadpending_sends\x90\xa6run_id\xd9$\xa6source\xa6update\xa6source\xa4fork\xbdcounters_since_delta_sna"
    b"pshot\xae__pregel_tasks\x91~__pregel_push, \xa5index\xff\xa7channel\xa9__error__\xa5index\xfd\xa7chann"
    b"el\xad__interrupt__\xa5value\x82\xa4type\xa7msgpack\xa4data\xc4d\x91\xc7`\x02\x93\xaflanggraph.types"
    b"\xa9Interrupt\x83\xa5value\xa2id\xd9 \xafresponse_schema\xc0\xa4task\xd9$00000000-0000-0000-0000-00000"
    b"0000000\xa4path\xa0\xa5index\xfc\xa7channel\xaa__resume__\xad__interrupt__\x83\xa8messages\xa5model"
    b"\x81\xafbranch:to:model\xa5tools\x81\xafbranch:to:tools\xa4path\xb5~__pregel_pull, tools\x94\xbclangch"
    b"ain_core.messages.tool\xabToolMessage\x89\xa7content\xa4type\xa4tool\xa4name\xa2id\xd9$\xactool_call_i"
    b"d\xbdcall_\xa8artifact\xc0\xa6status\xa7success\xaatool_calls\x91\x84\xa4name\xa4args\x81\xa2id\xbdcal"
    b"l_\xa4type\xa9tool_call\xaamodel_name\xadfinish_reason\xa4stop\xd9,lc_run--\xaeusage_metadata\x83\xaci"
    b"nput_tokens\xadoutput_tokens\xactotal_tokens\x81\xa8messages\x91\x82\xa4role\xa4user\xa7content\xda"
    b"\x04\x00\x81\xa8messages\x91\xc8\x04\x05\x94\xbdlangchain_core.messages.human\xacHumanMessage\x86\xa7c"
    b"ontent\xda\x04\x00\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0\xa2i"
    b"d\xd9$\xb3model_validate_json\xb0updated_channels\x91\xa9__start__\xa8metadata\x82\xa4type\xa7msgpack"
    b"\xa4data\xc4\x1d\x83\xa6source\xa5input\xa4step\x01\xa7parents\x80\xa6values\x81\xa9__start__\x83\xa4t"
    b"ype\xa7msgpack\xa5parts\x93\xc4\x14\x81\xa8messages\x91\x92\xa4user\xda\x04\x00\x82\xa8position\x01"
    b"\xa6number\x00\xc4\x00\xa6digest\xac\xa4held\x81\xa8messages\xd9$1f1\xa6writes\x92\x85\xa4task\xd9$"
    b"\xa4path\xb9~__pregel_pull, __start__\xa5index\x00\xa7channel\xa8messages\xa5value\x83\xa4type\xa7msgp"
    b"ack\xa5parts\x93\xc4\n\x91\x92\xa4user\xda\x04\x00\x82\xa8position\x01\xa6number\x00\xc4\x00\xa6digest"
    b"\xac\x85\xa4task\xd9$\xa4path\xb9~__pregel_pull, __start__\xa5index\x01\xa7channel\xafbranch:to:agent"
    b"\xa5value\x82\xa4type\xa4null\xa4data\xc4\x00\xa6run_id\xc0\xa6latest\xa0\xb0updated_channels\x91\xa8m"
    b"essages\xa8metadata\x82\xa6values\x81\xa8messages\x82\xa4held\x80\xa6writes\x90\xa6run_id\xc0\x8c\xa2i"
    b"d\xa0\xa9namespace\xa0\xa6parent\xd9$1f1\xaacheckpoint\x82\xa4type\xa7msgpack\xa4data\xc4\xd4\x85\xa1v"
    b"\x04\xa2ts\xd9 2026-+00:00\xb0channel_versions\x83\xa9__start__\x01\xa8messages\x01\xafbranch:to:agent"
    b"\x01\xadversions_seen\x83\xa9__input__\x80\xa9__start__\x81\xa9__start__\x01\xa5agent\x81\xafbranch:to"
    b":agent\x01\xb0updated_channels\x92\xafbranch:to:agent\xa8messages\xa8metadata\x82\xa4type\xa7msgpack"
    b"\xa4data\xc4\x1c\x83\xa6source\xa4loop\xa4step\x01\xa7parents\x80\xa6values\x82\xa8messages\x82\xa5spa"
    b"ns\x91\x92\x00\n\xa6digest\xac\xafbranch:to:agent\x82\xa4type\xa4null\xa4data\xc4\x00\xa4held\x80\xa6w"
    b"rites\x91\x85\xa4task\xd9$\xa4path\xb5~__pregel_pull, agent\xa5index\x00\xa7channel\xa8messages\xa5val"
    b"ue\x83\xa4type\xa7msgpack\xa5parts\x93\xc47\x91\xc8\x04\x05\x94\xbalangchain_core.messages.ai\xa9AIMes"
    b"sage\x89\xa7content\xda\x04\x00\x82\xa8position\x01\xa6number\x00\xc4\xa1\xb1additional_kwargs\x80\xb1"
    b"response_metadata\x80\xa4type\xa2ai\xa4name\xc0\xa2id\xd9$\xaatool_calls\x90\xb2invalid_tool_calls\x90"
    b"\xaeusage_metadata\xc0\xb3model_validate_json\xa6digest\xac\xa6run_id\xc0\xa6latest\xa0\xa5early\x80"
    b"\xa7numbers\x80"
)
"""Never to be changed: what is stored is read with it."""


def pack(document: Any) -> str:
    press = zlib.compressobj(9, zlib.DEFLATED, -15, zdict=_WORDS)
    return base64.b64encode(press.compress(ormsgpack.packb(document)) + press.flush()).decode()


def unpack(packed: str) -> Any:
    return ormsgpack.unpackb(zlib.decompressobj(-15, zdict=_WORDS).decompress(base64.b64decode(packed)))
