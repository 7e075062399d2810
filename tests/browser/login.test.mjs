// Coming in and going out: nothing but a cookie that no script can read lets a browser in, and the token is nowhere else.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { PATIENCE, TOKEN, rail, sample, settled, visit } from './house.mjs';

let server;
before(async () => { server = await (await sample()).serve(); });

/** Everything that a page keeps and has asked, as one text. */
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
  const visited = await visit(server, { login: false });
  const { page, wrongs, url } = visited;
  // A page that nobody is logged in to is refused what it asks for; that is how it knows.
  wrongs.expected = ['401'];
  await page.goto(url);
  const field = page.getByLabel("The server's token");
  await field.waitFor();
  assert.equal(await field.getAttribute('type'), 'password');
  assert.equal(await page.title(), 'Log in · icecore');

  await field.fill('a-wrong-token');
  await page.getByRole('button', { name: 'Log in' }).click();
  const told = await page.getByRole('alert').innerText();
  assert.match(told, /token/i, `it has to say what is wrong and what now: ${told}`);
  assert.equal(await cookie(visited), undefined);
  assert.equal(await page.locator('.rail').count(), 0);

  await field.fill(TOKEN);
  await page.keyboard.press('Enter');
  await settled(page);
  assert.ok((await rail(page)).length > 0);
  const given = await cookie(visited);
  assert.deepEqual([given.httpOnly, given.sameSite, given.domain], [true, 'Strict', '127.0.0.1']);
  const found = await traces(visited);
  assert.ok(!found.includes(TOKEN) && !found.includes('a-wrong-token') && !found.includes(given.value), found);

  // It holds over a reload, and a script that has the page still does not have the cookie.
  await page.reload();
  await settled(page);
  assert.equal(await page.evaluate(() => document.cookie), '');
  wrongs.none();
});

test('a page of another origin cannot use the cookie, and a cookie alone changes nothing', async () => {
  const { page, context, wrongs, url } = await visit(server);
  await page.goto(url);
  await settled(page);
  wrongs.expected = ['403', 'foreign request', 'net::ERR_FAILED', 'console'];
  const status = await page.evaluate(async () => (await fetch('/api/log', { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"text":"never"}' })).status);
  assert.equal(status, 403);
  const other = new URL(url);
  other.hostname = 'localhost';
  const another = await context.newPage();
  await another.goto(other.href).catch(() => {});
  assert.deepEqual((await context.cookies(other.href)).filter((one) => one.name.startsWith('icecore')), []);
  await another.close();
});

test('a link with a code lets in once, and the code is in no history', async () => {
  const visited = await visit(server, { login: false });
  const { page, wrongs, url } = visited;
  await page.goto(`${url}/#code=${server.code}`);
  await settled(page);
  assert.ok((await rail(page)).length > 0);
  const given = await cookie(visited);
  assert.deepEqual([given.httpOnly, given.sameSite], [true, 'Strict']);
  const found = await traces(visited);
  assert.ok(!found.replaceAll(`${url}/#code=${server.code}`, '').includes(server.code), 'the code is still somewhere');
  const history = await (await visited.context.newCDPSession(page)).send('Page.getNavigationHistory');
  assert.ok(!history.entries.some((entry) => entry.url.includes(server.code)), JSON.stringify(history.entries));
  wrongs.none();

  const second = await visit(server, { login: false });
  second.wrongs.expected = ['401', '403', '400'];
  await second.page.goto(`${url}/#code=${server.code}`);
  await second.page.getByLabel("The server's token").waitFor();
  assert.match(await second.page.getByRole('alert').innerText(), /code/i);
  assert.equal(await cookie(second), undefined);
  second.wrongs.none();
});

test('who logs out is out, here and at the server', async () => {
  const visited = await visit(server);
  const { page, wrongs, url } = visited;
  await page.goto(url);
  await settled(page);
  const given = await cookie(visited);
  wrongs.expected = ['401'];
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel("The server's token").waitFor();
  assert.equal(await cookie(visited), undefined);
  const again = await fetch(`${url}/api/status`, { headers: { cookie: `${given.name}=${given.value}` }, signal: AbortSignal.timeout(PATIENCE) });
  assert.equal(again.status, 401);
  await page.goto(`${url}/#/core`);
  await page.reload();
  await page.getByLabel("The server's token").waitFor();
  wrongs.none();
});
