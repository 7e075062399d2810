// The geometry of the core: layers are nested, nothing overlaps, and the camera never leaves the layers.
import { strict as assert } from 'node:assert';
import { test } from 'node:test';
import { Core, TIERS, interpolateCamera, clampCamera, fitLayer, thickness, fitAll, zoomCamera } from '../src/views/core/model.ts';
import type { Columns, SessionColumns, Timeline } from '../src/views/core/model.ts';

const HEIGHT = 800;

function columns(rows: readonly (readonly [period: string, first: number, days: number, bytes: number])[]): Columns {
  const all = (value: number): number[] => rows.map(() => value);
  return {
    period: rows.map(([period]) => period), first: rows.map(([, first]) => first), days: rows.map(([, , days]) => days), bytes: rows.map(([, , , bytes]) => bytes),
    messages: rows.map(([, , , bytes]) => Math.ceil(bytes / 100)), pressed: all(2), state: all(0), importance: all(1), version: all(1), sessions: all(1), events: all(0),
  };
}

// Two weeks from Monday, 2 February 2026; the second Tuesday has no messages, one Wednesday has two sessions, one of them without a summary.
function told(): Timeline {
  const days = [0, 1, 2, 3, 4, 7, 9, 10].map((day) => [`2026-02-${String(day + 2).padStart(2, '0')}`, day, 1, 1_000 + day * 100] as const);
  const session = columns([['2026-02-04_session_01', 2, 1, 800], ['', 2, 1, 400], ['2026-02-09_session_01', 7, 1, 1_700]]);
  return {
    origin: '2026-02-02', last: '2026-02-12', names: ['trip', 'morning'],
    layers: {
      year: columns([['2026', -28, 364, 9_000]]), month: columns([['2026-02', 0, 28, 9_000]]),
      week: columns([['2026-W06', 0, 7, 5_000], ['2026-W07', 7, 7, 4_000]]), day: columns(days),
      session: { ...session, conversation: [0, 0, 0], name: [1, -1, -1], from: [540, 900, 600], to: [600, 930, 660] } satisfies SessionColumns,
    },
  };
}

test('layers are nested and divide the depth among them', () => {
  const core = new Core(told());
  assert.equal(core.days, 11);
  for (const tier of ['year', 'month'] as const) assert.deepEqual(core.tiers[tier].map((layer) => [layer.top, layer.bottom].map((depth) => depth.toFixed(6))), [['0.000000', core.total.toFixed(6)]]);
  for (const tier of TIERS) {
    for (const layer of core.tiers[tier]) {
      assert.ok(layer.bottom > layer.top, layer.id);
      for (const child of core.children(layer)) assert.ok(child.top >= layer.top - 1e-9 && child.bottom <= layer.bottom + 1e-9, `${child.id} in ${layer.id}`);
    }
    const [...sorted] = core.tiers[tier].toSorted((one, other) => one.top - other.top);
    sorted.slice(1).forEach((layer, at) => assert.ok(layer.top >= (sorted[at]?.bottom ?? 0) - 1e-9, layer.id));
  }
  assert.deepEqual(core.children(core.find('2026-W06')).map((layer) => layer.id), ['2026-02-06', '2026-02-05', '2026-02-04', '2026-02-03', '2026-02-02']);
  assert.deepEqual(core.children(core.find('2026-02-04')).map((layer) => [layer.id, layer.named]), [['2026-02-04~2', false], ['2026-02-04_session_01', true]]);
  const [session] = core.tiers.session;
  assert.ok(session);
  assert.deepEqual(core.parents(session).map((layer) => layer.id), ['2026', '2026-02', '2026-W06', '2026-02-04']);
  assert.deepEqual(core.children(undefined).map((layer) => layer.id), ['2026-W07', '2026-W06']);
});

test('more text makes a layer thicker, and days without messages stay visible', () => {
  const core = new Core(told());
  const thick = (id: string): number => (core.find(id)?.bottom ?? 0) - (core.find(id)?.top ?? 0);
  assert.ok(thick('2026-02-11') > thick('2026-02-02'));
  assert.ok(thickness(0, 1_000) > 0 && thickness(0, 1_000) < 0.2 && thickness(4_000, 1_000) > thickness(1_000, 1_000));
  assert.equal(core.find('2026-02-10'), undefined);
  // Days without messages lie between the days around them.
  assert.ok((core.find('2026-02-09')?.top ?? 0) > (core.find('2026-02-11')?.bottom ?? 0));
});

test('every depth belongs to a day, and the day contains it', () => {
  const core = new Core(told());
  for (let part = 0; part <= 1; part += 0.01) {
    const depth = core.total * part;
    const day = core.dayAt(depth);
    const [top, bottom] = [core.total - (core.cumulated[day + 1] ?? 0), core.total - (core.cumulated[day] ?? 0)];
    assert.ok(top - 1e-9 <= depth && depth <= bottom + 1e-9, `${depth}`);
  }
  assert.equal(core.date(core.dayAt(0)), '2026-02-12');
  assert.equal(core.date(core.dayAt(core.total)), '2026-02-02');
  assert.equal(core.at('day', 0.01)?.id, '2026-02-12');
});

test('the camera never leaves the layers', () => {
  const core = new Core(told());
  const all = fitAll(core, HEIGHT);
  for (const camera of [{ scale: 0, top: -1e9 }, { scale: 1e12, top: 1e9 }, { scale: all.scale * 3, top: -50 }, all]) {
    const held = clampCamera(camera, core, HEIGHT);
    assert.ok(held.scale >= all.scale - 1e-9);
    assert.ok(held.top < core.total && held.top + HEIGHT / held.scale > 0);
  }
  // The depth at the pointer does not move.
  const near = zoomCamera(all, 5, 300, core, HEIGHT);
  assert.ok(Math.abs(near.top + 300 / near.scale - (all.top + 300 / all.scale)) < 1e-9);
  const day = core.find('2026-02-04');
  assert.ok(day);
  const there = fitLayer(day, core, HEIGHT);
  assert.ok((day.top - there.top) * there.scale >= 0 && (day.bottom - there.top) * there.scale <= HEIGHT);
  for (const [part, end] of [[0, all], [1, there]] as const) {
    const reached = interpolateCamera(all, there, part, HEIGHT);
    assert.ok(Math.abs(reached.scale - end.scale) < 1e-6 && Math.abs(reached.top - end.top) < 1e-6);
  }
});

test('an empty timeline is a core without layers', () => {
  const core = new Core({ origin: null, last: null, names: [], layers: {} });
  assert.deepEqual([core.days, core.total, core.children(undefined).length, core.find('2026')], [0, 0, 0, undefined]);
  assert.ok(Number.isFinite(fitAll(core, HEIGHT).scale));
});
