// The logic of Runs and Health that needs no browser.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commandsIn } from '../src/views/health/commands.ts';
import { DAY_SECS, axisRange, byMonth, formatClock, bridgeGaps, rollingRatio, fillDays } from '../src/views/runs/days.ts';
import { splitAtTerms, unsupportedTerms } from '../src/views/runs/unsupported.ts';

test('days without runs are gaps, and long gaps break a line', () => {
  const [x, values] = fillDays(['2026-02-27', '2026-03-02'], [[1, 2]]);
  assert.equal(x.length, 4);
  assert.deepEqual(x.map((one) => (one - (x[0] ?? 0)) / DAY_SECS), [0, 1, 2, 3]);
  assert.deepEqual(values, [1, undefined, undefined, 2]);
  const gap = bridgeGaps([1, null, null, null, null, null, null, null, null, 2, null, 3]);
  assert.deepEqual(gap.slice(1, 9), Array.from({ length: 8 }, () => null));
  assert.equal(gap[10], undefined);
});

test('a single day is centred in a week', () => {
  const [from, to] = axisRange([10 * DAY_SECS]);
  assert.deepEqual([from / DAY_SECS, to / DAY_SECS], [6.5, 13.5]);
  const [begin, end] = axisRange(Array.from({ length: 10 }, (_, at) => at * DAY_SECS));
  assert.deepEqual([begin / DAY_SECS, end / DAY_SECS], [-0.5, 9.5]);
});

test('the rolling ratio is weighted by size', () => {
  assert.deepEqual(rollingRatio([100, 10], [10, 10]), [5.5, 5.5]);
  assert.deepEqual(rollingRatio([0], [0]), [null]);
});

test('months without runs are included', () => {
  const ones = [1, 2, 4];
  const months = byMonth({ day: ['2025-12-30', '2025-12-31', '2026-02-01'], ratio: [null, null, null], bytes_in: [10, 30, 8], bytes_out: [10, 10, 2], millis: ones, tokens_in: ones, tokens_out: ones, asked: ones });
  assert.deepEqual(months.day, ['2025-12-01', '2026-01-01', '2026-02-01']);
  assert.deepEqual(months.ratio, [2, null, 4]);
  assert.deepEqual(months.asked, [3, 0, 4]);
});

test('durations on an axis are not rounded', () => {
  for (const [ms, said] of [[0, '0 ms'], [500, '500 ms'], [1_500, '1.5 s'], [30_000, '30 s'], [60_000, '1 min'], [90_000, '1:30 min'], [5_400_000, '1.5 h']] as const) assert.equal(formatClock(ms), said);
});

test('unsupported terms are located in the draft', () => {
  assert.deepEqual(unsupportedTerms('no source says: 99999, EUR, 2031-01-01'), ['99999', 'EUR', '2031-01-01']);
  assert.deepEqual(unsupportedTerms('it is too long'), []);
  assert.deepEqual(splitAtTerms('It cost 99999 EUR.', ['EUR', '99999']), ['It cost ', '99999', ' ', 'EUR', '.']);
  assert.deepEqual(splitAtTerms('EURO and EUR', ['EUR', 'EURO']), ['', 'EURO', ' and ', 'EUR', '']);
  assert.deepEqual(splitAtTerms('nothing', ['']), ['nothing']);
});

test('each command of a message is listed once', () => {
  assert.deepEqual(commandsIn('`icecore doctor` shows them, `icecore doctor --fix` sets them aside; `icecore doctor`, not `rm`'), ['icecore doctor', 'icecore doctor --fix']);
});
