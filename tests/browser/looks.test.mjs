// How it looks: nothing sticks out or lies over another at any width, in either theme, and every view looks as it did.
//
// Pictures go to target/browser. They are compared with those in `looks/`, made small (48 columns of grey and colour): a
// letter or a date that differs does not show there, but a rail that is gone, a theme that is not taken, a card that moved or a picture
// that stays empty does. With ICECORE_LOOKS=write, the small pictures are written anew; look at the large ones before committing them.

import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { HERE, OUT, browser, chat, rail, sample, settled, to, visit } from './house.mjs';

const KEPT = join(HERE, 'looks');
const WRITE = process.env.ICECORE_LOOKS === 'write';
const WIDTHS = [[400, 860], [1280, 800], [2560, 1440]];
const COLUMNS = 48;
/** How far a cell may be from what it was, of 255, before it counts as another. */
const NEAR = 10;
/** The part of all cells that may differ. */
const MOST_OTHERS = 0.08;
/** All kept pictures together. */
const MOST_BYTES = 400_000;

let server, small;
before(async () => {
  const home = await sample();
  server = await home.serve();
  await chat(home, server);
  // A page of its own, in which pictures are made small; it shows nothing of anybody's.
  small = await (await (await browser()).opened.newContext()).newPage();
  if (WRITE) {
    rmSync(KEPT, { recursive: true, force: true });
    mkdirSync(KEPT, { recursive: true });
  }
});

/** A picture made small: its bytes as PNG, and its colours. */
function reduced(png, columns) {
  return small.evaluate(async ([data, wide]) => {
    const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${data}`)).blob());
    let [width, height] = [image.width, image.height];
    let from = image;
    const high = Math.round((height * wide) / width);
    // By halves, so that every pixel counts.
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

/** The part of cells that are not as they were. */
function others(one, other) {
  if (one.width !== other.width || one.height !== other.height) return 1;
  let many = 0;
  for (let at = 0; at < one.pixels.length; at += 4) {
    if ([0, 1, 2].some((channel) => Math.abs(one.pixels[at + channel] - other.pixels[at + channel]) > NEAR)) many += 1;
  }
  return many / (one.pixels.length / 4);
}

/** What is wrong with where things are. */
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
    // At the bottom of a narrow screen: the end of what is shown can be scrolled above it.
    const before = scrollY;
    scrollTo(0, page.scrollHeight);
    const last = [...document.querySelectorAll('main > *')].reduce((most, one) => Math.max(most, one.getBoundingClientRect().bottom), 0);
    if (last > rail.top + 1) found.push(`the last line ends at ${last}, the rail begins at ${rail.top}`);
    scrollTo(0, before);
  }
  // Words that are cut off without a sign of it, and controls that lie over each other.
  const controls = [...document.querySelectorAll('main :is(button, input, select, textarea, a.button)')].filter((one) => one.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true }) && one.type !== 'checkbox');
  for (const [at, one] of controls.entries()) {
    const box = one.getBoundingClientRect();
    if (box.right > innerWidth + 1 && !one.closest('.tablebox, pre, [role=tablist], .scrolls')) found.push(`${one.tagName} "${one.textContent.slice(0, 30)}" sticks out to ${box.right}`);
    if (box.left < -1) found.push(`${one.tagName} "${one.textContent.slice(0, 30)}" begins at ${box.left}`);
    for (const other of controls.slice(at + 1, at + 8)) {
      const next = other.getBoundingClientRect();
      const [wide, high] = [Math.min(box.right, next.right) - Math.max(box.left, next.left), Math.min(box.bottom, next.bottom) - Math.max(box.top, next.top)];
      if (wide > 2 && high > 2 && !one.contains(other) && !other.contains(one)) found.push(`${one.tagName} "${one.textContent.slice(0, 30)}" and ${other.tagName} "${other.textContent.slice(0, 30)}" lie over each other`);
    }
  }
  return found;
}

for (const [width, height] of WIDTHS) {
  test(`${width} pixels, light and dark`, async (t) => {
    const { page, wrongs, url } = await visit(server, { width, height });
    await page.goto(url);
    await settled(page);
    const wrong = [];
    for (const view of await rail(page)) {
      await to(page, view.address);
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
    wrongs.none();
  });
}

async function compared(t, name, png) {
  const now = await reduced(png, COLUMNS);
  const kept = join(KEPT, `${name}.png`);
  if (WRITE) writeFileSync(kept, Buffer.from(now.png, 'base64'));
  if (!existsSync(kept)) return [`${name}: there is nothing to compare with; ICECORE_LOOKS=write makes it`];
  const part = others(now, await reduced(readFileSync(kept), COLUMNS));
  if (part > 0.01) t.diagnostic(`${name}: ${(part * 100).toFixed(1)} % of the picture is not as it was`);
  return part > MOST_OTHERS ? [`${name}: ${(part * 100).toFixed(1)} % of the picture is not as it was; look at ${join(OUT, `${name}.png`)}`] : [];
}

test('the comparison sees what matters and not what does not', async () => {
  const pictures = readdirSync(KEPT);
  const bytes = pictures.reduce((sum, name) => sum + statSync(join(KEPT, name)).size, 0);
  assert.ok(bytes < MOST_BYTES, `${bytes} bytes of pictures`);
  const { page, url } = await visit(server);
  await page.goto(url);
  await settled(page);
  const before = await reduced(await page.screenshot(), COLUMNS);
  const changed = async (change) => {
    await page.evaluate(change);
    return others(before, await reduced(await page.screenshot(), COLUMNS));
  };
  // Other letters are the same picture.
  const letters = await changed(() => { for (const heading of document.querySelectorAll('h1, h2')) heading.textContent = heading.textContent.replace(/[aeiou]/g, 'o'); });
  assert.ok(letters <= MOST_OTHERS, `${letters}`);
  // Another theme, no rail, and no content are others.
  for (const change of [
    () => { document.documentElement.dataset.theme = 'dark'; },
    () => { document.documentElement.dataset.theme = 'light'; document.querySelector('main').style.visibility = 'hidden'; },
    () => { document.querySelector('main').style.visibility = ''; document.querySelector('.rail').style.display = 'none'; },
  ]) {
    const part = await changed(change);
    assert.ok(part > MOST_OTHERS, `${change}: ${part}`);
  }
});
