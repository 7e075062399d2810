// In every view, an empty vault says what to do first, and an unreachable server is reported with what to do.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { emptyVault, railViews, sampleVault, settle, sleep, goTo, waitUntil, openPage } from './harness.mjs';

// An instruction: a command, or something to click or to fill in.
const DO = /icecore (init|remember|serve|import|chat|rollup|consolidate|session|log|install|daemon|zoom|message)|type to search|run |click|write|remember|add|begin|talk|chat/i;

test('an empty vault says what to do first', async (t) => {
  const vault = await emptyVault();
  const server = await vault.serve();
  const { page, problems, url } = await openPage(server);
  await page.goto(url);
  await settle(page);
  for (const view of await railViews(page)) {
    await t.test(view.title, async () => {
      await goTo(page, view.address);
      const text = (await page.locator('#main').innerText()).replace(/\s+/g, ' ');
      assert.match(text, DO, text);
      assert.doesNotMatch(text, /undefined|NaN|null|Infinity|\[object/, text);
      assert.equal(await page.locator('#main .errorbox').count(), 0, text);
      problems.none(view.title);
    });
  }
});

test('an unreachable server is reported, and the pages recover by themselves', async (t) => {
  const vault = await sampleVault();
  const server = await vault.serve();
  const { page, problems, url } = await openPage(server);
  await page.goto(url);
  await settle(page);
  const views = await railViews(page);
  // Before the server stops, so that no other problem is missed.
  problems.expected = ['net::ERR_CONNECTION', 'net::ERR_INCOMPLETE_CHUNKED'];
  await server.stop();
  for (const view of views) {
    await t.test(view.title, async () => {
      await page.evaluate((hash) => { location.hash = hash; }, view.address);
      const told = page.locator('main .away');
      await told.waitFor({ timeout: 20_000 }).catch(() => {});
      const text = (await page.locator('#main').innerText()).replace(/\s+/g, ' ');
      assert.match(text, /The server does not answer/, text);
      assert.match(text, /icecore serve/, text);
      problems.none(view.title);
    });
  }
  await t.test('and recovers', async () => {
    // Sessions end with the server; a new login is required.
    problems.expected.push('401');
    const again = await vault.serve(new URL(url).host);
    assert.equal(again.url, url);
    await waitUntil('the login page', async () => {
      await page.evaluate(() => { location.hash = location.hash === '#/' ? '#/core' : '#/'; });
      await sleep(300);
      return (await page.getByLabel('Server token').count()) > 0;
    });
    problems.none();
  });
});
