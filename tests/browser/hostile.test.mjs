// What strangers write is shown and nothing more: hundreds of payloads come in through every door, then every view is looked at. No script
// runs, nothing is asked of anybody, nobody is led away, and the page's own policy is never even called upon.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { browser, rail, sample, settled, to, until, visit } from './house.mjs';
import { FAMILIES, MARK, PAYLOADS, mark } from './payloads.mjs';

const wordy = PAYLOADS.map(({ n, text }) => `${mark(n)} ${text}`);
/** So many payloads go into one chat, page or log at most. */
const pick = (every, from = 0) => wordy.filter((_, at) => at % every === from);
// A word that a view shows for each payload of this door.
const planted = {};
let home, server, events;

before(async () => {
  assert.ok(PAYLOADS.length >= 300 && new Set(PAYLOADS.map((one) => one.text)).size === PAYLOADS.length);
  home = await sample();
  // A model that says what it was told to say.
  server = await home.serve();
  const count = (door, many) => { planted[door] = (planted[door] ?? 0) + many; };

  // Words that were said: all of them.
  const messages = PAYLOADS.map(({ n }, at) => ({ conversation: `${wordy[at % 40].slice(0, 60)}`, id: `m${n}`, role: at % 2 === 0 ? 'user' : 'assistant', name: wordy[at].slice(0, 40), session: wordy[(at % 20)].slice(0, 60), text: wordy[at], ts: `2026-05-${String(10 + (at % 7)).padStart(2, '0')}T${String(8 + (at % 10)).padStart(2, '0')}:${String(at % 60).padStart(2, '0')}:00+02:00` }));
  for (let at = 0; at < messages.length; at += 30) count('messages', await told('/api/messages', messages.slice(at, at + 30), 30));
  // Events: all of them, with names, tags and whom they wait for.
  const answers = await Promise.all(wordy.map((text, at) => server.ask('POST', '/api/events', {
    text, priority: ['P0', 'P1', 'P2', 'P3'][at % 4], type: ['fact', 'decision', 'preference', 'constraint'][at % 4], entity: wordy[(at * 7) % wordy.length].slice(0, 60), tags: [PAYLOADS[(at * 3) % PAYLOADS.length].text.slice(0, 30)],
  }).catch((error) => ({ error }))));
  events = answers.flatMap((one) => one.event?.id ?? []);
  count('events', events.length);
  for (const text of pick(8)) count('commitments', await told('/api/events', { text, type: 'commitment', waiting_on: text.slice(0, 80) }));
  for (const text of pick(8, 1)) count('log', await told('/api/log', { text }));
  for (const text of pick(16, 2)) count('states', await told('/api/state', { text, title: text.slice(0, 60) }));
  const transcript = pick(6, 3).map((text) => `User: ${text.replaceAll('\n', ' ')}\n\nAssistant: ${text.replaceAll('\n', ' ')}`).join('\n\n');
  count('transcripts', await told('/api/sessions', { text: transcript, session: '<img src=x onerror=ran(-1)>' }));
  // Pages that a person wrote.
  for (let at = 0; at < 6; at += 1) {
    const lines = pick(6, at).map((text) => `- ${text.replaceAll('\n', '\n  ')}`);
    count('pages', (await told(`/api/pages/entities/hostile-${at}`, { text: `# ${wordy[at]}\n\n${lines.join('\n')}\n\n${pick(12, at).join('\n\n')}\n` })) * lines.length);
  }
  for (const [at, text] of pick(30, 5).entries()) count('memories', await told('/api/memory-tool', { command: 'create', path: `/memories/hostile-${at}.md`, file_text: text }));
  // Chats with a model that answers with payloads, and what it makes.
  home.model.says = (request) => {
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
  // And what is made of all that: summaries, pages, packs, reports.
  await server.ask('POST', '/api/jobs/run', { job: 'consolidate' }).catch(() => home.cli('consolidate', '-q'));
  await home.cli('rollup', '-q').catch(() => {});
});

async function told(path, body, many = 1) {
  return server.ask('POST', path, body).then(() => many, (error) => {
    refused.push(`${path}: ${String(error.message).slice(0, 160)}`);
    return 0;
  });
}
const refused = [];

/** What stands in a page that only a payload would have put there. */
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
      if (attribute.toLowerCase() === 'href' && within && /^https?:/i.test(value) && !(element.rel.includes('noopener') && element.rel.includes('noreferrer') && element.target === '_blank')) found.push(`a way out without noopener: ${value.slice(0, 80)}`);
      if (attribute === 'style' && within && /url|expression|image-set|fixed/i.test(value)) found.push(`${name} style=${value.slice(0, 80)}`);
      if (['id', 'name'].includes(attribute) && within && value !== 'app' && value !== 'main' && (value in document || value in Object.prototype || (value in window && window[value] !== element))) found.push(`${name} ${attribute}=${value} hides something of the page's`);
    }
  }
  for (const name of ['innerHTML', 'srcdoc', 'href', 'polluted', 'onerror']) if (Object.hasOwn(Object.prototype, name)) found.push(`Object.prototype.${name}`);
  if (document.baseURI.split('#')[0] !== location.href.split('#')[0]) found.push(`base ${document.baseURI}`);
  return found;
}

test('everything that strangers wrote is shown, and nothing of it runs', async (t) => {
  const visited = await visit(server, { init: () => { window.ran = (n) => window.wrong('a script ran', String(n)); for (const name of ['alert', 'confirm', 'prompt', 'open', 'print']) window[name] = () => window.wrong('a script ran', name); } });
  const { page, wrongs, url, asked } = visited;
  page.on('framenavigated', (frame) => { if (!frame.url().startsWith(`${url}/`) && frame.url() !== 'about:blank') wrongs.add('led away', frame.url()); });
  await page.goto(url);
  await settled(page);
  t.diagnostic(`${PAYLOADS.length} payloads (${Object.entries(FAMILIES).map(([name, list]) => `${list.length} ${name.toLowerCase()}`).join(', ')}); planted: ${Object.entries(planted).map(([door, many]) => `${door} ${many}`).join(', ')}; refused at the door: ${refused.length}`);
  for (const one of refused.slice(0, 5)) t.diagnostic(`refused ${one}`);
  for (const [door, least] of Object.entries({ messages: PAYLOADS.length * 0.9, events: PAYLOADS.length * 0.8, commitments: 30, log: 30, states: 10, transcripts: 1, pages: 200, memories: 5, chats: 10 })) assert.ok((planted[door] ?? 0) >= least, `${door}: only ${planted[door]} came in; ${refused.join('\n')}`);

  const views = await rail(page);
  const places = views.map((view) => view.address);
  places.push('#/core/2026', '#/core/2026-05', '#/core/2026-W20', ...[10, 11, 12, 13, 14, 15, 16].map((day) => `#/core/2026-05-${day}`));
  places.push(...['script', 'press', 'onerror', 'beacon'].map((word) => `#/search?q=${word}`), '#/search?q=javascript&explain=true&context=true');
  places.push('#/ledger?status=any', '#/ledger?status=any&acts=true', '#/ledger/waiting', '#/ledger/conflicts', ...events.filter((_, at) => at % 30 === 0).map((id) => `#/ledger/${id}`));
  places.push(...[0, 1, 2, 3, 4, 5].map((at) => `#/knowledge/entities/hostile-${at}`), '#/knowledge/entities/hostile-0/edit', '#/knowledge/entities/hostile-1/history');
  const chats = (await home.json('conversation', 'list')).conversations.map((one) => one.conversation);
  places.push(...chats.filter((_, at) => at % 8 === 0).map((name) => `#/conversations/${encodeURIComponent(name)}`));
  for (const name of ['hostile', '<img src=x onerror=ran(-2)>', '__proto__']) {
    if (chats.includes(name)) places.push(...['', '/turns', '/turns?open=2', '/artifacts'].map((part) => `#/conversations/${encodeURIComponent(name)}${part}`));
  }
  assert.ok(chats.includes('hostile'), chats.join(' '));
  places.push(...['session-start', 'upload', 'pyramid', 'delta?prompt=hostile', 'chat?conversation=hostile', 'recall?as=raw', 'recall?as=compare'].map((kind) => `#/packs/${kind}`));
  places.push('#/runs/log', '#/runs/review', '#/runs/due', '#/runs/log?night=2026-05-17');

  const seen = new Set();
  for (const place of places) {
    await to(page, place);
    const [text, odd] = [await page.evaluate(() => document.body.textContent), await page.evaluate(strange)];
    for (const [, n] of text.matchAll(MARK)) seen.add(Number(n));
    assert.deepEqual(odd, [], place);
    wrongs.none(place);
  }
  t.diagnostic(`${places.length} places visited; ${seen.size} of ${PAYLOADS.length} payloads were on show`);
  assert.ok(seen.size >= PAYLOADS.length * 0.95, `only ${seen.size} were shown; not ${PAYLOADS.filter(({ n }) => !seen.has(n)).map(({ n }) => n).join(' ')}`);
  assert.ok(asked.every((one) => new URL(one).origin === new URL(url).origin));
});

test('whoever presses everything in sight is not led away and runs nothing', async () => {
  const { page, wrongs, url, context } = await visit(server, { init: () => { window.ran = (n) => window.wrong('a script ran', String(n)); } });
  // An event that a stranger names need not be there, and its name need not be an event's.
  wrongs.expected = ['window: ', 'refused: 404', 'the server responded with a status of 404', `refused: 400 ${url}/api/events/`, `status of 400 (Bad Request) ${url}/api/events/`];
  context.on('page', (another) => another.close().catch(() => {}));
  await page.goto(url);
  await settled(page);
  for (const place of ['#/core/2026-05-12', '#/search?q=press', '#/knowledge/entities/hostile-1', '#/conversations/hostile/turns?open=2', '#/packs/upload']) {
    await to(page, place);
    // Links that lead out of the dashboard open a window of their own, which nothing here may follow; all others are pressed.
    await page.evaluate(() => {
      for (const link of document.querySelectorAll('#main a[href]')) if (!link.getAttribute('href').startsWith('#')) link.addEventListener('click', (event) => event.preventDefault());
      for (const link of [...document.querySelectorAll('#main a[href], #main mark, #main summary')].slice(0, 60)) link.click();
    });
    await settled(page);
    assert.ok(page.url().startsWith(`${url}/`), page.url());
    wrongs.none(place);
  }
});

test('an address that a stranger made does nothing either', async (t) => {
  const { page, wrongs, url } = await visit(server, { init: () => { window.ran = (n) => window.wrong('a script ran', String(n)); } });
  // What is asked for by a name that is nowhere is refused, and said to be; and an address is not a code that lets anybody in.
  wrongs.expected = ['refused: 400', 'refused: 404', 'the server responded with a status of 400', 'the server responded with a status of 404'];
  await page.goto(url);
  await settled(page);
  const views = await rail(page);
  let many = 0;
  for (const { n, text } of PAYLOADS) {
    // Each third, and in such a way that every view gets some of every family.
    if (n % 3 !== 0 || text.includes('#code=')) continue;
    const view = views[(n / 3) % views.length];
    many += 1;
    const within = n % 4 === 0 ? `/${encodeURIComponent(text)}` : n % 2 === 1 ? `?q=${encodeURIComponent(text)}&text=${encodeURIComponent(text)}&tag=${encodeURIComponent(text)}` : `/${encodeURI(text)}?__proto__[q]=1&constructor=${encodeURIComponent(text)}`;
    await page.evaluate((hash) => { location.hash = hash; }, `#/${view.id === 'first' ? '' : view.id}${within}`);
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    if (n % 10 === 0) assert.deepEqual(await page.evaluate(strange), [], text);
  }
  await settled(page);
  assert.deepEqual(await page.evaluate(strange), []);
  assert.ok(page.url().startsWith(`${url}/`));
  wrongs.none();
  t.diagnostic(`${many} addresses`);
  assert.ok(many > 100);
});

test('had anything happened, it would have been noticed', async () => {
  const { page, wrongs, url } = await visit(server, { init: () => { window.ran = (n) => window.wrong('a script ran', String(n)); } });
  await page.goto(url);
  await settled(page);
  await page.evaluate(() => {
    window.ran(7);
    const image = document.createElement('img');
    image.src = 'https://n7.beacon.invalid/';
    document.getElementById('main').append(image);
    for (const forbidden of [() => image.setAttribute('onerror', 'ran(8)'), () => { document.body.innerHTML = '<p></p>'; }]) {
      try { forbidden(); } catch { /* the policy says no */ }
    }
  });
  for (const part of ['a script ran: 7', 'policy: img-src https://n7.beacon.invalid', 'policy: require-trusted-types-for']) await until(`${part} in ${wrongs.list.join('\n')}`, () => wrongs.list.some((one) => one.startsWith(part)));
  assert.ok(!wrongs.list.some((one) => one.startsWith('a script ran: 8')));
  assert.ok((await page.evaluate(strange)).some((one) => one === '<IMG>'));
  // What gets past the page's policy is stopped at the border.
  const control = await visit(server, { login: false });
  await control.page.goto('https://n9.beacon.invalid/').catch(() => {});
  assert.ok(control.wrongs.list.some((one) => one.startsWith('foreign request: https://n9.beacon.invalid')));
});

test('nobody was told that somebody looked', async () => {
  const { asked } = await browser();
  // But for the one that was sent to see whether it is noticed.
  assert.deepEqual(asked.filter((one) => !one.includes('n9.beacon.invalid')), []);
});
