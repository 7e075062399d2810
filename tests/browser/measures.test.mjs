// Size and speed: printed, and compared with the limits. Times are processor times where available, because the machine may be busy;
// wall-clock times are printed beside them and may be several times the limit.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { get } from 'node:http';
import { browser, chat, median, percentile, sampleVault, settle, sleep, openPage } from './harness.mjs';
import { decade, headlines, messages } from './decade.mjs';

const MAX_BYTES = 150_000;
const HOME_MS = 500;
const FRAME_MS = 8;
/** The factor by which wall-clock times may exceed a limit, on a busy machine. */
const WALL_CLOCK_FACTOR = 6;

let server;
before(async () => {
  const vault = await sampleVault();
  server = await vault.serve();
  await chat(vault, server);
});

/** Fetches a file with the encodings of a browser. */
function sent(path) {
  return new Promise((done, failed) => get(server.url + path, { headers: { 'accept-encoding': 'gzip, deflate, br' } }, (response) => {
    const pieces = [];
    response.on('data', (piece) => pieces.push(piece)).on('end', () => done({ status: response.statusCode, encoding: response.headers['content-encoding'], body: Buffer.concat(pieces) }));
  }).on('error', failed));
}

test('the files are small', async (t) => {
  let whole = 0;
  const page = gunzipSync((await sent('/')).body).toString();
  const files = ['/', ...[...page.matchAll(/(?:src|href)="(\/[^"]+)"/g)].map(([, path]) => path)];
  for (const path of files) {
    const { status, encoding, body } = await sent(path);
    assert.deepEqual([status, encoding], [200, 'gzip'], path);
    t.diagnostic(`${path} ${body.length} bytes`);
    whole += body.length;
  }
  t.diagnostic(`all files together, gzipped: ${whole} bytes of ${MAX_BYTES}`);
  assert.ok(files.length >= 4 && whole < MAX_BYTES, `${whole} bytes`);
});

test('Home is usable quickly', async (t) => {
  const [walls, works] = [[], []];
  for (let at = 0; at < 5; at += 1) {
    // A new browser context: its cache is empty.
    const { page, context, problems, url } = await openPage(server, {
      intercept: false,
      init: () => {
        const look = () => {
          const main = document.getElementById('main');
          if (!main || main.querySelector('.loading') || !main.textContent.includes('Recall Pack')) return requestAnimationFrame(look);
          // Painted, and ready for input.
          requestAnimationFrame(() => setTimeout(() => performance.mark('usable')));
        };
        requestAnimationFrame(look);
      },
    });
    const devtools = await context.newCDPSession(page);
    await devtools.send('Performance.setTimeDomain', { timeDomain: 'threadTicks' }).catch(() => {});
    await devtools.send('Performance.enable');
    await page.goto(url);
    await page.waitForFunction(() => performance.getEntriesByName('usable').length > 0);
    walls.push(await page.evaluate(() => performance.getEntriesByName('usable')[0].startTime));
    const { metrics } = await devtools.send('Performance.getMetrics');
    works.push(metrics.find((one) => one.name === 'TaskDuration').value * 1_000);
    problems.none();
    await context.close();
  }
  const summary = (figures) => `median ${median(figures).toFixed(0)} ms of ${figures.map((one) => one.toFixed(0)).join(', ')}`;
  t.diagnostic(`Home usable after ${summary(walls)} of wall-clock time; ${summary(works)} of processor time; limit ${HOME_MS} ms`);
  assert.ok(median(works) < HOME_MS, summary(works));
  assert.ok(median(walls) < HOME_MS * WALL_CLOCK_FACTOR, summary(walls));
});

/** The scripting time of each frame of a trace, in milliseconds: processor time and wall-clock time. */
function frames(trace) {
  const SCRIPTS = new Set(['FireAnimationFrame', 'EventDispatch', 'TimerFire', 'FunctionCall', 'RunMicrotasks', 'v8.callFunction', 'MinorGC', 'MajorGC', 'V8.GC_SCAVENGER']);
  const events = trace.traceEvents.filter((event) => event.ph === 'X' && SCRIPTS.has(event.name)).sort((a, b) => a.ts - b.ts || (b.dur ?? 0) - (a.dur ?? 0));
  const drawn = events.filter((event) => event.name === 'FireAnimationFrame');
  // The main thread of the page.
  const counts = new Map();
  for (const { pid, tid } of drawn) counts.set(`${pid} ${tid}`, (counts.get(`${pid} ${tid}`) ?? 0) + 1);
  const [thread] = [...counts].sort((a, b) => b[1] - a[1])[0] ?? [];
  const found = [];
  let [work, wall, until] = [0, 0, 0];
  for (const event of events) {
    if (`${event.pid} ${event.tid}` !== thread || event.ts < until) continue;
    // Nested events are part of this one.
    until = event.ts + (event.dur ?? 0);
    work += (event.tdur ?? event.dur ?? 0) / 1_000;
    wall += (event.dur ?? 0) / 1_000;
    if (event.name === 'FireAnimationFrame') {
      found.push({ work, wall });
      [work, wall] = [0, 0];
    }
  }
  return { found, timed: events.some((event) => event.tdur !== undefined) };
}

test('ten years and a million messages can be navigated smoothly', async (t) => {
  const told = decade();
  const real = await server.ask('GET', '/api/core');
  // The generated timeline has the shape of the program's answer.
  assert.deepEqual(Object.keys(told).sort(), Object.keys(real).sort());
  for (const tier of Object.keys(real.layers)) assert.deepEqual(Object.keys(told.layers[tier]).sort(), Object.keys(real.layers[tier]).sort(), tier);
  const sum = (tier) => told.layers[tier].messages.reduce((all, one) => all + one, 0);
  assert.deepEqual([told.layers.day.period.length, sum('day'), sum('session'), sum('year')], [3_650, 1_000_000, 1_000_000, 1_000_000]);

  const { page, context, problems, url } = await openPage(server, { intercept: false, width: 1440, height: 900 });
  const whole = JSON.stringify(told);
  const json = (route, value) => route.fulfill({ status: 200, contentType: 'application/json', body: typeof value === 'string' ? value : JSON.stringify(value) });
  await context.route(/\/api\/core(\?|$)/, (route) => json(route, whole));
  await context.route(/\/api\/core\/headlines/, (route) => json(route, headlines(told, new URL(route.request().url()).searchParams.get('tier'))));
  await context.route(/\/api\/core\/[^/]+\/messages/, (route) => json(route, messages(new URL(route.request().url()).pathname.split('/')[3])));
  await page.goto(`${url}/#/core`);
  await page.waitForSelector('.picture canvas');
  await settle(page);
  const box = await page.locator('.picture canvas').boundingBox();
  const [x, y] = [box.x + box.width / 3, box.y + box.height / 2];
  const { opened } = await browser();
  await opened.startTracing(page, { categories: ['-*', 'devtools.timeline', 'v8', 'disabled-by-default-v8.gc'] });
  await page.mouse.move(x, y);
  // Waits outside the page: a timer in the page would be part of its frames.
  const still = () => sleep(20);
  // From years down to days and messages, dragging on the way, and back.
  for (const [steps, turn] of [[14, -240], [10, -240], [24, 240]]) {
    for (let step = 0; step < steps; step += 1) {
      await page.mouse.wheel(0, turn);
      await still();
    }
    await page.mouse.down();
    for (let step = 1; step <= 24; step += 1) {
      await page.mouse.move(x + step, y + (step % 12 < 6 ? step * 9 : -step * 9));
      await still();
    }
    await page.mouse.up();
    await page.mouse.move(x, y);
    await sleep(250);
  }
  const { found, timed } = frames(JSON.parse((await opened.stopTracing()).toString()));
  const paints = await page.evaluate(() => performance.getEntriesByName('core-frame').map((one) => one.duration));
  const [works, walls] = [found.map((one) => one.work), found.map((one) => one.wall)];
  const said = (figures) => `median ${median(figures).toFixed(2)}, p95 ${percentile(figures, 0.95).toFixed(2)}, most ${Math.max(...figures).toFixed(2)} ms`;
  t.diagnostic(`${found.length} frames, scripting per frame: ${said(works)} of ${timed ? 'processor time' : 'wall-clock time (no processor time available)'}; ${said(walls)} of wall-clock time; painting alone ${said(paints)} of wall-clock time`);
  assert.ok(found.length > 80 && paints.length > 80, `${found.length} frames, ${paints.length} painted`);
  const factor = timed ? 1 : WALL_CLOCK_FACTOR;
  assert.ok(median(works) < FRAME_MS * factor, said(works));
  assert.ok(percentile(works, 0.95) < FRAME_MS * 2 * factor, said(works));
  problems.none();
});
