// The test harness: a sample vault in its own folder, a server for it with the clock of the morning after its last day, a scripted
// model, and a browser that records every problem.
//
// Environment: ICECORE_PROGRAM is the program, ICECORE_BROWSER_NPM the folder with playwright-core and axe-core, ICECORE_BROWSER_OUT a
// folder for screenshots. With ICECORE_DIST, the pages come from that folder instead of the program, to test a dashboard that is not
// built into it yet.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statfsSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { after } from 'node:test';
import { promisify } from 'node:util';

const requiredEnv = (name) => process.env[name] ?? assert.fail(`${name} is not set; the tests of crates/icecore/tests/it/browser.rs do`);
const npm = createRequire(join(resolve(requiredEnv('ICECORE_BROWSER_NPM')), 'package.json'));
const { chromium } = npm('playwright-core');
const run = promisify(execFile);

export const HERE = import.meta.dirname;
export const OUT = resolve(requiredEnv('ICECORE_BROWSER_OUT'));
export const PROGRAM = resolve(requiredEnv('ICECORE_PROGRAM'));
export const TOKEN = 'a-token-of-the-tests';
/** The morning after the last day of the sample vault. */
const START_TIME = '2026-05-17 07:00:00';
/** Longer than anything here takes, even on a busy machine. */
export const TIMEOUT_MS = 60_000;
const DIST = process.env.ICECORE_DIST;
const CONTENT_TYPES = { html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml' };

mkdirSync(OUT, { recursive: true });
// Cleanups after a test file, in reverse order: pages before the server they use.
const cleanups = [];
after(async () => { for (const cleanup of cleanups.reverse()) await cleanup(); });
export const axe = readFileSync(npm.resolve('axe-core/axe.min.js'), 'utf8');

// Syncing to memory is fast; other tests prove durability on disk.
const shared = existsSync('/dev/shm') ? statfsSync('/dev/shm') : undefined;
if (shared && shared.bavail * shared.bsize > 1 << 30) process.env.TMPDIR = '/dev/shm';

/** Polls `look` until it returns something truthy. */
export async function waitUntil(what, look, timeoutMs = TIMEOUT_MS) {
  const began = performance.now();
  for (;;) {
    const found = await look();
    if (found) return found;
    assert.ok(performance.now() - began < timeoutMs, `timed out waiting for ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
export const median = (figures) => percentile(figures, 0.5);
export function percentile(figures, part) {
  const sorted = [...figures].sort((a, b) => a - b);
  return sorted[Math.min(Math.floor(sorted.length * part), sorted.length - 1)];
}

/** The offset of the fake clock from the real one. */
const CLOCK_OFFSET_SECS = Math.round((Date.parse(`${START_TIME.replace(' ', 'T')}Z`) - Date.now()) / 1_000);
function fakeClock() {
  const found = readdirSync('/usr/lib').map((name) => `/usr/lib/${name}/faketime/libfaketime.so.1`).find((path) => existsSync(path));
  assert.ok(found, 'libfaketime is missing; tests/browser/install installs it');
  return { LD_PRELOAD: found, FAKETIME: `${CLOCK_OFFSET_SECS < 0 ? '' : '+'}${CLOCK_OFFSET_SECS}`, FAKETIME_DONT_FAKE_MONOTONIC: '1', NO_FAKE_STAT: '1', TZ: 'UTC' };
}

/** A vault in its own folder, with the environment of its programs. */
export class TestVault {
  folder = mkdtempSync(join(tmpdir(), 'icecore-browser-'));
  path = join(this.folder, 'vault');
  environment = { PATH: process.env.PATH, HOME: this.folder, TMPDIR: this.folder, ICECORE_TOKEN: TOKEN, ...fakeClock() };
  #servers = [];

  constructor() {
    cleanups.push(async () => {
      for (const server of this.#servers) await server.stop();
      rmSync(this.folder, { recursive: true, force: true });
    });
  }

  /** Runs the program; it must succeed. */
  async cli(...args) {
    const { stdout } = await run(PROGRAM, ['--vault', this.path, ...args], { env: this.environment, maxBuffer: 64 << 20 });
    return stdout;
  }

  async json(...args) {
    return JSON.parse(await this.cli(...args, '--json'));
  }

  async remember(...args) {
    return (await this.json('remember', ...args)).event.id;
  }

  /** All events in any state, by id. */
  async ledger() {
    return new Map((await this.json('events', '--all')).events.map((event) => [event.id, event]));
  }

  async serve(addr = '127.0.0.1:0') {
    const server = await Server.start(this, addr);
    this.#servers.push(server);
    return server;
  }
}

/** Creates an empty vault. */
export async function emptyVault() {
  const vault = new TestVault();
  await vault.cli('init', '--tz', 'Europe/Berlin', '-q');
  return vault;
}

/** Creates the vault of `icecore demo`, consolidated, with a conflict, and with a chat model: every view has data. */
export async function sampleVault() {
  const vault = new TestVault();
  const demo = JSON.parse((await run(PROGRAM, ['demo', '--json'], { env: vault.environment, maxBuffer: 64 << 20 })).stdout);
  vault.path = demo.vault;
  await vault.cli('consolidate', '-q');
  await vault.cli('snapshot', '-q');
  await vault.remember('The stall at the market costs 45 EUR a day', '--entity', 'market stall', '--priority', 'P1', '--tag', 'money');
  await vault.remember('The stall at the market costs 55 EUR a day', '--entity', 'market stall', '--priority', 'P1', '--tag', 'money');
  const model = await Model.start((request) => REPLIES[request.messages.filter((one) => one.role === 'user').length - 1] ?? 'Yes.');
  vault.model = model;
  Object.assign(vault.environment, { ICECORE_CHAT_PROVIDER: 'openai', ICECORE_CHAT_BASE_URL: model.base, ICECORE_CHAT_MODEL: 'scripted' });
  return vault;
}

const sorted = (order) => `def by_weight(crates):\n    return sorted(crates, key=lambda crate: crate.weight${order})\n`;
const REPLIES = [
  `Agreed, apples are packed by weight. Here it is:\n\n\`\`\`python pack.py\n${sorted('')}\`\`\`\n`,
  `Heaviest first, then:\n\n\`\`\`python pack.py\n${sorted(', reverse=True')}\`\`\`\n`,
  'Noted: the pick-up is at seven in the morning.',
];

/** Runs a chat of three turns that leaves facts and two versions of an artifact. */
export async function chat(vault, server, name = 'apple-crates') {
  const messages = [];
  for (const words of ['We decided to pack the crates by weight. Write pack.py for it.', 'Please sort the heaviest first.', 'The pick-up is at 07:00 from now on.']) {
    messages.push({ role: 'user', content: words });
    messages.push({ role: 'assistant', content: await server.chat(name, messages) });
  }
  await waitUntil('the last turn', async () => (await vault.json('conversation', 'turns', name).catch(() => ({ turns: [] }))).turns.length >= 3);
}

/** A model server with scripted answers. */
class Model {
  static start(says) {
    const model = Object.assign(new Model(), { says });
    const server = createServer(async (request, response) => {
      let body = '';
      for await (const piece of request) body += piece;
      const text = model.says(JSON.parse(body));
      const choice = { index: 0, message: { role: 'assistant', content: text, refusal: null }, finish_reason: 'stop' };
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ id: 'c1', object: 'chat.completion', created: 1, model: 'scripted', choices: [choice], usage: { prompt_tokens: 9, completion_tokens: 9, total_tokens: 18 } }));
    });
    cleanups.push(() => server.close());
    server.unref();
    return new Promise((done) => server.listen(0, '127.0.0.1', () => {
      model.base = `http://127.0.0.1:${server.address().port}/v1`;
      done(model);
    }));
  }
}

/** A running `icecore serve`. */
class Server {
  log = '';

  static async start(vault, addr) {
    const server = new Server();
    server.child = spawn(PROGRAM, ['--vault', vault.path, 'serve', '--json', '--addr', addr], { env: vault.environment, stdio: ['ignore', 'pipe', 'pipe'] });
    const gone = new Promise((done) => server.child.once('exit', done));
    server.gone = gone;
    server.child.stderr.setEncoding('utf8').on('data', (text) => { server.log += text; });
    const lines = createInterface({ input: server.child.stdout });
    const first = await Promise.race([new Promise((done) => lines.once('line', done)), gone.then(() => undefined)]);
    assert.ok(first?.startsWith('{'), `the server did not start: ${first} ${server.log}`);
    // Without a terminal, the login link is only in this line.
    const { addr: listening, login } = JSON.parse(first);
    server.url = `http://${listening}`;
    server.code = /#code=(\w+)/.exec(login)[1];
    return server;
  }

  /** Sends an API request with the token. */
  async ask(method, path, body) {
    const response = await fetch(this.url + path, {
      method,
      headers: { authorization: `Bearer ${TOKEN}`, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
    return JSON.parse(text);
  }

  async chat(conversation, messages) {
    const response = await fetch(`${this.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json', 'x-icecore-conversation': conversation },
      body: JSON.stringify({ model: 'scripted', messages }),
    });
    const text = await response.text();
    assert.ok(response.ok, `chat: ${response.status} ${text}`);
    return JSON.parse(text).choices[0].message.content;
  }

  async stop() {
    this.child.kill('SIGKILL');
    await this.gone;
    assert.ok(!this.log.includes('panicked'), this.log);
  }
}

/** The recorded problems of a page. */
class Problems {
  list = [];
  /** Parts of the problems that a test expects. */
  expected = [];

  add(kind, text) {
    if (!this.expected.some((part) => `${kind}: ${text}`.includes(part))) this.list.push(`${kind}: ${text}`);
  }

  none(where = '') {
    assert.deepEqual(this.list, [], where);
  }
}

let launched;
/** One browser per test file. Requests to other hosts go to the proxy `trap`, which records and refuses them. */
export async function browser() {
  if (launched) return launched;
  const asked = [];
  // Chromium's own background requests, independent of any page.
  const own = /^(CONNECT [\w.-]*\.(google|googleapis|gstatic)\.com:443$|POST http:\/\/update\.googleapis\.com\/service\/update2\/json\b)/;
  const trapped = (request) => {
    const what = `${request.method} ${request.url}`;
    if (!own.test(what)) asked.push(what);
  };
  const trap = createServer((request, response) => { trapped(request); response.writeHead(502).end(); });
  trap.on('connect', (request, socket) => { trapped(request); socket.destroy(); });
  await new Promise((done) => trap.listen(0, '127.0.0.1', done));
  trap.unref();
  const opened = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    // Loopback addresses bypass the proxy.
    args: [`--proxy-server=http://127.0.0.1:${trap.address().port}`, '--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-default-apps', '--no-first-run', '--disable-dev-shm-usage', '--no-pings', '--force-color-profile=srgb', '--font-render-hinting=none'],
  });
  cleanups.push(async () => { await opened.close(); trap.close(); });
  launched = { opened, asked };
  return launched;
}

/** Opens a logged-in page and records its problems. With `intercept: false`, requests are not inspected, which is faster. */
export async function openPage(server, { width = 1280, height = 800, theme = 'light', login = true, intercept = true, init } = {}) {
  const { opened } = await browser();
  const context = await opened.newContext({ viewport: { width, height }, colorScheme: theme, locale: 'en-GB', timezoneId: 'Europe/Berlin', reducedMotion: 'reduce' });
  context.setDefaultTimeout(TIMEOUT_MS / 2);
  // Within a test, this runs at its end.
  after(() => context.close().catch(() => {}));
  const problems = new Problems();
  await context.exposeBinding('reportProblem', (_, kind, text) => problems.add(kind, text));
  await context.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => window.reportProblem('policy', `${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
    window.addEventListener('unhandledrejection', (event) => window.reportProblem('rejection', String(event.reason)));
  });
  // The page has the server's clock.
  await context.addInitScript((offsetMs) => {
    const Real = Date;
    window.Date = class extends Real {
      constructor(...parts) {
        super(...(parts.length === 0 ? [Real.now() + offsetMs] : parts));
      }
      static now() {
        return Real.now() + offsetMs;
      }
    };
  }, CLOCK_OFFSET_SECS * 1_000);
  if (init) await context.addInitScript(init);
  const asked = [];
  const origin = new URL(server.url).origin;
  if (intercept || DIST) await context.route(() => true, async (route) => {
    const url = new URL(route.request().url());
    asked.push(url.href);
    if (url.origin !== origin && url.protocol !== 'data:' && url.protocol !== 'blob:') {
      problems.add('foreign request', url.href);
      return route.abort();
    }
    const file = url.pathname === '/' ? 'index.html' : url.pathname.slice(1);
    if (DIST && existsSync(join(DIST, file))) {
      const real = await route.fetch().catch(() => undefined);
      if (!real) return route.abort('connectionrefused').catch(() => {});
      const type = CONTENT_TYPES[file.split('.').pop()];
      const headers = { ...real.headers(), 'content-type': type };
      for (const name of ['content-encoding', 'content-length', 'etag', 'transfer-encoding']) delete headers[name];
      return route.fulfill({ status: 200, headers, body: readFileSync(join(DIST, file)) });
    }
    return route.fallback();
  });
  const page = await context.newPage();
  watch(page, problems);
  context.on('page', (another) => { if (another !== page) problems.add('window', another.url()); });
  if (login) {
    const answer = await fetch(`${server.url}/api/login`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ token: TOKEN }) });
    assert.ok(answer.ok, await answer.text());
    const [name, value] = answer.headers.get('set-cookie').split(';')[0].split('=');
    await context.addCookies([{ name, value, url: server.url, httpOnly: true, sameSite: 'Strict' }]);
  }
  return { context, page, problems, asked, url: server.url };
}

function watch(page, problems) {
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) problems.add('console', `${message.text()} ${message.location().url}`); });
  page.on('pageerror', (error) => problems.add('page', error.stack ?? String(error)));
  page.on('dialog', (dialog) => { problems.add('dialog', dialog.message()); return dialog.dismiss().catch(() => {}); });
  page.on('crash', () => problems.add('crash', page.url()));
  page.on('download', (download) => problems.add('download', download.url()));
  page.on('requestfailed', (request) => {
    // The dashboard aborts obsolete requests; they fail with this error.
    if (request.failure()?.errorText !== 'net::ERR_ABORTED') problems.add('failed', `${request.method()} ${request.url()} ${request.failure()?.errorText}`);
  });
  page.on('response', (response) => { if (response.status() >= 400) problems.add('refused', `${response.status()} ${response.url()}`); });
}

/** Waits until a view has loaded and no longer changes. */
export async function settle(page) {
  await page.waitForSelector('main#main', { state: 'attached' });
  // The event stream stays open, so waiting for an idle network is not possible.
  await page.waitForFunction(() => {
    const main = document.querySelector('main#main');
    return main !== null && main.querySelector('.loading') === null && (main.textContent ?? '').trim().length > 0;
  });
  await page.evaluate(() => new Promise((done) => {
    let calm = 0;
    let before = '';
    const look = () => {
      const now = document.getElementById('main')?.innerHTML.length + ' ' + performance.getEntriesByType('resource').length;
      calm = now === before && document.querySelector('#main .loading') === null ? calm + 1 : 0;
      before = now;
      if (calm >= 12) done();
      else requestAnimationFrame(look);
    };
    look();
  }));
}

/** The views in the navigation rail. */
export async function railViews(page) {
  await page.waitForSelector('.rail nav a');
  return page.$$eval('.rail nav a', (links) => links.map((link) => ({
    title: link.querySelector('span').textContent, address: link.getAttribute('href'), key: /\(g (.)\)/.exec(link.title)?.[1],
    id: link.getAttribute('href').replace(/^#\/?/, '') || 'first',
  })));
}

/** Goes to an address of the dashboard and waits until the view has loaded. */
export async function goTo(page, address) {
  await page.evaluate((hash) => { location.hash = hash; }, address);
  await settle(page);
}
