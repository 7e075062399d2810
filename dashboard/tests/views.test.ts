// The logic of views: filters in the address, markers of a page, edges of an event graph.
import { strict as assert } from 'node:assert';
import { test } from 'node:test';
import { allEdges } from '../src/views/ledger/edges.ts';
import type { EventGraph } from '../src/views/ledger/edges.ts';
import { countExtraFilters, parseFilters as filters, filtersToQuery } from '../src/views/ledger/filters.tsx';
import { extractMarkers as marks, slug } from '../src/views/knowledge/markers.ts';

test('filters survive the address, and invalid values are ignored', () => {
  const usual = filters(new URLSearchParams());
  assert.equal(usual.status, 'active');
  assert.equal(usual.page, 1);
  assert.equal(countExtraFilters(usual), 0);
  assert.deepEqual(Object.entries(filtersToQuery(usual)).filter(([, value]) => value !== '' && value !== false && !(Array.isArray(value) && value.length === 0)), []);
  const set = filters(new URLSearchParams('type=fact&type=nonsense&type=decision&priority=P9&tag=a&tag=b&status=all&page=-3&since=2026-02-01&acts=true'));
  assert.deepEqual(set.type, ['fact', 'decision']);
  assert.deepEqual(set.priority, []);
  assert.equal(set.status, 'active');
  assert.equal(set.page, 1);
  assert.equal(countExtraFilters(set), 6);
  assert.deepEqual(filters(new URLSearchParams('page=3&status=any')).page, 3);
});

test('markers are removed from list items and single lines, and line numbers do not change', () => {
  const page = '# Shop\n\n## Summary\nIt is blue. [EVT-20260202-001] [EVT-20260203-002]\n\n## Key Facts\n- Never on Fridays [source: live] [verified: 2026-02-02] [EVT-20260202-001]\n- A person wrote this\n\ntwo lines [EVT-20260101-001]\nof one paragraph\n';
  const { text, markers: found } = marks(page);
  assert.equal(text.split('\n').length, page.split('\n').length);
  assert.equal(text.split('\n')[6], '- Never on Fridays');
  assert.deepEqual(found.get(7), { events: ['EVT-20260202-001'], source: 'live', verified: '2026-02-02' });
  assert.deepEqual(found.get(4)?.events, ['EVT-20260202-001', 'EVT-20260203-002']);
  assert.equal(text.split('\n')[9], 'two lines [EVT-20260101-001]');
  assert.deepEqual([...found.keys()], [4, 7]);
});

test('a title becomes a file name', () => {
  assert.deepEqual(['Überseering Büro', '  A & B: 3 ', '…'].map(slug), ['uberseering-buro', 'a-b-3', '']);
});

test('edges of archived events are added once', () => {
  const told = {
    id: 'EVT-1', left_out: 0,
    nodes: [{ id: 'EVT-1' }, { id: 'EVT-2', act: 'close', related: ['EVT-1', 'EVT-9'] }, { id: 'EVT-3', act: 'confirm', related: ['EVT-1'] }],
    edges: [{ from: 'EVT-3', to: 'EVT-1', kind: 'confirms' }],
  } as unknown as EventGraph;
  assert.deepEqual(allEdges(told), [{ from: 'EVT-3', to: 'EVT-1', kind: 'confirms' }, { from: 'EVT-2', to: 'EVT-1', kind: 'closes' }]);
});
