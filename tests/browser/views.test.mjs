// Each view on the sample vault: it shows what is in that vault, asks nobody else, and nothing goes wrong.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { browser, chat, rail, sample, settled, to, until, visit } from './house.mjs';
import { SHOWS } from './shows.mjs';

let home, server;
before(async () => {
  home = await sample();
  server = await home.serve();
  await chat(home, server);
});

test('the rail has every view, and each shows what is in the vault', async (t) => {
  const { page, wrongs, url } = await visit(server);
  await page.goto(url);
  await settled(page);
  const views = await rail(page);
  await t.test('all of them', () => {
    assert.deepEqual(views.map((view) => view.id), Object.keys(SHOWS), 'shows.mjs says what each view of the rail shows');
    assert.equal(new Set(views.map((view) => view.key)).size, views.length);
  });
  for (const view of views) {
    await t.test(view.title, async () => {
      await page.locator('.rail nav').getByRole('link', { name: view.title, exact: true }).click();
      await settled(page);
      assert.equal(await page.locator('.rail [aria-current=page]').innerText(), view.title);
      assert.match(await page.title(), /icecore/);
      for (const words of SHOWS[view.id]) {
        await until(`${words} in ${view.title}`, async () => {
          const text = (await page.locator('#main').innerText()).replace(/\s+/g, ' ');
          return words instanceof RegExp ? words.test(text) : text.includes(words);
        }, 15_000);
      }
      assert.ok(await page.locator('#main :is(h1, h2)').count() > 0, 'a view has a heading');
      wrongs.none(view.title);
      // Loaded at its own address, it is the same.
      await page.reload();
      await settled(page);
      assert.equal(await page.locator('.rail [aria-current=page]').innerText(), view.title);
      wrongs.none(`${view.title}, loaded at its address`);
    });
  }
});

test('an address that is nowhere says where to go', async () => {
  const { page, wrongs, url } = await visit(server);
  await page.goto(`${url}/#/nowhere/at/all?x=1`);
  await settled(page);
  assert.match(await page.locator('#main').innerText(), /nothing at this address/i);
  await page.getByRole('link', { name: 'To the first page', exact: true }).click();
  await settled(page);
  wrongs.none();
});

test('the browser asked nobody else', async () => {
  const { asked } = await browser();
  assert.deepEqual(asked, []);
});
