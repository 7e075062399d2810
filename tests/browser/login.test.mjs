// Login and logout: only a cookie that no script can read authenticates a browser, and the token is stored nowhere.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { TIMEOUT_MS, TOKEN, railViews, sampleVault, settle, openPage } from './harness.mjs';

let server;
before(async () => { server = await (await sampleVault()).serve(); });

/** Everything that a page has stored and requested, as one text. */
async function traces({ page, context, asked }) {
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, location.href, document.documentElement.outerHTML, history.state, document.cookie, window.name]));
  const fields = await page.$$eval('input', (inputs) => inputs.map((input) => input.value).join(' '));
  const history = await (await context.newCDPSession(page)).send('Page.getNavigationHistory');
  return [kept, fields, asked.join(' '), JSON.stringify(history.entries.map((entry) => entry.url))].join(' ');
}

async function cookie({ context }) {
  return (await context.cookies()).find((one) => one.name.startsWith('icecore'));
}

test('the token is typed once and becomes a cookie that no script can read', async () => {
  const visited = await openPage(server, { login: false });
  const { page, problems, url } = visited;
  // Without a login, the first request is refused; this shows the login page.
  problems.expected = ['401'];
  await page.goto(url);
  const field = page.getByLabel('Server token');
  await field.waitFor();
  assert.equal(await field.getAttribute('type'), 'password');
  assert.equal(await page.title(), 'Log in · icecore');

  await field.fill('a-wrong-token');
  await page.getByRole('button', { name: 'Log in' }).click();
  const told = await page.getByRole('alert').innerText();
  assert.match(told, /token/i, `it has to say what is wrong and what to do: ${told}`);
  assert.equal(await cookie(visited), undefined);
  assert.equal(await page.locator('.rail').count(), 0);

  await field.fill(TOKEN);
  await page.keyboard.press('Enter');
  await settle(page);
  assert.ok((await railViews(page)).length > 0);
  const given = await cookie(visited);
  assert.deepEqual([given.httpOnly, given.sameSite, given.domain], [true, 'Strict', '127.0.0.1']);
  const found = await traces(visited);
  assert.ok(!found.includes(TOKEN) && !found.includes('a-wrong-token') && !found.includes(given.value), found);

  // It survives a reload, and scripts of the page cannot read the cookie.
  await page.reload();
  await settle(page);
  assert.equal(await page.evaluate(() => document.cookie), '');
  problems.none();
});

test('a page of another origin cannot use the cookie, and a cookie alone changes nothing', async () => {
  const { page, context, problems, url } = await openPage(server);
  await page.goto(url);
  await settle(page);
  problems.expected = ['403', 'foreign request', 'net::ERR_FAILED', 'console'];
  const status = await page.evaluate(async () => (await fetch('/api/log', { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"text":"never"}' })).status);
  assert.equal(status, 403);
  const other = new URL(url);
  other.hostname = 'localhost';
  const another = await context.newPage();
  await another.goto(other.href).catch(() => {});
  assert.deepEqual((await context.cookies(other.href)).filter((one) => one.name.startsWith('icecore')), []);
  await another.close();
});

test('a login link works once, and its code is in no history', async () => {
  const visited = await openPage(server, { login: false });
  const { page, problems, url } = visited;
  await page.goto(`${url}/#code=${server.code}`);
  await settle(page);
  assert.ok((await railViews(page)).length > 0);
  const given = await cookie(visited);
  assert.deepEqual([given.httpOnly, given.sameSite], [true, 'Strict']);
  const found = await traces(visited);
  assert.ok(!found.replaceAll(`${url}/#code=${server.code}`, '').includes(server.code), 'the code is still somewhere');
  const history = await (await visited.context.newCDPSession(page)).send('Page.getNavigationHistory');
  assert.ok(!history.entries.some((entry) => entry.url.includes(server.code)), JSON.stringify(history.entries));
  problems.none();

  const second = await openPage(server, { login: false });
  second.problems.expected = ['401', '403', '400'];
  await second.page.goto(`${url}/#code=${server.code}`);
  await second.page.getByLabel('Server token').waitFor();
  assert.match(await second.page.getByRole('alert').innerText(), /code/i);
  assert.equal(await cookie(second), undefined);
  second.problems.none();
});

test('a logout ends the session in the browser and at the server', async () => {
  const visited = await openPage(server);
  const { page, problems, url } = visited;
  await page.goto(url);
  await settle(page);
  const given = await cookie(visited);
  problems.expected = ['401'];
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Server token').waitFor();
  assert.equal(await cookie(visited), undefined);
  const again = await fetch(`${url}/api/status`, { headers: { cookie: `${given.name}=${given.value}` }, signal: AbortSignal.timeout(TIMEOUT_MS) });
  assert.equal(again.status, 401);
  await page.goto(`${url}/#/core`);
  await page.reload();
  await page.getByLabel('Server token').waitFor();
  problems.none();
});
