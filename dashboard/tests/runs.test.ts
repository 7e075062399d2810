// Parts of runs and health that can be proven without a browser.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commands } from '../src/views/health/commands.ts';
import { DAY_SECS, around, byMonth, clock, joined, smooth, spread } from '../src/views/runs/days.ts';
import { cutAt, invented } from '../src/views/runs/invented.ts';

test('days on which nothing ran are gaps, and long gaps break a line', () => {
  const [x, values] = spread(['2026-02-27', '2026-03-02'], [[1, 2]]);
  assert.equal(x.length, 4);
  assert.deepEqual(x.map((one) => (one - (x[0] ?? 0)) / DAY_SECS), [0, 1, 2, 3]);
  assert.deepEqual(values, [1, undefined, undefined, 2]);
  const gap = joined([1, null, null, null, null, null, null, null, null, 2, null, 3]);
  assert.deepEqual(gap.slice(1, 9), Array.from({ length: 8 }, () => null));
  assert.equal(gap[10], undefined);
});

test('a lone day stands in the middle of a week', () => {
  const [from, to] = around([10 * DAY_SECS]);
  assert.deepEqual([from / DAY_SECS, to / DAY_SECS], [6.5, 13.5]);
  const [begin, end] = around(Array.from({ length: 10 }, (_, at) => at * DAY_SECS));
  assert.deepEqual([begin / DAY_SECS, end / DAY_SECS], [-0.5, 9.5]);
});

test('days together weigh by what they had', () => {
  assert.deepEqual(smooth([100, 10], [10, 10]), [5.5, 5.5]);
  assert.deepEqual(smooth([0], [0]), [null]);
});

test('years are told by month, also those in which nothing ran', () => {
  const ones = [1, 2, 4];
  const months = byMonth({ day: ['2025-12-30', '2025-12-31', '2026-02-01'], ratio: [null, null, null], bytes_in: [10, 30, 8], bytes_out: [10, 10, 2], millis: ones, tokens_in: ones, tokens_out: ones, asked: ones });
  assert.deepEqual(months.day, ['2025-12-01', '2026-01-01', '2026-02-01']);
  assert.deepEqual(months.ratio, [2, null, 4]);
  assert.deepEqual(months.asked, [3, 0, 4]);
});

test('an axis of time does not round', () => {
  for (const [ms, said] of [[0, '0 ms'], [500, '500 ms'], [1_500, '1.5 s'], [30_000, '30 s'], [60_000, '1 min'], [90_000, '1:30 min'], [5_400_000, '1.5 h']] as const) assert.equal(clock(ms), said);
});

test('what nobody said is found in the draft', () => {
  assert.deepEqual(invented('no source says: 99999, EUR, 2031-01-01'), ['99999', 'EUR', '2031-01-01']);
  assert.deepEqual(invented('it is too long'), []);
  assert.deepEqual(cutAt('It cost 99999 EUR.', ['EUR', '99999']), ['It cost ', '99999', ' ', 'EUR', '.']);
  assert.deepEqual(cutAt('EURO and EUR', ['EUR', 'EURO']), ['', 'EURO', ' and ', 'EUR', '']);
  assert.deepEqual(cutAt('nothing', ['']), ['nothing']);
});

test('a message names its commands once each', () => {
  assert.deepEqual(commands('`icecore doctor` shows them, `icecore doctor --fix` sets them aside; `icecore doctor`, not `rm`'), ['icecore doctor', 'icecore doctor --fix']);
});
