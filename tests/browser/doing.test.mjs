// What a person does here is done: through the pages alone, and afterwards the ledger says exactly that and nothing else. What others do
// meanwhile comes by itself.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { before, test } from 'node:test';
import { chat, sample, settled, to, until, visit } from './house.mjs';

let home, server, known;
before(async () => {
  home = await sample();
  server = await home.serve();
  await chat(home, server);
  known = new Set((await home.ledger()).keys());
});

/** What came into the ledger since this was last asked, in the order it came. */
async function written() {
  const fresh = [...(await home.ledger()).values()].filter((event) => !known.has(event.id));
  fresh.forEach((event) => known.add(event.id));
  return fresh.sort((one, other) => one.line - other.line);
}

async function standing(id) {
  const { entry } = await home.json('show', id);
  return entry;
}

async function open(address) {
  const visited = await visit(server);
  await visited.page.goto(`${visited.url}/${address}`);
  await settled(visited.page);
  return visited;
}

/** Presses a button of a dialog and waits until the dialog is gone. */
async function answer(page, button) {
  const dialog = page.locator('dialog[open]');
  await dialog.getByRole('button', { name: button, exact: true }).click();
  await dialog.waitFor({ state: 'detached' }).catch(() => {});
  await page.waitForFunction(() => document.querySelector('dialog[open]') === null);
  await settled(page);
}

test('something is remembered, confirmed, superseded, closed, retracted and brought back', async (t) => {
  const { page, wrongs } = await open('#/ledger');
  let first, second;

  await t.test('remember', async () => {
    await page.keyboard.press('n');
    const dialog = page.getByRole('dialog', { name: 'Remember something' });
    await dialog.getByLabel('What is to be remembered').fill('Send the apple crates to Weimar');
    await dialog.getByLabel('Type').selectOption('commitment');
    await dialog.getByLabel('How long it counts').selectOption('P1');
    await dialog.getByLabel('About').fill('museum');
    await dialog.getByLabel('Tags').fill('apples, crates');
    await dialog.getByLabel('Due').fill('2026-05-22');
    await dialog.getByLabel('Waiting on').fill('the carrier');
    await answer(page, 'Remember it');
    const [event, ...more] = await written();
    assert.deepEqual([event.content, event.type, event.priority, event.entity, event.tags, event.due, event.waiting_on, event.origin, event.standing], ['Send the apple crates to Weimar', 'commitment', 'P1', 'museum', ['apples', 'crates'], '2026-05-22', 'the carrier', 'user', 'active']);
    assert.deepEqual(more, []);
    first = event.id;
    assert.ok((await page.locator('#main').innerText()).includes('Send the apple crates to Weimar'));
  });

  await t.test('confirm', async () => {
    await to(page, `#/ledger/${first}`);
    await page.locator('aside.event').getByRole('button', { name: 'Confirm', exact: true }).click();
    await answer(page, 'It still holds');
    const all = await written();
    assert.deepEqual(all.map((event) => [event.act, event.related]), [['confirm', [first]]]);
    assert.equal((await standing(first)).standing, 'active');
  });

  await t.test('supersede', async () => {
    await to(page, `#/ledger/${first}`);
    await page.locator('aside.event').getByRole('button', { name: 'Supersede', exact: true }).click();
    await page.locator('dialog[open]').getByLabel('What is to be remembered').fill('Send the apple crates to Jena');
    await answer(page, 'Supersede it');
    const [event, ...more] = await written();
    assert.deepEqual([event.content, event.supersedes, event.entity, more], ['Send the apple crates to Jena', first, 'museum', []]);
    second = event.id;
    assert.deepEqual([(await standing(first)).standing, (await standing(first)).ended_by], ['superseded', second]);
  });

  await t.test('close', async () => {
    await to(page, `#/ledger/${second}`);
    await page.locator('aside.event').getByRole('button', { name: 'Close', exact: true }).click();
    await page.locator('dialog[open]').getByLabel(/How it ended/).fill('sent on Friday');
    await answer(page, 'Close it');
    const all = await written();
    assert.deepEqual(all.map((event) => [event.act, event.related, event.content]), [['close', [second], 'sent on Friday']]);
    assert.equal((await standing(second)).standing, 'closed');
  });

  await t.test('bring back, which takes the closing back', async () => {
    await to(page, `#/ledger/${second}`);
    await page.locator('aside.event').getByRole('button', { name: 'Bring it back', exact: true }).click();
    await answer(page, 'Bring it back');
    assert.deepEqual((await written()).map((event) => event.act), ['retract']);
    assert.equal((await standing(second)).standing, 'active');
  });

  await t.test('retract', async () => {
    await to(page, `#/ledger/${second}`);
    await page.locator('aside.event').getByRole('button', { name: 'Retract', exact: true }).click();
    await answer(page, 'Retract it');
    assert.deepEqual((await written()).map((event) => [event.act, event.related]), [['retract', [second]]]);
    assert.deepEqual([(await standing(second)).standing, (await standing(first)).standing], ['retracted', 'active']);
  });

  await t.test('who leaves it has done nothing', async () => {
    await to(page, `#/ledger/${first}`);
    await page.locator('aside.event').getByRole('button', { name: 'Retract', exact: true }).click();
    await answer(page, 'Leave it');
    await page.keyboard.press('n');
    await page.locator('dialog[open]').getByLabel('What is to be remembered').fill('never');
    await page.keyboard.press('Escape');
    await page.waitForFunction(() => document.querySelector('dialog[open]') === null);
    assert.deepEqual(await written(), []);
  });
  wrongs.none();
});

test('a commitment is closed and a contradiction settled from home', async () => {
  const { page, wrongs } = await open('#/');
  const [commitment] = (await home.json('events', '--type', 'commitment')).events.filter((event) => event.content === 'Switch the old shop off');
  await page.getByRole('button', { name: /Switch the old shop off/ }).click();
  await page.locator('dialog[open]').getByLabel(/How it ended/).fill('off since noon');
  await answer(page, 'Close it');
  assert.deepEqual((await written()).map((event) => [event.act, event.related, event.content]), [['close', [commitment.id], 'off since noon']]);
  await until('it to be gone from home', async () => (await page.getByRole('button', { name: /Switch the old shop off/ }).count()) === 0);

  const before = (await home.json('conflicts')).conflicts.length;
  await page.getByRole('button', { name: /The stall at the market costs 55 EUR a day/ }).click();
  await until('the contradiction to be settled', async () => (await home.json('conflicts')).conflicts.length === before - 1);
  const [retracted, ...more] = await written();
  assert.deepEqual([retracted.act, more], ['retract', []]);
  assert.equal((await standing(retracted.related[0])).content, 'The stall at the market costs 45 EUR a day');
  wrongs.none();
});

test('a page is changed, and says afterwards what the person wrote', async () => {
  const { page, wrongs } = await open('#/knowledge/entities/client-x');
  await page.getByRole('link', { name: 'Edit', exact: true }).click();
  await settled(page);
  const field = page.getByLabel('The page, in Markdown');
  const text = await field.inputValue();
  const lines = text.split('\n');
  const at = lines.findIndex((line) => line.startsWith('- ') && !line.includes('none'));
  assert.ok(at > 0, text);
  lines.splice(at, 0, '- Client X pays by the end of each month');
  await field.fill(lines.join('\n'));
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.locator('.savedbar').waitFor();
  await settled(page);
  const fresh = await written();
  assert.deepEqual(fresh.map((event) => [event.content, event.origin]), [['Client X pays by the end of each month', 'file']]);
  assert.match(readFileSync(`${home.vault}/knowledge/entities/client-x.md`, 'utf8'), /Client X pays by the end of each month/);
  assert.match(await page.locator('#main').innerText(), /Client X pays by the end of each month/);
  wrongs.none();
});

test('a search goes on while one types, and zooms in on the words', async () => {
  const { page, wrongs } = await open('#/');
  await page.keyboard.press('/');
  const field = page.locator('#search-words');
  await field.waitFor();
  await page.waitForFunction(() => document.activeElement?.id === 'search-words');
  await page.keyboard.type('heron at the can', { delay: 15 });
  const hit = page.locator('.hits > li', { hasText: 'heron at the canal that did not care' }).first();
  await hit.waitFor();
  assert.ok((await hit.locator('mark').allInnerTexts()).some((text) => /heron/i.test(text)), 'the words are marked');
  assert.match(page.url(), /q=heron/);
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  const zoomed = page.locator('.zoomed');
  await zoomed.waitFor();
  assert.match(await zoomed.innerText(), /8 May 2026/);
  await until('the words around it', async () => (await zoomed.innerText()).includes('4.7 kilometres, rain from the side'));
  assert.ok(await zoomed.locator('.wanted').count() === 1);
  // Only what is asked for: a kind that has none of it has none of it.
  await page.getByRole('button', { name: 'Artifacts', exact: true }).click();
  await until('nothing', async () => (await page.locator('.hits > li', { hasText: 'heron at the canal' }).count()) === 0);
  assert.deepEqual(await written(), []);
  wrongs.none();
});

test('the core is drilled from a year to the words, by key and by hand', async () => {
  const { page, wrongs } = await open('#/core');
  await page.locator('.picture canvas').focus();
  const at = () => page.evaluate(() => location.hash);
  const trail = [];
  for (let step = 0; step < 5; step += 1) {
    await page.keyboard.press('ArrowRight');
    await settled(page);
    trail.push(await at());
  }
  assert.match(trail.join(' '), /^(#\/core\/2026 )?#\/core\/2026-05 #\/core\/2026-W\d\d #\/core\/2026-05-\d\d #\/core\/2026-05-/);
  await page.keyboard.press('ArrowLeft');
  await settled(page);
  assert.match(await at(), /^#\/core\/2026-05-\d\d$/);
  await page.keyboard.press('0');
  await settled(page);
  assert.equal(await at(), '#/core');
  await to(page, '#/core/2026-05-08');
  await until('the words of that day', async () => (await page.locator('.panel').innerText()).includes('a heron at the canal'));
  // From a sentence to its sources.
  await to(page, '#/core/2026-W17');
  await page.locator('.sentences .why, .sentences button.sentence').first().click();
  await settled(page);
  assert.ok((await page.locator('.because').innerText()).length > 20);
  wrongs.none();
});

test('a pack of another day is another pack', async () => {
  const { page, wrongs } = await open('#/packs/recall');
  const now = await page.locator('.packpage').innerText();
  assert.match(now, /17 May 2026/);
  await page.getByLabel('Day', { exact: true }).fill('2026-04-10');
  await until('the other day', async () => (await page.locator('.packpage').innerText()).includes('10 Apr 2026'));
  await settled(page);
  const text = await page.locator('.packpage').innerText();
  assert.notEqual(text, now);
  await page.getByRole('tab', { name: 'Raw' }).click();
  const raw = await page.locator('.packraw').innerText();
  const told = await home.json('pack', 'recall', '--date', '2026-04-10');
  assert.equal(raw.trim(), told.text.trim());
  await page.getByRole('tab', { name: /Compare/ }).click();
  await settled(page);
  assert.ok((await page.locator('#main').innerText()).includes('3 Apr 2026'));
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Download' }).click()]);
  wrongs.expected = ['download: '];
  wrongs.list = wrongs.list.filter((one) => !one.startsWith('download: '));
  assert.equal(readFileSync(await file.path(), 'utf8').trim(), told.text.trim());
  assert.deepEqual(await written(), []);
  wrongs.none();
});

test('what others do comes by itself', async (t) => {
  const { page, wrongs } = await open('#/ledger');
  await page.evaluate(() => { window.loadedOnce = true; });
  const comes = async (words) => {
    await until(`"${words}"`, async () => (await page.locator('#main').innerText()).includes(words), 20_000);
    assert.ok(await page.evaluate(() => window.loadedOnce), 'it was loaded anew');
  };
  await t.test('an event in the ledger', async () => {
    await home.remember('The carrier comes on Mondays', '--entity', 'carrier');
    await comes('The carrier comes on Mondays');
  });
  await t.test('a commitment at home', async () => {
    await to(page, '#/');
    await home.remember('Buy more crates', '--due', '2026-05-21');
    await comes('Buy more crates');
  });
  await t.test('a turn in a conversation', async () => {
    await to(page, '#/conversations/apple-crates');
    await server.chat('apple-crates', [{ role: 'user', content: 'And the lids are made of spruce, we decided.' }]);
    await comes('lids are made of spruce');
  });
  await t.test('a day in the core', async () => {
    await to(page, '#/core/2026-05-17');
    await server.ask('POST', '/api/messages', { conversation: 'shop', role: 'user', text: 'The new labels have arrived, all nine hundred.' });
    await comes('nine hundred');
  });
  wrongs.none();
});
