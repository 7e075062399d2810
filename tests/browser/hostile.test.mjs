// Untrusted content is only shown: hundreds of payloads are stored through every API, then every view is opened. No script runs, no
// request leaves, no page navigates away, and the content security policy is never violated.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { browser, railViews, sampleVault, settle, goTo, waitUntil, openPage } from './harness.mjs';
import { FAMILIES, MARK, PAYLOADS, mark } from './payloads.mjs';

const wordy = PAYLOADS.map(({ n, text }) => `${mark(n)} ${text}`);
/** Every n-th payload, for one chat, page or log. */
const pick = (every, from = 0) => wordy.filter((_, at) => at % every === from);
// How many payloads each API stored.
const planted = {};
let vault, server, events;

before(async () => {
  assert.ok(PAYLOADS.length >= 300 && new Set(PAYLOADS.map((one) => one.text)).size === PAYLOADS.length);
  vault = await sampleVault();
    server = await vault.serve();
  const count = (api, many) => { planted[api] = (planted[api] ?? 0) + many; };

  // Messages: all payloads.
  const messages = PAYLOADS.map(({ n }, at) => ({ conversation: `${wordy[at % 40].slice(0, 60)}`, id: `m${n}`, role: at % 2 === 0 ? 'user' : 'assistant', name: wordy[at].slice(0, 40), session: wordy[(at % 20)].slice(0, 60), text: wordy[at], ts: `2026-05-${String(10 + (at % 7)).padStart(2, '0')}T${String(8 + (at % 10)).padStart(2, '0')}:${String(at % 60).padStart(2, '0')}:00+02:00` }));
  for (let at = 0; at < messages.length; at += 30) count('messages', await store('/api/messages', messages.slice(at, at + 30), 30));
  // Events: all payloads, with entities and tags.
  const answers = await Promise.all(wordy.map((text, at) => server.ask('POST', '/api/events', {
    text, priority: ['P0', 'P1', 'P2', 'P3'][at % 4], type: ['fact', 'decision', 'preference', 'constraint'][at % 4], entity: wordy[(at * 7) % wordy.length].slice(0, 60), tags: [PAYLOADS[(at * 3) % PAYLOADS.length].text.slice(0, 30)],
  }).catch((error) => ({ error }))));
  events = answers.flatMap((one) => one.event?.id ?? []);
  count('events', events.length);
  for (const text of pick(8)) count('commitments', await store('/api/events', { text, type: 'commitment', waiting_on: text.slice(0, 80) }));
  for (const text of pick(8, 1)) count('log', await store('/api/log', { text }));
  for (const text of pick(16, 2)) count('states', await store('/api/state', { text, title: text.slice(0, 60) }));
  const transcript = pick(6, 3).map((text) => `User: ${text.replaceAll('\n', ' ')}\n\nAssistant: ${text.replaceAll('\n', ' ')}`).join('\n\n');
  count('transcripts', await store('/api/sessions', { text: transcript, session: '<img src=x onerror=ran(-1)>' }));
  // Edited pages.
  for (let at = 0; at < 6; at += 1) {
    const lines = pick(6, at).map((text) => `- ${text.replaceAll('\n', '\n  ')}`);
    count('pages', (await store(`/api/pages/entities/hostile-${at}`, { text: `# ${wordy[at]}\n\n${lines.join('\n')}\n\n${pick(12, at).join('\n\n')}\n` })) * lines.length);
  }
  for (const [at, text] of pick(30, 5).entries()) count('memories', await store('/api/memory-tool', { command: 'create', path: `/memories/hostile-${at}.md`, file_text: text }));
  // Chats with a model that answers with payloads and artifacts.
  vault.model.says = (request) => {
    const last = request.messages.at(-1).content;
    return `${last}\n\n\`\`\`html ${String(last).slice(0, 30)}\n${last}\n\`\`\`\n\n\`\`\`js hostile.js\n${last}\n\`\`\``;
  };
  const chats = ['hostile', '<img src=x onerror=ran(-2)>', '__proto__'];
  for (const [at, name] of chats.entries()) {
    const said = [];
    for (const text of pick(40, at)) {
      said.push({ role: 'user', content: text });
      const answer = await server.chat(name, said).catch((error) => ({ error }));
      if (answer.error) continue;
      said.push({ role: 'assistant', content: answer });
      count('chats', 1);
    }
  }
  // Everything derived: summaries, pages, packs, reports.
  await server.ask('POST', '/api/jobs/run', { job: 'consolidate' }).catch(() => vault.cli('consolidate', '-q'));
  await vault.cli('rollup', '-q').catch(() => {});
});

async function store(path, body, many = 1) {
  return server.ask('POST', path, body).then(() => many, (error) => {
    refused.push(`${path}: ${String(error.message).slice(0, 160)}`);
    return 0;
  });
}
const refused = [];

/** The elements and attributes of a page that only a payload can have created. */
function strange() {
  const found = [];
  const ours = new Set(['HTML', 'HEAD', 'BODY', 'META', 'TITLE', 'LINK', 'SCRIPT', 'NOSCRIPT']);
  for (const element of document.querySelectorAll('*')) {
    const name = element.tagName.toUpperCase();
    const within = element.closest('#app');
    if (!within && !ours.has(name) && element.id !== 'app') found.push(`<${name}> outside of the dashboard`);
    if (within && ['SCRIPT', 'STYLE', 'LINK', 'META', 'BASE', 'IFRAME', 'FRAME', 'OBJECT', 'EMBED', 'APPLET', 'IMG', 'IMAGE', 'VIDEO', 'AUDIO', 'SOURCE', 'TRACK', 'TEMPLATE', 'MATH', 'MARQUEE', 'FOREIGNOBJECT', 'USE', 'PORTAL'].includes(name)) found.push(`<${name}>`);
    for (const { name: attribute, value } of element.attributes) {
      if (/^on/i.test(attribute) || ['srcdoc', 'formaction', 'action', 'ping', 'background', 'poster', 'srcset'].includes(attribute.toLowerCase())) found.push(`${name} ${attribute}=${value.slice(0, 80)}`);
      if (['href', 'src', 'data', 'xlink:href'].includes(attribute.toLowerCase()) && within && !/^(#|https?:\/\/|mailto:)/i.test(value)) found.push(`${name} ${attribute}=${value.slice(0, 80)}`);
      if (attribute.toLowerCase() === 'href' && within && /^https?:/i.test(value) && !(element.rel.includes('noopener') && element.rel.includes('noreferrer') && element.target === '_blank')) found.push(`an external link without noopener: ${value.slice(0, 80)}`);
      if (attribute === 'style' && within && /url|expression|image-set|fixed/i.test(value)) found.push(`${name} style=${value.slice(0, 80)}`);
      if (['id', 'name'].includes(attribute) && within && value !== 'app' && value !== 'main' && (value in document || value in Object.prototype || (value in window && window[value] !== element))) found.push(`${name} ${attribute}=${value} shadows a property of the page`);
    }
  }
  for (const name of ['innerHTML', 'srcdoc', 'href', 'polluted', 'onerror']) if (Object.hasOwn(Object.prototype, name)) found.push(`Object.prototype.${name}`);
  if (document.baseURI.split('#')[0] !== location.href.split('#')[0]) found.push(`base ${document.baseURI}`);
  return found;
}

test('untrusted content is shown, and none of it runs', async (t) => {
  const visited = await openPage(server, { init: () => { window.ran = (n) => window.reportProblem('a script ran', String(n)); for (const name of ['alert', 'confirm', 'prompt', 'open', 'print']) window[name] = () => window.reportProblem('a script ran', name); } });
  const { page, problems, url, asked } = visited;
  page.on('framenavigated', (frame) => { if (!frame.url().startsWith(`${url}/`) && frame.url() !== 'about:blank') problems.add('navigated away', frame.url()); });
  await page.goto(url);
  await settle(page);
  t.diagnostic(`${PAYLOADS.length} payloads (${Object.entries(FAMILIES).map(([name, list]) => `${list.length} ${name.toLowerCase()}`).join(', ')}); planted: ${Object.entries(planted).map(([api, many]) => `${api} ${many}`).join(', ')}; refused: ${refused.length}`);
  for (const one of refused.slice(0, 5)) t.diagnostic(`refused ${one}`);
  for (const [api, least] of Object.entries({ messages: PAYLOADS.length * 0.9, events: PAYLOADS.length * 0.8, commitments: 30, log: 30, states: 10, transcripts: 1, pages: 200, memories: 5, chats: 10 })) assert.ok((planted[api] ?? 0) >= least, `${api}: only ${planted[api]} stored; ${refused.join('\n')}`);

  const views = await railViews(page);
  const places = views.map((view) => view.address);
  places.push('#/core/2026', '#/core/2026-05', '#/core/2026-W20', ...[10, 11, 12, 13, 14, 15, 16].map((day) => `#/core/2026-05-${day}`));
  places.push(...['script', 'press', 'onerror', 'beacon'].map((word) => `#/search?q=${word}`), '#/search?q=javascript&explain=true&context=true');
  places.push('#/ledger?status=any', '#/ledger?status=any&acts=true', '#/ledger/waiting', '#/ledger/conflicts', ...events.filter((_, at) => at % 30 === 0).map((id) => `#/ledger/${id}`));
  places.push(...[0, 1, 2, 3, 4, 5].map((at) => `#/knowledge/entities/hostile-${at}`), '#/knowledge/entities/hostile-0/edit', '#/knowledge/entities/hostile-1/history');
  const chats = (await vault.json('conversation', 'list')).conversations.map((one) => one.conversation);
  places.push(...chats.filter((_, at) => at % 8 === 0).map((name) => `#/conversations/${encodeURIComponent(name)}`));
  for (const name of ['hostile', '<img src=x onerror=ran(-2)>', '__proto__']) {
    if (chats.includes(name)) places.push(...['', '/turns', '/turns?open=2', '/artifacts'].map((part) => `#/conversations/${encodeURIComponent(name)}${part}`));
  }
  assert.ok(chats.includes('hostile'), chats.join(' '));
  places.push(...['session-start', 'upload', 'pyramid', 'delta?prompt=hostile', 'chat?conversation=hostile', 'recall?as=raw', 'recall?as=compare'].map((kind) => `#/packs/${kind}`));
  places.push('#/runs/log', '#/runs/review', '#/runs/due', '#/runs/log?night=2026-05-17');

  const seen = new Set();
  for (const place of places) {
    await goTo(page, place);
    const [text, odd] = [await page.evaluate(() => document.body.textContent), await page.evaluate(strange)];
    for (const [, n] of text.matchAll(MARK)) seen.add(Number(n));
    assert.deepEqual(odd, [], place);
    problems.none(place);
  }
  t.diagnostic(`${places.length} addresses opened; ${seen.size} of ${PAYLOADS.length} payloads were shown`);
  assert.ok(seen.size >= PAYLOADS.length * 0.95, `only ${seen.size} were shown; not ${PAYLOADS.filter(({ n }) => !seen.has(n)).map(({ n }) => n).join(' ')}`);
  assert.ok(asked.every((one) => new URL(one).origin === new URL(url).origin));
});

test('clicking everything runs nothing and does not navigate away', async () => {
  const { page, problems, url, context } = await openPage(server, { init: () => { window.ran = (n) => window.reportProblem('a script ran', String(n)); } });
  // An event id in untrusted text may not exist or may be invalid.
  problems.expected = ['window: ', 'refused: 404', 'the server responded with a status of 404', `refused: 400 ${url}/api/events/`, `status of 400 (Bad Request) ${url}/api/events/`];
  context.on('page', (another) => another.close().catch(() => {}));
  await page.goto(url);
  await settle(page);
  for (const place of ['#/core/2026-05-12', '#/search?q=press', '#/knowledge/entities/hostile-1', '#/conversations/hostile/turns?open=2', '#/packs/upload']) {
    await goTo(page, place);
    // External links would open a new window: suppress them; click all others.
    await page.evaluate(() => {
      for (const link of document.querySelectorAll('#main a[href]')) if (!link.getAttribute('href').startsWith('#')) link.addEventListener('click', (event) => event.preventDefault());
      for (const link of [...document.querySelectorAll('#main a[href], #main mark, #main summary')].slice(0, 60)) link.click();
    });
    await settle(page);
    assert.ok(page.url().startsWith(`${url}/`), page.url());
    problems.none(place);
  }
});

test('a hostile address does nothing either', async (t) => {
  const { page, problems, url } = await openPage(server, { init: () => { window.ran = (n) => window.reportProblem('a script ran', String(n)); } });
  // Unknown names are refused with an error, and an address is no login code.
  problems.expected = ['refused: 400', 'refused: 404', 'the server responded with a status of 400', 'the server responded with a status of 404'];
  await page.goto(url);
  await settle(page);
  const views = await railViews(page);
  let many = 0;
  for (const { n, text } of PAYLOADS) {
    // Every third payload, so that every view gets some of every family.
    if (n % 3 !== 0 || text.includes('#code=')) continue;
    const view = views[(n / 3) % views.length];
    many += 1;
    const within = n % 4 === 0 ? `/${encodeURIComponent(text)}` : n % 2 === 1 ? `?q=${encodeURIComponent(text)}&text=${encodeURIComponent(text)}&tag=${encodeURIComponent(text)}` : `/${encodeURI(text)}?__proto__[q]=1&constructor=${encodeURIComponent(text)}`;
    await page.evaluate((hash) => { location.hash = hash; }, `#/${view.id === 'first' ? '' : view.id}${within}`);
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    if (n % 10 === 0) assert.deepEqual(await page.evaluate(strange), [], text);
  }
  await settle(page);
  assert.deepEqual(await page.evaluate(strange), []);
  assert.ok(page.url().startsWith(`${url}/`));
  problems.none();
  t.diagnostic(`${many} addresses`);
  assert.ok(many > 100);
});

test('every kind of problem would be recorded', async () => {
  const { page, problems, url } = await openPage(server, { init: () => { window.ran = (n) => window.reportProblem('a script ran', String(n)); } });
  await page.goto(url);
  await settle(page);
  await page.evaluate(() => {
    window.ran(7);
    const image = document.createElement('img');
    image.src = 'https://n7.beacon.invalid/';
    document.getElementById('main').append(image);
    for (const forbidden of [() => image.setAttribute('onerror', 'ran(8)'), () => { document.body.innerHTML = '<p></p>'; }]) {
      try { forbidden(); } catch { /* refused by the policy */ }
    }
  });
  for (const part of ['a script ran: 7', 'policy: img-src https://n7.beacon.invalid', 'policy: require-trusted-types-for']) await waitUntil(`${part} in ${problems.list.join('\n')}`, () => problems.list.some((one) => one.startsWith(part)));
  assert.ok(!problems.list.some((one) => one.startsWith('a script ran: 8')));
  assert.ok((await page.evaluate(strange)).some((one) => one === '<IMG>'));
  // Requests that the policy allows are stopped by the interception.
  const control = await openPage(server, { login: false });
  await control.page.goto('https://n9.beacon.invalid/').catch(() => {});
  assert.ok(control.problems.list.some((one) => one.startsWith('foreign request: https://n9.beacon.invalid')));
});

test('no request left the browser', async () => {
  const { asked } = await browser();
  // Except the one that was sent to test the recording.
  assert.deepEqual(asked.filter((one) => !one.includes('n9.beacon.invalid')), []);
});
