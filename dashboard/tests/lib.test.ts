// Diffs and formats.
import { strict as assert } from 'node:assert';
import { test } from 'node:test';
import { diff, diffLines, words } from '../src/lib/diff.ts';
import * as format from '../src/lib/format.ts';

test('a diff turns the old text into the new one', () => {
  for (const [old, now] of [['', ''], ['abc', 'abc'], ['abc', ''], ['', 'abc'], ['abcabba', 'cbabac'], ['kitten', 'sitting'], ['aaaa', 'aaa'], ['xaby', 'zabw']] as const) {
    const changes = diff([...old], [...now]);
    const kept = (kind: string): string => changes.filter((change) => change.kind !== kind).map((change) => change.value).join('');
    assert.equal(kept('added'), old);
    assert.equal(kept('removed'), now);
  }
  const long = Array.from({ length: 5_000 }, (_, at) => `a${at}`);
  assert.equal(diff(long, long.map((word) => `${word}b`)).length, 10_000);
});

test('a changed line is compared word by word', () => {
  const told = diffLines('a\nthe budget is 500\nz', 'a\nthe budget is 600\nz');
  assert.deepEqual(told.map((line) => line.kind), ['same', 'removed', 'added', 'same']);
  assert.deepEqual(told[2]?.parts.filter((part) => part.kind === 'added').map((part) => part.value), ['600']);
  assert.deepEqual(told.map((line) => [line.old, line.now]), [[1, 1], [2, undefined], [undefined, 2], [3, 3]]);
  assert.equal(words('Grün, 3 %!').join(''), 'Grün, 3 %!');
});

test('dates, counts and periods have fixed formats', () => {
  assert.equal(format.day('2026-02-13T23:30:00+14:00'), '13 Feb 2026');
  assert.equal(format.longDay('2026-02-13'), 'Friday, 13 February 2026');
  assert.equal(format.moment('2026-02-13T09:41:07+01:00[Europe/Berlin]'), '13 Feb 2026, 09:41');
  assert.equal(format.period('2026-W07'), 'Week 7 of 2026');
  assert.equal(format.period('2026-02'), 'February 2026');
  assert.equal(format.period('2026-02-13_session_02'), '13 Feb 2026, session 2');
  assert.equal(format.period('2026'), '2026');
  assert.deepEqual(['2026-02-13', '2026-02-12', '2026-02-14', '2026-01-01', '2025-02-13', '2020-01-01'].map((day) => format.relativeDay(day, '2026-02-13')),
    ['today', 'yesterday', 'tomorrow', '43 days ago', '12 months ago', '6 years ago']);
  assert.equal(format.plusDays('2026-02-28', 1), '2026-03-01');
  assert.deepEqual([1, 2, 1_234].map((count) => format.plural(count, 'message')), ['1 message', '2 messages', '1,234 messages']);
  assert.deepEqual([999, 14_200, 3e6].map(format.bytes), ['999 B', '14.2 kB', '3.0 MB']);
  assert.deepEqual([320, 1_400, 180_000].map(format.duration), ['320 ms', '1.4 s', '3 min']);
});
