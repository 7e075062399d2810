// Every action of a user, through the pages alone: afterwards the ledger contains exactly that and nothing else. Changes by others
// appear by themselves.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { before, test } from 'node:test';
import { chat, sampleVault, settle, goTo, waitUntil, openPage } from './harness.mjs';

let vault, server, known;
before(async () => {
  vault = await sampleVault();
  server = await vault.serve();
  await chat(vault, server);
  known = new Set((await vault.ledger()).keys());
});

/** The events since the last call, in order. */
async function newEvents() {
  const fresh = [...(await vault.ledger()).values()].filter((event) => !known.has(event.id));
  fresh.forEach((event) => known.add(event.id));
  return fresh.sort((one, other) => one.line - other.line);
}

async function entryOf(id) {
  const { entry } = await vault.json('show', id);
  return entry;
}

async function open(address) {
  const visited = await openPage(server);
  await visited.page.goto(`${visited.url}/${address}`);
  await settle(visited.page);
  return visited;
}

/** Clicks a button of the dialog and waits until the dialog is closed. */
async function clickInDialog(page, button) {
  const dialog = page.locator('dialog[open]');
  await dialog.getByRole('button', { name: button, exact: true }).click();
  await dialog.waitFor({ state: 'detached' }).catch(() => {});
  await page.waitForFunction(() => document.querySelector('dialog[open]') === null);
  await settle(page);
}

test('a statement is remembered, confirmed, superseded, closed, restored and retracted', async (t) => {
  const { page, problems } = await open('#/ledger');
  let first, second;

  await t.test('remember', async () => {
    await page.keyboard.press('n');
    const dialog = page.getByRole('dialog', { name: 'Remember something' });
    await dialog.getByLabel('Statement').fill('Send the apple crates to Weimar');
    await dialog.getByLabel('Type').selectOption('commitment');
    await dialog.getByLabel('Priority').selectOption('P1');
    await dialog.getByLabel('Entity').fill('museum');
    await dialog.getByLabel('Tags').fill('apples, crates');
    await dialog.getByLabel('Due').fill('2026-05-22');
    await dialog.getByLabel('Waiting on').fill('the carrier');
    await clickInDialog(page, 'Remember');
    const [event, ...more] = await newEvents();
    assert.deepEqual([event.content, event.type, event.priority, event.entity, event.tags, event.due, event.waiting_on, event.origin, event.standing], ['Send the apple crates to Weimar', 'commitment', 'P1', 'museum', ['apples', 'crates'], '2026-05-22', 'the carrier', 'user', 'active']);
    assert.deepEqual(more, []);
    first = event.id;
    assert.ok((await page.locator('#main').innerText()).includes('Send the apple crates to Weimar'));
  });

  await t.test('confirm', async () => {
    await goTo(page, `#/ledger/${first}`);
    await page.locator('aside.event').getByRole('button', { name: 'Confirm', exact: true }).click();
    await clickInDialog(page, 'Confirm');
    const all = await newEvents();
    assert.deepEqual(all.map((event) => [event.act, event.related]), [['confirm', [first]]]);
    assert.equal((await entryOf(first)).standing, 'active');
  });

  await t.test('supersede', async () => {
    await goTo(page, `#/ledger/${first}`);
    await page.locator('aside.event').getByRole('button', { name: 'Supersede', exact: true }).click();
    await page.locator('dialog[open]').getByLabel('Statement').fill('Send the apple crates to Jena');
    await clickInDialog(page, 'Supersede');
    const [event, ...more] = await newEvents();
    assert.deepEqual([event.content, event.supersedes, event.entity, more], ['Send the apple crates to Jena', first, 'museum', []]);
    second = event.id;
    assert.deepEqual([(await entryOf(first)).standing, (await entryOf(first)).ended_by], ['superseded', second]);
  });

  await t.test('close', async () => {
    await goTo(page, `#/ledger/${second}`);
    await page.locator('aside.event').getByRole('button', { name: 'Close', exact: true }).click();
    await page.locator('dialog[open]').getByLabel(/Outcome/).fill('sent on Friday');
    await clickInDialog(page, 'Close commitment');
    const all = await newEvents();
    assert.deepEqual(all.map((event) => [event.act, event.related, event.content]), [['close', [second], 'sent on Friday']]);
    assert.equal((await entryOf(second)).standing, 'closed');
  });

  await t.test('restore, which retracts the closing', async () => {
    await goTo(page, `#/ledger/${second}`);
    await page.locator('aside.event').getByRole('button', { name: 'Restore', exact: true }).click();
    await clickInDialog(page, 'Restore');
    assert.deepEqual((await newEvents()).map((event) => event.act), ['retract']);
    assert.equal((await entryOf(second)).standing, 'active');
  });

  await t.test('retract', async () => {
    await goTo(page, `#/ledger/${second}`);
    await page.locator('aside.event').getByRole('button', { name: 'Retract', exact: true }).click();
    await clickInDialog(page, 'Retract');
    assert.deepEqual((await newEvents()).map((event) => [event.act, event.related]), [['retract', [second]]]);
    assert.deepEqual([(await entryOf(second)).standing, (await entryOf(first)).standing], ['retracted', 'active']);
  });

  await t.test('cancelling changes nothing', async () => {
    await goTo(page, `#/ledger/${first}`);
    await page.locator('aside.event').getByRole('button', { name: 'Retract', exact: true }).click();
    await clickInDialog(page, 'Cancel');
    await page.keyboard.press('n');
    await page.locator('dialog[open]').getByLabel('Statement').fill('never');
    await page.keyboard.press('Escape');
    await page.waitForFunction(() => document.querySelector('dialog[open]') === null);
    assert.deepEqual(await newEvents(), []);
  });
  problems.none();
});

test('a commitment is closed and a conflict is resolved from Home', async () => {
  const { page, problems } = await open('#/');
  const [commitment] = (await vault.json('events', '--type', 'commitment')).events.filter((event) => event.content === 'Switch the old shop off');
  await page.getByRole('button', { name: /Switch the old shop off/ }).click();
  await page.locator('dialog[open]').getByLabel(/Outcome/).fill('off since noon');
  await clickInDialog(page, 'Close commitment');
  assert.deepEqual((await newEvents()).map((event) => [event.act, event.related, event.content]), [['close', [commitment.id], 'off since noon']]);
  await waitUntil('the commitment to disappear from Home', async () => (await page.getByRole('button', { name: /Switch the old shop off/ }).count()) === 0);

  const before = (await vault.json('conflicts')).conflicts.length;
  await page.getByRole('button', { name: /The stall at the market costs 55 EUR a day/ }).click();
  await waitUntil('the conflict to be resolved', async () => (await vault.json('conflicts')).conflicts.length === before - 1);
  const [retracted, ...more] = await newEvents();
  assert.deepEqual([retracted.act, more], ['retract', []]);
  assert.equal((await entryOf(retracted.related[0])).content, 'The stall at the market costs 45 EUR a day');
  problems.none();
});

test('an edited page contains the edit, and so does the ledger', async () => {
  const { page, problems } = await open('#/knowledge/entities/client-x');
  await page.getByRole('link', { name: 'Edit', exact: true }).click();
  await settle(page);
  const field = page.getByLabel('The page, in Markdown');
  const text = await field.inputValue();
  const lines = text.split('\n');
  const at = lines.findIndex((line) => line.startsWith('- ') && !line.includes('none'));
  assert.ok(at > 0, text);
  lines.splice(at, 0, '- Client X pays by the end of each month');
  await field.fill(lines.join('\n'));
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.locator('.savedbar').waitFor();
  await settle(page);
  const fresh = await newEvents();
  assert.deepEqual(fresh.map((event) => [event.content, event.origin]), [['Client X pays by the end of each month', 'file']]);
  assert.match(readFileSync(`${vault.path}/knowledge/entities/client-x.md`, 'utf8'), /Client X pays by the end of each month/);
  assert.match(await page.locator('#main').innerText(), /Client X pays by the end of each month/);
  problems.none();
});

test('search works while typing, and previews a hit in its context', async () => {
  const { page, problems } = await open('#/');
  await page.keyboard.press('/');
  const field = page.locator('#search-words');
  await field.waitFor();
  await page.waitForFunction(() => document.activeElement?.id === 'search-words');
  await page.keyboard.type('heron at the can', { delay: 15 });
  const hit = page.locator('.hits > li', { hasText: 'heron at the canal that did not care' }).first();
  await hit.waitFor();
  assert.ok((await hit.locator('mark').allInnerTexts()).some((text) => /heron/i.test(text)), 'the matches are highlighted');
  assert.match(page.url(), /q=heron/);
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  const zoomed = page.locator('.zoomed');
  await zoomed.waitFor();
  assert.match(await zoomed.innerText(), /8 May 2026/);
  await waitUntil('the messages around it', async () => (await zoomed.innerText()).includes('4.7 kilometres, rain from the side'));
  assert.ok(await zoomed.locator('.wanted').count() === 1);
  // A kind without a match has no hits.
  await page.getByRole('button', { name: 'Artifacts', exact: true }).click();
  await waitUntil('no hits', async () => (await page.locator('.hits > li', { hasText: 'heron at the canal' }).count()) === 0);
  assert.deepEqual(await newEvents(), []);
  problems.none();
});

test('the core is navigated from a year to the messages, by keyboard and by address', async () => {
  const { page, problems } = await open('#/core');
  await page.locator('.picture canvas').focus();
  const at = () => page.evaluate(() => location.hash);
  const trail = [];
  for (let step = 0; step < 5; step += 1) {
    await page.keyboard.press('ArrowRight');
    await settle(page);
    trail.push(await at());
  }
  assert.match(trail.join(' '), /^(#\/core\/2026 )?#\/core\/2026-05 #\/core\/2026-W\d\d #\/core\/2026-05-\d\d #\/core\/2026-05-/);
  await page.keyboard.press('ArrowLeft');
  await settle(page);
  assert.match(await at(), /^#\/core\/2026-05-\d\d$/);
  await page.keyboard.press('0');
  await settle(page);
  assert.equal(await at(), '#/core');
  await goTo(page, '#/core/2026-05-08');
  await waitUntil('the messages of that day', async () => (await page.locator('.panel').innerText()).includes('a heron at the canal'));
  // From a sentence to its sources.
  await goTo(page, '#/core/2026-W17');
  await page.locator('.sentences .why, .sentences button.sentence').first().click();
  await settle(page);
  assert.ok((await page.locator('.because').innerText()).length > 20);
  problems.none();
});

test('another day has another pack', async () => {
  const { page, problems } = await open('#/packs/recall');
  const now = await page.locator('.packpage').innerText();
  assert.match(now, /17 May 2026/);
  await page.getByLabel('Day', { exact: true }).fill('2026-04-10');
  await waitUntil('the other day', async () => (await page.locator('.packpage').innerText()).includes('10 Apr 2026'));
  await settle(page);
  const text = await page.locator('.packpage').innerText();
  assert.notEqual(text, now);
  await page.getByRole('tab', { name: 'Raw' }).click();
  const raw = await page.locator('.packraw').innerText();
  const told = await vault.json('pack', 'recall', '--date', '2026-04-10');
  assert.equal(raw.trim(), told.text.trim());
  await page.getByRole('tab', { name: /Compare/ }).click();
  await settle(page);
  assert.ok((await page.locator('#main').innerText()).includes('3 Apr 2026'));
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Download' }).click()]);
  problems.expected = ['download: '];
  problems.list = problems.list.filter((one) => !one.startsWith('download: '));
  assert.equal(readFileSync(await file.path(), 'utf8').trim(), told.text.trim());
  assert.deepEqual(await newEvents(), []);
  problems.none();
});

test('quarantined statements are confirmed or dropped', async () => {
  const [good, bad] = await Promise.all(['The lab report came back clean', 'The garden needs a fence'].map(async (text) => (await server.ask('POST', '/api/events', { text, origin: 'tool' })).event.id));
  await newEvents();
  const { page, problems } = await open('#/ledger/waiting');
  await page.getByRole('button', { name: `Confirm ${good}` }).click();
  await clickInDialog(page, 'Confirm');
  assert.deepEqual((await newEvents()).map((event) => [event.act, event.related]), [['confirm', [good]]]);
  await page.getByRole('button', { name: `Drop ${bad}` }).click();
  await clickInDialog(page, 'Drop');
  assert.deepEqual((await newEvents()).map((event) => [event.act, event.related]), [['retract', [bad]]]);
  const waiting = (await vault.json('quarantine', 'list')).quarantined.map((event) => event.id);
  assert.ok(!waiting.includes(good) && !waiting.includes(bad));
  problems.none();
});

test('a day is marked, and the mark is removed', async () => {
  const { page, problems } = await open('#/core/2026-05-08');
  const marks = () => readFileSync(`${vault.path}/memory/marks.jsonl`, 'utf8').trim().split('\n').map((line) => JSON.parse(line)).filter((mark) => mark.date === '2026-05-08').map((mark) => mark.mark);
  const before = marks();
  const group = page.getByRole('group', { name: 'Importance of this day' });
  await group.getByRole('button', { name: 'Dull' }).click();
  await waitUntil('the mark', async () => (await group.getByRole('button', { name: 'Dull' }).getAttribute('aria-pressed')) === 'true');
  assert.deepEqual(marks(), [...before, 'dull']);
  await group.getByRole('button', { name: 'Dull' }).click();
  await waitUntil('no mark', async () => (await group.getByRole('button', { name: 'Dull' }).getAttribute('aria-pressed')) === 'false');
  assert.equal(marks().length, before.length + 2);
  problems.none();
});

test('a conversation and its artifacts are shown as of earlier turns and versions', async () => {
  const { page, problems } = await open('#/conversations/apple-crates');
  const facts = page.getByRole('region', { name: 'Facts' });
  assert.match(await facts.innerText(), /We decided to pack the crates by weight/);
  await page.getByRole('slider').focus();
  await page.keyboard.press('Home');
  await waitUntil('the beginning', async () => /No facts yet: this is before the first turn/.test(await facts.innerText()));
  assert.match(page.url(), /turn=0/);
  await page.keyboard.press('ArrowRight');
  await waitUntil('turn 1', async () => /We decided to pack the crates by weight/.test(await facts.innerText()));
  await waitUntil('the addition of turn 1', async () => (await page.locator('.changes .added').allInnerTexts()).some((text) => text.includes('pack the crates by weight')));
  await page.keyboard.press('End');
  await settle(page);

  await goTo(page, '#/conversations/apple-crates/turns?open=2');
  assert.match(await page.locator('#main').innerText(), /heaviest first/i);
  await goTo(page, '#/conversations/apple-crates/artifacts');
  assert.match(await page.locator('pre.artifact').innerText(), /reverse=True/);
  await page.getByLabel('Version', { exact: true }).selectOption({ index: 1 });
  await waitUntil('the first version', async () => !(await page.locator('pre.artifact').innerText()).includes('reverse=True'));
  await page.getByLabel('Compared with').selectOption({ index: 1 });
  await waitUntil('the diff', async () => (await page.locator('#main').innerText()).includes('reverse=True'));
  assert.deepEqual(await newEvents(), []);
  problems.none();
});

test('Health verifies the vault and takes a snapshot', async () => {
  const { page, problems } = await open('#/health');
  await page.getByRole('button', { name: 'Verify now' }).click();
  await waitUntil('the verdict', async () => (await page.getByRole('button', { name: 'Verify now' }).getAttribute('aria-busy')) !== 'true');
  await settle(page);
  assert.equal(await page.locator('#main .errorbox').count(), 0);
  await page.getByLabel('Note for a new snapshot').fill('before the apple crates');
  await page.getByRole('button', { name: 'Take snapshot' }).click();
  await waitUntil('the snapshot', async () => JSON.stringify(await server.ask('GET', '/api/snapshots?limit=5')).includes('before the apple crates'));
  await waitUntil('the snapshot on the page', async () => (await page.locator('#main').innerText()).includes('before the apple crates'));
  problems.none();
});

test('changes by others appear by themselves', async (t) => {
  const { page, problems } = await open('#/ledger');
  await page.evaluate(() => { window.loadedOnce = true; });
  const comes = async (words) => {
    await waitUntil(`"${words}"`, async () => (await page.locator('#main').innerText()).includes(words), 20_000);
    assert.ok(await page.evaluate(() => window.loadedOnce), 'the page was reloaded');
  };
  await t.test('an event in the ledger', async () => {
    await vault.remember('The carrier comes on Mondays', '--entity', 'carrier');
    await comes('The carrier comes on Mondays');
  });
  await t.test('a commitment on Home', async () => {
    await goTo(page, '#/');
    await vault.remember('Buy more crates', '--due', '2026-05-21');
    await comes('Buy more crates');
  });
  await t.test('a turn in a conversation', async () => {
    await goTo(page, '#/conversations/apple-crates');
    await server.chat('apple-crates', [{ role: 'user', content: 'And the lids are made of spruce, we decided.' }]);
    await comes('lids are made of spruce');
  });
  await t.test('a day in the core', async () => {
    await goTo(page, '#/core/2026-05-17');
    await server.ask('POST', '/api/messages', { conversation: 'shop', role: 'user', text: 'The new labels have arrived, all nine hundred.' });
    await comes('nine hundred');
  });
  problems.none();
});
