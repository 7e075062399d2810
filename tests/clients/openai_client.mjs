// The official OpenAI package of npm, told by lines what to do.
//
// Every line on standard input is a JSON object with `base_url`, `token`, `scenario` and what that needs; for every line one
// JSON object of what the client saw is printed. It ends when its input does. The folder with the package is its argument.

import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

const { OpenAI } = createRequire(join(resolve(process.argv[2]), "package.json"))("openai");

const headers = (response) => Object.fromEntries(response.headers.entries());

const scenarios = {
  async chat(client, told) {
    const { data, response } = await client.chat.completions.create(told.body).withResponse();
    return { reply: data, headers: headers(response) };
  },
  // The stream as it comes, chunk by chunk.
  async chunks(client, told) {
    const { data, response } = await client.chat.completions.create({ ...told.body, stream: true }).withResponse();
    const chunks = [];
    for await (const chunk of data) chunks.push(chunk);
    return { chunks, headers: headers(response) };
  },
  // The stream put together by the client's own helper.
  async stream(client, told) {
    const events = client.chat.completions.stream(told.body);
    return { reply: await events.finalChatCompletion() };
  },
  async models(client) {
    const models = [];
    for await (const model of client.models.list()) models.push(model.id);
    return { models };
  },
};

function failure(error) {
  const { status, code, requestID, message, error: body } = error;
  const seen = error.headers ? Object.fromEntries(error.headers.entries()) : null;
  return { error: { class: error.constructor.name, status_code: status, code, request_id: requestID, message, body, headers: seen } };
}

for await (const line of createInterface({ input: process.stdin })) {
  const told = JSON.parse(line);
  const client = new OpenAI({
    baseURL: `${told.base_url}/v1`,
    apiKey: told.token,
    maxRetries: told.retries ?? 0,
    timeout: (told.timeout ?? 100) * 1000,
    defaultHeaders: told.headers ?? {},
  });
  let seen;
  try {
    seen = await scenarios[told.scenario](client, told);
  } catch (error) {
    // Whatever it is, the test wants to see it.
    seen = failure(error);
  }
  process.stdout.write(`${JSON.stringify(seen)}\n`);
}
