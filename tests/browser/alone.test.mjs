// An empty vault says what to do first, in every view; a server that is gone is said to be gone, in every view, and what to do.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bare, rail, sample, settled, sleep, to, until, visit } from './house.mjs';

// What tells somebody what to do: a command, or something to press or to fill in.
const DO = /icecore (init|remember|serve|import|chat|rollup|consolidate|session|log|install|daemon|zoom|message)|type to search|run |press|write|remember|add|begin|talk|chat/i;

test('an empty vault says what to do first', async (t) => {
  const home = await bare();
  const server = await home.serve();
  const { page, wrongs, url } = await visit(server);
  await page.goto(url);
  await settled(page);
  for (const view of await rail(page)) {
    await t.test(view.title, async () => {
      await to(page, view.address);
      const text = (await page.locator('#main').innerText()).replace(/\s+/g, ' ');
      assert.match(text, DO, text);
      assert.doesNotMatch(text, /undefined|NaN|null|Infinity|\[object/, text);
      assert.equal(await page.locator('#main .errorbox').count(), 0, text);
      wrongs.none(view.title);
    });
  }
});

test('a server that is gone is said to be gone, and comes back by itself', async (t) => {
  const home = await sample();
  const server = await home.serve();
  const { page, wrongs, url } = await visit(server);
  await page.goto(url);
  await settled(page);
  const views = await rail(page);
  // Before it stops, so that nothing that breaks with it is missed.
  wrongs.expected = ['net::ERR_CONNECTION', 'net::ERR_INCOMPLETE_CHUNKED'];
  await server.stop();
  for (const view of views) {
    await t.test(view.title, async () => {
      await page.evaluate((hash) => { location.hash = hash; }, view.address);
      const told = page.locator('main .away');
      await told.waitFor({ timeout: 20_000 }).catch(() => {});
      const text = (await page.locator('#main').innerText()).replace(/\s+/g, ' ');
      assert.match(text, /The server does not answer/, text);
      assert.match(text, /icecore serve/, text);
      wrongs.none(view.title);
    });
  }
  await t.test('and comes back', async () => {
    const again = await home.serve(new URL(url).host);
    assert.equal(again.url, url);
    // Logins end with the server; the token lets in again.
    wrongs.expected.push('401');
    await until('the login', async () => {
      await page.evaluate(() => { location.hash = location.hash === '#/' ? '#/core' : '#/'; });
      await sleep(300);
      return (await page.getByLabel("The server's token").count()) > 0;
    });
    wrongs.none();
  });
});
