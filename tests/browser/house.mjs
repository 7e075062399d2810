// The house that the browser visits: a sample vault in a folder of its own, the program that serves it on the morning after its
// last day, a model that plays a script, and a browser that writes down whatever must not happen.
//
// Told by the environment: ICECORE_PROGRAM is the program, ICECORE_BROWSER_NPM the folder with playwright-core and axe-core, and
// ICECORE_BROWSER_OUT a folder for pictures. With ICECORE_DIST, the pages come from that folder instead of the program, to try a
// dashboard that is not built into it yet.

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

const told = (name) => process.env[name] ?? assert.fail(`${name} is not set; the tests of crates/icecore/tests/it/browser.rs do`);
const npm = createRequire(join(resolve(told('ICECORE_BROWSER_NPM')), 'package.json'));
const { chromium } = npm('playwright-core');
const run = promisify(execFile);

export const HERE = import.meta.dirname;
export const OUT = resolve(told('ICECORE_BROWSER_OUT'));
export const PROGRAM = resolve(told('ICECORE_PROGRAM'));
export const TOKEN = 'a-token-of-the-tests';
/** The morning after the sample life. */
const MORNING = '2026-05-17 07:00:00';
/** Nothing here takes that long, however busy the machine is. */
export const PATIENCE = 60_000;
const DIST = process.env.ICECORE_DIST;
const KINDS = { html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml' };

mkdirSync(OUT, { recursive: true });
// What ends with the file of tests, the last begun first: pages before the server they look at.
const endings = [];
after(async () => { for (const end of endings.reverse()) await end(); });
export const axe = readFileSync(npm.resolve('axe-core/axe.min.js'), 'utf8');

// What is flushed to memory is flushed at once; that it reaches a disk is proven elsewhere.
const shared = existsSync('/dev/shm') ? statfsSync('/dev/shm') : undefined;
if (shared && shared.bavail * shared.bsize > 1 << 30) process.env.TMPDIR = '/dev/shm';

/** Looks again and again until `look` returns something that holds. */
export async function until(what, look, patience = PATIENCE) {
  const began = performance.now();
  for (;;) {
    const found = await look();
    if (found) return found;
    assert.ok(performance.now() - began < patience, `${what} did not come`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
export const median = (figures) => percentile(figures, 0.5);
export function percentile(figures, part) {
  const sorted = [...figures].sort((a, b) => a - b);
  return sorted[Math.min(Math.floor(sorted.length * part), sorted.length - 1)];
}

/** How far this morning is from that one; both clocks go on from there together. */
const AWAY_SECONDS = Math.round((Date.parse(`${MORNING.replace(' ', 'T')}Z`) - Date.now()) / 1_000);
function morning() {
  const found = readdirSync('/usr/lib').map((name) => `/usr/lib/${name}/faketime/libfaketime.so.1`).find((path) => existsSync(path));
  assert.ok(found, 'libfaketime is missing; tests/browser/install installs it');
  return { LD_PRELOAD: found, FAKETIME: `${AWAY_SECONDS < 0 ? '' : '+'}${AWAY_SECONDS}`, FAKETIME_DONT_FAKE_MONOTONIC: '1', NO_FAKE_STAT: '1', TZ: 'UTC' };
}

/** Where a memory lives: a vault in a folder of its own, and what its environment says. */
export class Home {
  folder = mkdtempSync(join(tmpdir(), 'icecore-browser-'));
  vault = join(this.folder, 'vault');
  environment = { PATH: process.env.PATH, HOME: this.folder, TMPDIR: this.folder, ICECORE_TOKEN: TOKEN, ...morning() };
  #servers = [];

  constructor() {
    endings.push(async () => {
      for (const server of this.#servers) await server.stop();
      rmSync(this.folder, { recursive: true, force: true });
    });
  }

  /** Runs the program; it must succeed. */
  async cli(...args) {
    const { stdout } = await run(PROGRAM, ['--vault', this.vault, ...args], { env: this.environment, maxBuffer: 64 << 20 });
    return stdout;
  }

  async json(...args) {
    return JSON.parse(await this.cli(...args, '--json'));
  }

  async remember(...args) {
    return (await this.json('remember', ...args)).event.id;
  }

  /** Every event whatever became of it, by its id. */
  async ledger() {
    return new Map((await this.json('events', '--all')).events.map((event) => [event.id, event]));
  }

  async serve(addr = '127.0.0.1:0') {
    const server = await Server.start(this, addr);
    this.#servers.push(server);
    return server;
  }
}

/** A vault with nothing in it. */
export async function bare() {
  const home = new Home();
  await home.cli('init', '--tz', 'Europe/Berlin', '-q');
  return home;
}

/** The sample life of the program's own demonstration, with a night's work done, chats, a page of a person and something in each view. */
export async function sample() {
  const home = new Home();
  const { vault } = JSON.parse((await run(PROGRAM, ['demo', '--json'], { env: home.environment, maxBuffer: 64 << 20 })).stdout);
  home.vault = vault;
  await home.cli('consolidate', '-q');
  await home.cli('snapshot', '-q');
  await home.remember('The stall at the market costs 45 EUR a day', '--entity', 'market stall', '--priority', 'P1', '--tag', 'money');
  await home.remember('The stall at the market costs 55 EUR a day', '--entity', 'market stall', '--priority', 'P1', '--tag', 'money');
  const model = await Model.start((request) => REPLIES[request.messages.filter((one) => one.role === 'user').length - 1] ?? 'Yes.');
  home.model = model;
  Object.assign(home.environment, { ICECORE_CHAT_PROVIDER: 'openai', ICECORE_CHAT_BASE_URL: model.base, ICECORE_CHAT_MODEL: 'scripted' });
  return home;
}

const sorted = (order) => `def by_weight(crates):\n    return sorted(crates, key=lambda crate: crate.weight${order})\n`;
const REPLIES = [
  `Agreed, apples are packed by weight. Here it is:\n\n\`\`\`python pack.py\n${sorted('')}\`\`\`\n`,
  `Heaviest first, then:\n\n\`\`\`python pack.py\n${sorted(', reverse=True')}\`\`\`\n`,
  'Noted: the pick-up is at seven in the morning.',
];

/** A chat of three turns that leaves facts and two versions of a program. */
export async function chat(home, server, name = 'apple-crates') {
  const messages = [];
  for (const words of ['We decided to pack the crates by weight. Write pack.py for it.', 'Please sort the heaviest first.', 'The pick-up is at 07:00 from now on.']) {
    messages.push({ role: 'user', content: words });
    messages.push({ role: 'assistant', content: await server.chat(name, messages) });
  }
  await until('the last turn', async () => (await home.json('conversation', 'turns', name).catch(() => ({ turns: [] }))).turns.length >= 3);
}

/** A model's server that says what a script says. */
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
    endings.push(() => server.close());
    server.unref();
    return new Promise((done) => server.listen(0, '127.0.0.1', () => {
      model.base = `http://127.0.0.1:${server.address().port}/v1`;
      done(model);
    }));
  }
}

/** The program, serving. */
class Server {
  log = '';

  static async start(home, addr) {
    const server = new Server();
    server.child = spawn(PROGRAM, ['--vault', home.vault, 'serve', '--json', '--addr', addr], { env: home.environment, stdio: ['ignore', 'pipe', 'pipe'] });
    const gone = new Promise((done) => server.child.once('exit', done));
    server.gone = gone;
    server.child.stderr.setEncoding('utf8').on('data', (text) => { server.log += text; });
    const lines = createInterface({ input: server.child.stdout });
    const first = await Promise.race([new Promise((done) => lines.once('line', done)), gone.then(() => undefined)]);
    assert.ok(first?.startsWith('{'), `the server did not start: ${first} ${server.log}`);
    // To whoever is no terminal the link is told only so.
    const { addr: listening, login } = JSON.parse(first);
    server.url = `http://${listening}`;
    server.code = /#code=(\w+)/.exec(login)[1];
    return server;
  }

  /** Asks the API as a program does. */
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

/** What must not happen in a page, as it happened. */
class Wrongs {
  list = [];
  /** Words of wrongs that a test expects. */
  expected = [];

  add(kind, text) {
    if (!this.expected.some((part) => `${kind}: ${text}`.includes(part))) this.list.push(`${kind}: ${text}`);
  }

  none(where = '') {
    assert.deepEqual(this.list, [], where);
  }
}

let launched;
/** One browser for a whole file of tests. Whatever asks for another machine comes to `trap`. */
export async function browser() {
  if (launched) return launched;
  const asked = [];
  // The browser's maker is asked by the browser itself, whatever page is open; when its tunnels fail, also without one.
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
    // Loopback goes past the proxy by itself.
    args: [`--proxy-server=http://127.0.0.1:${trap.address().port}`, '--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-default-apps', '--no-first-run', '--disable-dev-shm-usage', '--no-pings', '--force-color-profile=srgb', '--font-render-hinting=none'],
  });
  endings.push(async () => { await opened.close(); trap.close(); });
  launched = { opened, asked };
  return launched;
}

/** Opens a page that is logged in, and watches it. Without a `border`, what it asks for is not looked at, which takes time. */
export async function visit(server, { width = 1280, height = 800, theme = 'light', login = true, border = true, init } = {}) {
  const { opened } = await browser();
  const context = await opened.newContext({ viewport: { width, height }, colorScheme: theme, locale: 'en-GB', timezoneId: 'Europe/Berlin', reducedMotion: 'reduce' });
  context.setDefaultTimeout(PATIENCE / 2);
  // Called within a test, this ends with it.
  after(() => context.close().catch(() => {}));
  const wrongs = new Wrongs();
  await context.exposeBinding('wrong', (_, kind, text) => wrongs.add(kind, text));
  await context.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => window.wrong('policy', `${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
    window.addEventListener('unhandledrejection', (event) => window.wrong('rejection', String(event.reason)));
  });
  // The page's clock is the server's.
  await context.addInitScript((away) => {
    const Real = Date;
    window.Date = class extends Real {
      constructor(...parts) {
        super(...(parts.length === 0 ? [Real.now() + away] : parts));
      }
      static now() {
        return Real.now() + away;
      }
    };
  }, AWAY_SECONDS * 1_000);
  if (init) await context.addInitScript(init);
  const asked = [];
  const home = new URL(server.url).origin;
  if (border || DIST) await context.route(() => true, async (route) => {
    const url = new URL(route.request().url());
    asked.push(url.href);
    if (url.origin !== home && url.protocol !== 'data:' && url.protocol !== 'blob:') {
      wrongs.add('foreign request', url.href);
      return route.abort();
    }
    const file = url.pathname === '/' ? 'index.html' : url.pathname.slice(1);
    if (DIST && existsSync(join(DIST, file))) {
      const real = await route.fetch().catch(() => undefined);
      if (!real) return route.abort('connectionrefused').catch(() => {});
      const kind = KINDS[file.split('.').pop()];
      const headers = { ...real.headers(), 'content-type': kind };
      for (const name of ['content-encoding', 'content-length', 'etag', 'transfer-encoding']) delete headers[name];
      return route.fulfill({ status: 200, headers, body: readFileSync(join(DIST, file)) });
    }
    return route.fallback();
  });
  const page = await context.newPage();
  watch(page, wrongs);
  context.on('page', (another) => { if (another !== page) wrongs.add('window', another.url()); });
  if (login) {
    const answer = await fetch(`${server.url}/api/login`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ token: TOKEN }) });
    assert.ok(answer.ok, await answer.text());
    const [name, value] = answer.headers.get('set-cookie').split(';')[0].split('=');
    await context.addCookies([{ name, value, url: server.url, httpOnly: true, sameSite: 'Strict' }]);
  }
  return { context, page, wrongs, asked, url: server.url };
}

function watch(page, wrongs) {
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) wrongs.add('console', `${message.text()} ${message.location().url}`); });
  page.on('pageerror', (error) => wrongs.add('page', error.stack ?? String(error)));
  page.on('dialog', (dialog) => { wrongs.add('dialog', dialog.message()); return dialog.dismiss().catch(() => {}); });
  page.on('crash', () => wrongs.add('crash', page.url()));
  page.on('download', (download) => wrongs.add('download', download.url()));
  page.on('requestfailed', (request) => {
    // What nobody waits for any more is stopped, and says so like this.
    if (request.failure()?.errorText !== 'net::ERR_ABORTED') wrongs.add('failed', `${request.method()} ${request.url()} ${request.failure()?.errorText}`);
  });
  page.on('response', (response) => { if (response.status() >= 400) wrongs.add('refused', `${response.status()} ${response.url()}`); });
}

/** Waits until a view has what it asked for and stands still. */
export async function settled(page) {
  await page.waitForSelector('main#main', { state: 'attached' });
  // The line on which changes are told stays open, so "no more requests" has to be counted without it.
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

/** The views as the rail lists them. */
export async function rail(page) {
  await page.waitForSelector('.rail nav a');
  return page.$$eval('.rail nav a', (links) => links.map((link) => ({
    title: link.querySelector('span').textContent, address: link.getAttribute('href'), key: /\(g (.)\)/.exec(link.title)?.[1],
    id: link.getAttribute('href').replace(/^#\/?/, '') || 'first',
  })));
}

/** Goes to an address of the dashboard and waits until it is there. */
export async function to(page, address) {
  await page.evaluate((hash) => { location.hash = hash; }, address);
  await settled(page);
}
