// Each view on the sample vault: it shows the vault's content, without problems and without requests to other hosts.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { browser, chat, railViews, sampleVault, settle, goTo, waitUntil, openPage } from './harness.mjs';
import { SHOWS } from './shows.mjs';

let vault, server;
before(async () => {
  vault = await sampleVault();
  server = await vault.serve();
  await chat(vault, server);
});

test('the rail has every view, and each shows the content of the vault', async (t) => {
  const { page, problems, url } = await openPage(server);
  await page.goto(url);
  await settle(page);
  const views = await railViews(page);
  await t.test('all views', () => {
    assert.deepEqual(views.map((view) => view.id), Object.keys(SHOWS), 'shows.mjs says what each view of the rail shows');
    assert.equal(new Set(views.map((view) => view.key)).size, views.length);
  });
  for (const view of views) {
    await t.test(view.title, async () => {
      await page.locator('.rail nav').getByRole('link', { name: view.title, exact: true }).click();
      await settle(page);
      assert.equal(await page.locator('.rail [aria-current=page]').innerText(), view.title);
      assert.match(await page.title(), /icecore/);
      for (const words of SHOWS[view.id]) {
        await waitUntil(`${words} in ${view.title}`, async () => {
          const text = (await page.locator('#main').innerText()).replace(/\s+/g, ' ');
          return words instanceof RegExp ? words.test(text) : text.includes(words);
        }, 15_000);
      }
      assert.ok(await page.locator('#main :is(h1, h2)').count() > 0, 'a view has a heading');
      problems.none(view.title);
      // Loading its address shows the same.
      await page.reload();
      await settle(page);
      assert.equal(await page.locator('.rail [aria-current=page]').innerText(), view.title);
      problems.none(`${view.title}, loaded at its address`);
    });
  }
});

test('an unknown address links to Home', async () => {
  const { page, problems, url } = await openPage(server);
  await page.goto(`${url}/#/nowhere/at/all?x=1`);
  await settle(page);
  assert.match(await page.locator('#main').innerText(), /nothing at this address/i);
  await page.getByRole('link', { name: 'Go to Home', exact: true }).click();
  await settle(page);
  problems.none();
});

test('no request went to another host', async () => {
  const { asked } = await browser();
  assert.deepEqual(asked, []);
});
