// The official packages of npm for the Model Context Protocol, told by lines what to do: `@modelcontextprotocol/sdk`, which
// speaks the versions with a handshake, and `@modelcontextprotocol/client`, which speaks those without one as well.
//
// Every line on standard input is a JSON object: `stdio` (`command`, `args`, `env`) or `http` (`url`, `headers`), `mode`
// (`legacy`, `auto` or a version) and `steps`. For every line one JSON object is printed: what the client learnt when it
// connected, and for every step what it saw. It ends when its input does. Its arguments are the folder with the packages and
// the package's name.

import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(join(resolve(process.argv[2]), "package.json"));
const name = process.argv[3];
const parts = name.endsWith("/sdk")
  ? ["client/index.js", "client/stdio.js", "client/streamableHttp.js"].map((part) => require(`${name}/${part}`))
  : [require(name), require(`${name}/stdio`)];
const { Client, StdioClientTransport, StreamableHTTPClientTransport } = Object.assign({}, ...parts);

// Who waits for a change, if anybody does.
const changes = { heard: undefined };

const does = {
  tools: (client) => client.listTools(),
  call: (client, told) => client.callTool({ name: told.name, arguments: told.arguments ?? {} }),
  async many(client, told) {
    const calls = Array.from({ length: told.times }, () => client.callTool({ name: told.name, arguments: told.arguments ?? {} }));
    return { results: await Promise.all(calls) };
  },
  async resources(client) {
    const found = [];
    let pages = 0;
    let cursor;
    do {
      const part = await client.listResources(cursor === undefined ? {} : { cursor });
      found.push(...part.resources);
      pages += 1;
      cursor = part.nextCursor;
    } while (cursor !== undefined);
    return { resources: found, pages };
  },
  templates: (client) => client.listResourceTemplates(),
  read: (client, told) => client.readResource({ uri: told.uri }),
  prompts: (client) => client.listPrompts(),
  prompt: (client, told) => client.getPrompt({ name: told.name, arguments: told.arguments }),
  complete(client, told) {
    const ref = told.prompt ? { type: "ref/prompt", name: told.prompt } : { type: "ref/resource", uri: told.template };
    return client.complete({ ref, argument: { name: told.argument, value: told.value } });
  },
  // Writes a file, and waits until it is told that there is something else to list.
  async changes(client, told) {
    const changed = new Promise((resolve, reject) => {
      changes.heard = resolve;
      setTimeout(() => reject(new Error("nothing was heard of a change")), 60_000).unref();
    });
    // What is listed now is what changes are told against.
    await client.listResources();
    await mkdir(dirname(told.file), { recursive: true });
    await writeFile(told.file, told.text);
    return { heard: await changed };
  },
  ping: (client) => client.ping(),
};

async function saw(client, told) {
  try {
    return await does[told.do](client, told);
  } catch (error) {
    return { error: { code: error.code ?? null, message: String(error.message) } };
  }
}

async function run(told) {
  const mode = ["legacy", "auto"].includes(told.mode) ? told.mode : { pin: told.mode };
  const onChanged = (error, items) => changes.heard?.(error ? `${error.message}` : items.map((item) => item.uri));
  const options = { versionNegotiation: { mode }, listChanged: { resources: { onChanged, debounceMs: 0 } } };
  const client = new Client({ name: "icecore-tests", version: "1" }, options);
  const transport = told.stdio
    ? new StdioClientTransport({ ...told.stdio, stderr: "inherit" })
    : new StreamableHTTPClientTransport(new URL(told.http.url), { requestInit: { headers: told.http.headers } });
  await client.connect(transport);
  try {
    const steps = [];
    for (const one of told.steps) steps.push(await saw(client, one));
    return {
      version: client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion ?? null,
      server: client.getServerVersion() ?? null,
      capabilities: client.getServerCapabilities() ?? null,
      instructions: client.getInstructions() ?? null,
      steps,
    };
  } finally {
    await client.close();
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  let seen;
  try {
    seen = await run(JSON.parse(line));
  } catch (error) {
    seen = { failed: `${error.name}: ${error.message}` };
  }
  process.stdout.write(`${JSON.stringify(seen)}\n`);
}
