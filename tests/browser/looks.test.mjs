// Visual regression: nothing overflows or overlaps at any width, in either theme, and every view looks as before.
//
// Screenshots go to target/browser. They are compared with the thumbnails in `looks/` (48 columns): a different letter or date does not
// matter at that size, but a missing rail, the wrong theme, a moved card or an empty picture does. ICECORE_LOOKS=write replaces the
// thumbnails; look at the screenshots before committing them.

import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { HERE, OUT, browser, chat, railViews, sampleVault, settle, goTo, openPage } from './harness.mjs';

const THUMBNAILS = join(HERE, 'looks');
const WRITE = process.env.ICECORE_LOOKS === 'write';
const WIDTHS = [[400, 860], [1280, 800], [2560, 1440]];
const COLUMNS = 48;
/** The tolerance of a cell's colour, of 255. */
const TOLERANCE = 10;
/** The share of cells that may differ. */
const MAX_DIFFERENCE = 0.08;
/** The most bytes of all thumbnails. */
const MAX_BYTES = 400_000;

let server, small;
before(async () => {
  const vault = await sampleVault();
  server = await vault.serve();
  await chat(vault, server);
  // A separate empty page that scales screenshots down.
  small = await (await (await browser()).opened.newContext()).newPage();
  if (WRITE) {
    rmSync(THUMBNAILS, { recursive: true, force: true });
    mkdirSync(THUMBNAILS, { recursive: true });
  }
});

/** Scales a screenshot down: returns the PNG and the colours. */
function reduced(png, columns) {
  return small.evaluate(async ([data, wide]) => {
    const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${data}`)).blob());
    let [width, height] = [image.width, image.height];
    let from = image;
    const high = Math.round((height * wide) / width);
    // In steps of one half, so that every pixel counts.
    while (width > wide) {
      [width, height] = width / 2 > wide ? [Math.round(width / 2), Math.round(height / 2)] : [wide, high];
      const canvas = new OffscreenCanvas(width, height);
      const context = canvas.getContext('2d');
      context.imageSmoothingQuality = 'high';
      context.drawImage(from, 0, 0, width, height);
      from = canvas;
    }
    const canvas = new OffscreenCanvas(width, height);
    canvas.getContext('2d').drawImage(from, 0, 0);
    const { data: pixels } = canvas.getContext('2d').getImageData(0, 0, width, height);
    const bytes = new Uint8Array(await (await canvas.convertToBlob({ type: 'image/png' })).arrayBuffer());
    return { width, height, pixels: [...pixels], png: btoa(String.fromCharCode(...bytes)) };
  }, [png.toString('base64'), columns]);
}

/** The share of cells that differ. */
function difference(one, other) {
  if (one.width !== other.width || one.height !== other.height) return 1;
  let many = 0;
  for (let at = 0; at < one.pixels.length; at += 4) {
    if ([0, 1, 2].some((channel) => Math.abs(one.pixels[at + channel] - other.pixels[at + channel]) > TOLERANCE)) many += 1;
  }
  return many / (one.pixels.length / 4);
}

/** Overflows and overlaps in a page. */
function misplaced() {
  const found = [];
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth + 1) {
    const wide = [...document.querySelectorAll('#app *')].filter((one) => one.getBoundingClientRect().right > page.clientWidth + 1 && getComputedStyle(one).position !== 'fixed');
    found.push(`the page is ${page.scrollWidth} wide in a window of ${page.clientWidth}: ${wide.slice(0, 3).map((one) => `${one.tagName}.${one.className}`).join(', ')}`);
  }
  const [rail, main] = ['.rail', 'main'].map((name) => document.querySelector(name).getBoundingClientRect());
  if (getComputedStyle(document.querySelector('.rail')).position !== 'fixed') {
    if (main.left < rail.right - 1) found.push(`main begins at ${main.left}, the rail ends at ${rail.right}`);
  } else {
    // At the bottom of a narrow screen: the end of the content can be scrolled above the rail.
    const before = scrollY;
    scrollTo(0, page.scrollHeight);
    const last = [...document.querySelectorAll('main > *')].reduce((most, one) => Math.max(most, one.getBoundingClientRect().bottom), 0);
    if (last > rail.top + 1) found.push(`the last line ends at ${last}, the rail begins at ${rail.top}`);
    scrollTo(0, before);
  }
  // Controls that overflow or overlap.
  const controls = [...document.querySelectorAll('main :is(button, input, select, textarea, a.button)')].filter((one) => one.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true }) && one.type !== 'checkbox');
  for (const [at, one] of controls.entries()) {
    const box = one.getBoundingClientRect();
    if (box.right > innerWidth + 1 && !one.closest('.tablebox, pre, [role=tablist], .scrolls')) found.push(`${one.tagName} "${one.textContent.slice(0, 30)}" extends to ${box.right}`);
    if (box.left < -1) found.push(`${one.tagName} "${one.textContent.slice(0, 30)}" begins at ${box.left}`);
    for (const other of controls.slice(at + 1, at + 8)) {
      const next = other.getBoundingClientRect();
      const [wide, high] = [Math.min(box.right, next.right) - Math.max(box.left, next.left), Math.min(box.bottom, next.bottom) - Math.max(box.top, next.top)];
      if (wide > 2 && high > 2 && !one.contains(other) && !other.contains(one)) found.push(`${one.tagName} "${one.textContent.slice(0, 30)}" and ${other.tagName} "${other.textContent.slice(0, 30)}" overlap`);
    }
  }
  return found;
}

for (const [width, height] of WIDTHS) {
  test(`${width} pixels, light and dark`, async (t) => {
    const { page, problems, url } = await openPage(server, { width, height });
    await page.goto(url);
    await settle(page);
    const wrong = [];
    for (const view of await railViews(page)) {
      await goTo(page, view.address);
      for (const theme of ['light', 'dark']) {
        const name = `${view.id}-${width}-${theme}`;
        const png = await page.screenshot({ path: join(OUT, `${name}.png`), animations: 'disabled', caret: 'hide' });
        wrong.push(...(await page.evaluate(misplaced)).map((one) => `${name}: ${one}`));
        wrong.push(...await compared(t, name, png));
        await page.evaluate(() => document.activeElement?.blur());
        await page.keyboard.press('t');
        await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
      }
    }
    assert.deepEqual(wrong, []);
    problems.none();
  });
}

async function compared(t, name, png) {
  const now = await reduced(png, COLUMNS);
  const kept = join(THUMBNAILS, `${name}.png`);
  if (WRITE) writeFileSync(kept, Buffer.from(now.png, 'base64'));
  if (!existsSync(kept)) return [`${name}: there is no thumbnail to compare with; ICECORE_LOOKS=write creates it`];
  const part = difference(now, await reduced(readFileSync(kept), COLUMNS));
  if (part > 0.01) t.diagnostic(`${name}: ${(part * 100).toFixed(1)} % of the picture differs`);
  return part > MAX_DIFFERENCE ? [`${name}: ${(part * 100).toFixed(1)} % of the picture differs; look at ${join(OUT, `${name}.png`)}`] : [];
}

test('the comparison detects layout changes and ignores letters', async () => {
  const pictures = readdirSync(THUMBNAILS);
  const bytes = pictures.reduce((sum, name) => sum + statSync(join(THUMBNAILS, name)).size, 0);
  assert.ok(bytes < MAX_BYTES, `${bytes} bytes of pictures`);
  const { page, url } = await openPage(server);
  await page.goto(url);
  await settle(page);
  const before = await reduced(await page.screenshot(), COLUMNS);
  const changed = async (change) => {
    await page.evaluate(change);
    return difference(before, await reduced(await page.screenshot(), COLUMNS));
  };
  // Different letters are no difference.
  const letters = await changed(() => { for (const heading of document.querySelectorAll('h1, h2')) heading.textContent = heading.textContent.replace(/[aeiou]/g, 'o'); });
  assert.ok(letters <= MAX_DIFFERENCE, `${letters}`);
  // Another theme, no rail, and no content are differences.
  for (const change of [
    () => { document.documentElement.dataset.theme = 'dark'; },
    () => { document.documentElement.dataset.theme = 'light'; document.querySelector('main').style.visibility = 'hidden'; },
    () => { document.querySelector('main').style.visibility = ''; document.querySelector('.rail').style.display = 'none'; },
  ]) {
    const part = await changed(change);
    assert.ok(part > MAX_DIFFERENCE, `${change}: ${part}`);
  }
});
