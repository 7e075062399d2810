// Accessibility: axe finds nothing serious in any view in either theme, and everything is reachable by keyboard.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { axe, chat, railViews, sampleVault, settle, goTo, openPage } from './harness.mjs';

let server, deep;
before(async () => {
  const vault = await sampleVault();
  server = await vault.serve();
  await chat(vault, server);
  const event = (await vault.json('commitments')).commitments[0].id;
  // Addresses within the views, which have more content than the lists.
  deep = ['#/core/2026-04', '#/core/2026-05-08', `#/ledger/${event}`, '#/knowledge/entities/client-x', '#/knowledge/entities/client-x/edit', '#/knowledge/entities/client-x/history', '#/conversations/apple-crates', '#/conversations/apple-crates/turns?open=1', '#/conversations/apple-crates/artifacts', '#/ledger/conflicts', '#/packs/recall?as=compare', '#/runs/log', '#/search?q=shop&explain=true', '#/nowhere'];
});

for (const theme of ['light', 'dark']) {
  test(`axe finds nothing serious, ${theme}`, async (t) => {
    const { page, problems, url } = await openPage(server, { theme });
    await page.goto(url);
    await settle(page);
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), theme);
    await page.evaluate(axe);
    const [views, serious] = [await railViews(page), []];
    for (const address of [...views.map((view) => view.address), ...deep]) {
      await goTo(page, address);
      const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
      const told = violations.map(({ id, impact, nodes }) => `${impact} ${id}: ${nodes.slice(0, 3).map((node) => `${node.target.join(' ')} ${node.any[0]?.message ?? node.failureSummary}`).join(' | ')}`);
      const [bad, mild] = [told.filter((one) => /^(serious|critical)/.test(one)), told.filter((one) => !/^(serious|critical)/.test(one))];
      if (mild.length > 0) t.diagnostic(`${address}: ${mild.join('\n')}`);
      serious.push(...bad.map((one) => `${address}: ${one}`));
    }
    assert.deepEqual(serious, []);
    problems.none();
  });
}

test('the login page is accessible', async () => {
  const { page, problems, url } = await openPage(server, { login: false });
  problems.expected = ['401'];
  await page.goto(url);
  await page.getByLabel('Server token').waitFor();
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document));
  assert.deepEqual(violations.filter((one) => ['serious', 'critical'].includes(one.impact)).map((one) => one.id), []);
});

test('shortcuts open every view, the search and the list of shortcuts', async () => {
  const { page, problems, url } = await openPage(server);
  await page.goto(url);
  await settle(page);
  const views = await railViews(page);
  for (const view of [...views].reverse()) {
    // Leave the text field of the previous view first.
    await page.evaluate(() => document.activeElement?.blur());
    await page.keyboard.press('g');
    await page.keyboard.press(view.key);
    await page.waitForFunction((title) => document.querySelector('.rail [aria-current=page]')?.textContent === title, view.title);
    await settle(page);
  }
  await page.evaluate(() => document.activeElement?.blur());
  await page.keyboard.press('/');
  await page.waitForFunction(() => document.activeElement?.id === 'search-words');
  // Letters are text while a text field has the focus.
  await page.keyboard.type('g?t/');
  assert.equal(await page.inputValue('#search-words'), 'g?t/');
  await page.waitForURL(/q=g/);
  assert.equal(await page.locator('dialog[open]').count(), 0);
  await page.evaluate(() => document.activeElement?.blur());

  const was = await page.evaluate(() => document.documentElement.dataset.theme);
  await page.keyboard.press('t');
  assert.notEqual(await page.evaluate(() => document.documentElement.dataset.theme), was);

  await page.keyboard.press('?');
  const dialog = page.getByRole('dialog', { name: 'Keyboard shortcuts' });
  await dialog.waitFor();
  const told = await dialog.innerText();
  for (const view of views) assert.ok(told.includes(view.title), `${view.title} is not in the list of shortcuts`);
  assert.ok(await page.evaluate(() => document.querySelector('dialog[open]').contains(document.activeElement)), 'the focus is in the dialog');
  // While a dialog is open, no shortcut works.
  const before = page.url();
  await page.keyboard.press('g');
  await page.keyboard.press(views[1].key);
  assert.equal(page.url(), before);
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'hidden' });
  problems.none();
});

test('the tab key goes from top to bottom with a visible focus', async () => {
  const { page, problems, url } = await openPage(server);
  await page.goto(url);
  await settle(page);
  for (const view of await railViews(page)) {
    await goTo(page, view.address);
    await page.evaluate(() => { document.activeElement?.blur(); window.getSelection()?.removeAllRanges(); scrollTo(0, 0); });
    await page.evaluate(() => { document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex'); });
    const stops = [];
    for (let at = 0; at < 40; at += 1) {
      await page.keyboard.press('Tab');
      const stop = await page.evaluate(() => {
        const on = document.activeElement;
        if (!on || on === document.body) return undefined;
        const style = getComputedStyle(on);
        const within = on.closest('.rail') ? 'rail' : on.closest('main') ? 'main' : 'other';
        const { x, y, width, height } = on.getBoundingClientRect();
        // In a date field, the browser highlights the focused part.
        const ring = on.type === 'date' || (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== 'none';
        const name = (on.getAttribute('aria-label') ?? on.labels?.[0]?.textContent ?? on.textContent ?? on.title ?? '').trim().slice(0, 60) || on.getAttribute('aria-labelledby') || '';
        return { within, ring, seen: width > 0 && height > 0 && y + height > 0 && y < innerHeight && x + width > 0 && x < innerWidth, name, what: `${on.tagName}.${on.className}#${on.id}` };
      });
      // After the last stop the order starts over.
      if (!stop || (stops.length > 0 && stop.within === 'other' && stop.what === stops[0].what)) break;
      stops.push(stop);
    }
    assert.ok(stops.length > 2, `${view.title}: ${stops.length} stops`);
    for (const stop of stops) {
      assert.ok(stop.ring, `${view.title}: no visible focus on ${stop.what} "${stop.name}"`);
      assert.ok(stop.seen, `${view.title}: ${stop.what} "${stop.name}" has the focus outside the window`);
      assert.ok(stop.name !== '', `${view.title}: ${stop.what} has no name`);
    }
    // The skip link, then the rail, then the content, in this order.
    const order = stops.map((stop) => stop.within);
    assert.equal(order[0], 'other', `${view.title}: ${stops[0].what}`);
    assert.ok(order.lastIndexOf('rail') < order.indexOf('main') || !order.includes('main'), `${view.title}: ${order.join(' ')}`);
  }
  // The first stop skips the rail.
  await page.evaluate(() => { document.body.tabIndex = -1; document.body.focus(); });
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement?.id), 'main');
  problems.none();
});
