"""The official `mcp` package of PyPI, told by lines what to do.

Every line on standard input is a JSON object: `stdio` (`command`, `args`, `env`) or `http` (`url`, `headers`), `mode` (`legacy`,
`auto` or a version) and `steps`. For every line one JSON object is printed: what the client learnt when it connected, and for
every step what it saw. It ends when its input does.
"""

import asyncio
import json
import pathlib
import sys

import httpx2
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import PromptReference, ResourceTemplateReference


def plain(value):
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


heard = []


async def hear(message):
    heard.append(type(message).__name__)


async def changes(client, told):
    """Writes a file, and waits until it is told that there is something else to list."""

    def write():
        place = pathlib.Path(told["file"])
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(told["text"], encoding="utf-8")

    async with asyncio.timeout(60):
        # What is listed now is what changes are told against.
        await client.list_resources()
        if client.protocol_version >= "2026":
            async with client.listen(resources_list_changed=True) as listening:
                write()
                return {"heard": type(await anext(aiter(listening))).__name__}
        heard.clear()
        write()
        while "ResourceListChangedNotification" not in heard:
            await asyncio.sleep(0.05)
        return {"heard": heard[-1]}


async def step(client, told):
    does = told["do"]
    if does == "tools":
        return plain(await client.list_tools())
    if does == "call":
        return plain(await client.call_tool(told["name"], told.get("arguments", {})))
    if does == "many":
        calls = [client.call_tool(told["name"], told.get("arguments", {})) for _ in range(told["times"])]
        return {"results": [plain(result) for result in await asyncio.gather(*calls)]}
    if does == "resources":
        found, cursor, pages = [], None, 0
        while True:
            part = await client.list_resources(cursor=cursor)
            found += [plain(resource) for resource in part.resources]
            pages, cursor = pages + 1, part.next_cursor
            if cursor is None:
                return {"resources": found, "pages": pages}
    if does == "templates":
        return plain(await client.list_resource_templates())
    if does == "read":
        return plain(await client.read_resource(told["uri"]))
    if does == "prompts":
        return plain(await client.list_prompts())
    if does == "prompt":
        return plain(await client.get_prompt(told["name"], told.get("arguments")))
    if does == "complete":
        if "prompt" in told:
            ref = PromptReference(type="ref/prompt", name=told["prompt"])
        else:
            ref = ResourceTemplateReference(type="ref/resource", uri=told["template"])
        return plain(await client.complete(ref, {"name": told["argument"], "value": told["value"]}))
    if does == "changes":
        return await changes(client, told)
    if does == "ping":
        return plain(await client.send_ping())
    raise ValueError(does)


async def saw(client, told):
    try:
        return await step(client, told)
    except MCPError as error:
        return {"error": {"code": error.error.code, "message": error.error.message}}


async def run(told):
    if "stdio" in told:
        return await connected(StdioServerParameters(**told["stdio"]), told)
    async with httpx2.AsyncClient(headers=told["http"]["headers"], timeout=60) as http:
        return await connected(streamable_http_client(told["http"]["url"], http_client=http), told)


async def connected(server, told):
    async with Client(server, mode=told["mode"], cache=None, message_handler=hear) as client:
        steps = [await saw(client, one) for one in told["steps"]]
        info = client.server_info
        return {
            "version": client.protocol_version,
            "server": plain(info) if info else None,
            "capabilities": plain(client.server_capabilities),
            "instructions": client.instructions,
            "steps": steps,
        }


def reasons(error):
    if isinstance(error, BaseExceptionGroup):
        return [reason for inner in error.exceptions for reason in reasons(inner)]
    return [f"{type(error).__name__}: {error}"]


for line in sys.stdin:
    try:
        seen = asyncio.run(run(json.loads(line)))
    except Exception as error:  # whatever it is, the test is to see it
        seen = {"failed": "; ".join(reasons(error))}
    print(json.dumps(seen), flush=True)
