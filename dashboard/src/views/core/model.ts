// The geometry of the core: its layers, their thickness and their position. Pure, so that it can be tested without a picture.
//
// Depth is counted from the newest day downwards, in units of an average day's thickness. Months and years consist of whole weeks, so
// layers form a tree: year, month, week, day, session.
import { plusDays } from '../../lib/format.ts';

export const TIERS = ['year', 'month', 'week', 'day', 'session'] as const;
export type Tier = (typeof TIERS)[number];

/** The periods of a tier, one array per property, as the API returns them. */
export interface Columns {
  readonly period: readonly string[];
  readonly first: readonly number[];
  readonly days: readonly number[];
  readonly messages: readonly number[];
  readonly bytes: readonly number[];
  readonly pressed: readonly number[];
  readonly state: readonly number[];
  readonly importance: readonly number[];
  readonly version: readonly number[];
  readonly sessions: readonly number[];
  readonly events: readonly number[];
}

export interface SessionColumns extends Columns {
  readonly conversation: readonly number[];
  readonly name: readonly number[];
  readonly from: readonly number[];
  readonly to: readonly number[];
}

/** The timeline as the API returns it. */
export interface Timeline {
  readonly origin?: string | null;
  readonly last?: string | null;
  readonly names: readonly string[];
  readonly layers: {
    readonly year?: Columns;
    readonly month?: Columns;
    readonly week?: Columns;
    readonly day?: Columns;
    readonly session?: SessionColumns;
  };
}

export const PROVISIONAL = 1;
export const FLAGGED = 2;
export const BY_HAND = 4;
export const FORGOTTEN = 8;

/** A layer: a period of a tier, and its position. */
export interface Layer {
  tier: Tier;
  /** Its index in its tier. */
  at: number;
  /** Its name; for a session without a summary, a generated one: `2026-02-13~2`. */
  id: string;
  /** Whether the API knows the name. */
  named: boolean;
  /** Its first and last day, counted from the origin. */
  first: number;
  last: number;
  /** The depth of its upper (newer) and lower (older) end. */
  top: number;
  bottom: number;
  messages: number;
  bytes: number;
  sessions: number;
  events: number;
  /** The highest tier that it is summarized into: 0 none, 1 sessions, 2 days, 3 weeks, 4 months, 5 years. */
  pressed: number;
  state: number;
  importance: number;
  version: number;
  conversation: string | undefined;
  session: string | undefined;
  /** Start and end of a session, in minutes of the day. */
  from: number;
  to: number;
}

/** The thickness of a day without messages: the passing of time stays visible. */
const EMPTY_DAY_THICKNESS = 0.12;

/** The thickness of a day with this many bytes, where an average day has `usual`. The square root keeps one busy day from hiding a year. */
export function thickness(bytes: number, usual: number): number {
  return EMPTY_DAY_THICKNESS + (1 - EMPTY_DAY_THICKNESS) * Math.sqrt(bytes / Math.max(usual, 1));
}

export class Core {
  readonly origin: string;
  readonly days: number;
  readonly total: number;
  readonly tiers: Readonly<Record<Tier, readonly Layer[]>>;
  /** Cumulated thickness by day: the depth of a day's lower end is `total - cumulated[day]`. */
  readonly cumulated: Float64Array;
  /** The index of each day's layer; -1 for days without data. */
  readonly ofDay: Int32Array;
  readonly pressed: Uint8Array;
  readonly importance: Uint8Array;
  readonly state: Uint8Array;
  readonly bytes: Float64Array;
  readonly usual: number;
  readonly messages: number;
  readonly #byId = new Map<string, Layer>();

  constructor(timeline: Timeline) {
    this.origin = timeline.origin ?? '1970-01-01';
    const day = timeline.layers.day;
    const reach = day ? day.first.reduce((most, first) => Math.max(most, first + 1), 0) : 0;
    this.days = reach;
    this.pressed = new Uint8Array(reach);
    this.importance = new Uint8Array(reach).fill(1);
    this.state = new Uint8Array(reach);
    this.bytes = new Float64Array(reach);
    this.ofDay = new Int32Array(reach).fill(-1);
    let messages = 0;
    day?.first.forEach((first, at) => {
      if (first < 0) return;
      this.ofDay[first] = at;
      this.pressed[first] = day.pressed[at] ?? 0;
      this.importance[first] = day.importance[at] ?? 1;
      this.state[first] = day.state[at] ?? 0;
      this.bytes[first] = day.bytes[at] ?? 0;
      messages += day.messages[at] ?? 0;
    });
    this.messages = messages;
    const nonEmpty = this.bytes.filter((one) => one > 0);
    this.usual = nonEmpty.length === 0 ? 1 : nonEmpty.reduce((sum, one) => sum + one, 0) / nonEmpty.length;
    // Days before the first message have no thickness: the origin may be weeks earlier.
    const begun = this.ofDay.findIndex((at) => at >= 0);
    this.cumulated = new Float64Array(reach + 1);
    for (let at = 0; at < reach; at += 1) this.cumulated[at + 1] = (this.cumulated[at] ?? 0) + (at < begun ? 0 : thickness(this.bytes[at] ?? 0, this.usual));
    this.total = this.cumulated[reach] ?? 0;
    const silent = new Map<string, number>();
    const layers = (tier: Tier, columns: Columns | undefined): Layer[] => (columns?.period ?? []).map((period, at) => this.#layer(tier, columns as Columns, period, at));
    const session = timeline.layers.session;
    const tiers = {
      year: layers('year', timeline.layers.year),
      month: layers('month', timeline.layers.month),
      week: layers('week', timeline.layers.week),
      day: layers('day', day),
      session: (session?.period ?? []).map((period, at) => {
        const layer = this.#layer('session', session as SessionColumns, period, at);
        const name = session?.name[at] ?? -1;
        layer.conversation = timeline.names[session?.conversation[at] ?? -1];
        layer.session = name < 0 ? undefined : timeline.names[name];
        layer.from = session?.from[at] ?? 0;
        layer.to = session?.to[at] ?? 0;
        const date = this.date(layer.first);
        const number = (silent.get(date) ?? 0) + 1;
        silent.set(date, number);
        if (period === '') {
          layer.id = `${date}~${number}`;
          layer.named = false;
        }
        return layer;
      }),
    };
    for (const tier of TIERS) tiers[tier].sort((one, other) => one.first - other.first || one.from - other.from);
    this.tiers = tiers;
    this.#placeSessions();
    for (const tier of TIERS) for (const layer of tiers[tier]) this.#byId.set(layer.id, layer);
  }

  #layer(tier: Tier, columns: Columns, period: string, at: number): Layer {
    const first = Math.max(columns.first[at] ?? 0, 0);
    const last = Math.min((columns.first[at] ?? 0) + (columns.days[at] ?? 1) - 1, this.days - 1);
    return {
      tier, at, id: period, named: true, first, last, top: this.total - (this.cumulated[last + 1] ?? 0), bottom: this.total - (this.cumulated[first] ?? 0),
      messages: columns.messages[at] ?? 0, bytes: columns.bytes[at] ?? 0, sessions: columns.sessions[at] ?? 0, events: columns.events[at] ?? 0,
      pressed: columns.pressed[at] ?? 0, state: columns.state[at] ?? 0, importance: columns.importance[at] ?? 1, version: columns.version[at] ?? 0,
      conversation: undefined, session: undefined, from: 0, to: 0,
    };
  }

  // Divides a day among its sessions by the root of their size, the last one on top.
  #placeSessions(): void {
    const sessions = this.tiers.session;
    for (let at = 0; at < sessions.length;) {
      const day = sessions[at]?.first ?? 0;
      let end = at;
      let whole = 0;
      while (end < sessions.length && sessions[end]?.first === day) {
        whole += Math.sqrt(Math.max(sessions[end]?.bytes ?? 0, 1));
        end += 1;
      }
      let lower = this.total - (this.cumulated[day] ?? 0);
      const height = (this.cumulated[day + 1] ?? 0) - (this.cumulated[day] ?? 0);
      for (const session of sessions.slice(at, end)) {
        session.bottom = lower;
        lower -= (height * Math.sqrt(Math.max(session.bytes, 1))) / whole;
        session.top = lower;
      }
      at = end;
    }
  }

  /** The date of a day: 2026-02-13. */
  date(day: number): string {
    return plusDays(this.origin, day);
  }

  /** The day at a depth. */
  dayAt(depth: number): number {
    const wanted = this.total - depth;
    let low = 0;
    let high = this.days - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.cumulated[middle + 1] ?? 0) <= wanted) low = middle + 1;
      else high = middle;
    }
    return Math.max(low, 0);
  }

  /** The layer with this name. */
  find(id: string): Layer | undefined {
    return this.#byId.get(id);
  }

  /** The index of the first layer of a tier that ends on this day or later. */
  from(tier: Tier, day: number): number {
    const layers = this.tiers[tier];
    let low = 0;
    let high = layers.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((layers[middle]?.last ?? 0) < day) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The layers of a tier that touch these days, the oldest first. */
  within(tier: Tier, first: number, last: number): Layer[] {
    const layers = this.tiers[tier];
    const found: Layer[] = [];
    for (let at = this.from(tier, first); at < layers.length; at += 1) {
      const layer = layers[at];
      if (!layer || layer.first > last) break;
      found.push(layer);
    }
    return found;
  }

  /** The layers within a layer, the newest first; without a layer, those of the highest tier with more than one. */
  children(layer: Layer | undefined): readonly Layer[] {
    if (!layer) {
      const top = TIERS.find((tier) => this.tiers[tier].length > 1) ?? 'day';
      return this.tiers[top].toReversed();
    }
    const below = TIERS[TIERS.indexOf(layer.tier) + 1];
    return below ? this.within(below, layer.first, layer.last).filter((one) => one.bottom <= layer.bottom + 1e-9 && one.top >= layer.top - 1e-9).toReversed() : [];
  }

  /** The layers that contain a layer, the widest first. */
  parents(layer: Layer): Layer[] {
    const above = TIERS.slice(0, TIERS.indexOf(layer.tier));
    return above.flatMap((tier) => this.within(tier, layer.first, layer.first).slice(0, 1));
  }

  /** The layer of a tier at a depth. */
  at(tier: Tier, depth: number): Layer | undefined {
    const day = this.dayAt(depth);
    return this.within(tier, day, day).find((layer) => layer.top <= depth && depth <= layer.bottom);
  }
}

/** The visible part: pixels per unit of depth, and the depth at the top of the picture. */
export interface Camera {
  scale: number;
  top: number;
}

/** The margin above the newest and below the oldest layer, in pixels. */
export const MARGIN = 46;
/** The highest zoom, in pixels per average day: every message is readable. */
const MAX_SCALE = 60_000;

/** The camera that shows everything, in a picture of this height. */
export function fitAll(core: Core, height: number): Camera {
  const scale = Math.max(height - 2 * MARGIN, 50) / Math.max(core.total, 1e-6);
  return { scale, top: -MARGIN / scale };
}

/** Limits a camera: never further out than everything, never past either end. */
export function clampCamera(camera: Camera, core: Core, height: number): Camera {
  const all = fitAll(core, height);
  const scale = Math.min(Math.max(camera.scale, all.scale), Math.max(MAX_SCALE, all.scale));
  const margin = MARGIN / scale;
  const lowest = core.total + margin - height / scale;
  return { scale, top: lowest < -margin ? all.top : Math.min(Math.max(camera.top, -margin), lowest) };
}

/** Zooms in or out around `y`. */
export function zoomCamera(camera: Camera, factor: number, y: number, core: Core, height: number): Camera {
  const all = fitAll(core, height);
  const scale = Math.min(Math.max(camera.scale * factor, all.scale), Math.max(MAX_SCALE, all.scale));
  const depth = camera.top + y / camera.scale;
  return clampCamera({ scale, top: depth - y / scale }, core, height);
}

/** The camera in which a layer fills most of the picture. */
export function fitLayer(layer: { top: number; bottom: number }, core: Core, height: number): Camera {
  const room = Math.max(layer.bottom - layer.top, 1e-9);
  const scale = (height * 0.82) / room;
  const camera = clampCamera({ scale, top: 0 }, core, height);
  const middle = (layer.top + layer.bottom) / 2;
  return clampCamera({ scale: camera.scale, top: middle - height / 2 / camera.scale }, core, height);
}

/** Interpolates between two cameras: the zoom is geometric, and the centre moves with it. */
export function interpolateCamera(from: Camera, to: Camera, part: number, height: number): Camera {
  const scale = from.scale * (to.scale / from.scale) ** part;
  const [fromMiddle, toMiddle] = [from.top + height / 2 / from.scale, to.top + height / 2 / to.scale];
  // Zooming in reaches the target position early, zooming out leaves it late: the eye can follow.
  const along = Math.abs(to.scale / from.scale - 1) < 1e-3 ? part : (1 / from.scale - 1 / scale) / (1 / from.scale - 1 / to.scale);
  return { scale, top: fromMiddle + (toMiddle - fromMiddle) * along - height / 2 / scale };
}
