// Daily series for plots: fills missing days, decides which gaps a line bridges, and aggregates by month.

/** A line bridges gaps of up to this many days. */
export const MAX_BRIDGED_DAYS = 7;
export const DAY_SECS = 86_400;
/** The least width of a plot, in days: a single day is centred. */
const MIN_AXIS_DAYS = 7;

/** A line bridges `undefined` and breaks at `null`. */
export type Value = number | null | undefined;

function seconds(day: string): number {
  return Date.parse(`${day}T00:00:00Z`) / 1_000;
}

/** The given days, in seconds, with the values of each list. */
export function alignDays(days: readonly string[], lists: readonly (readonly (number | null)[])[]): [number[], ...Value[][]] {
  return [days.map(seconds), ...lists.map((values) => [...values])];
}

/** Every day from the first to the last, in seconds, with a value per day for each list. */
export function fillDays(days: readonly string[], lists: readonly (readonly (number | null)[])[]): [number[], ...Value[][]] {
  const first = seconds(days[0] ?? '');
  const count = Math.round((seconds(days.at(-1) ?? '') - first) / DAY_SECS) + 1;
  const all = Array.from({ length: count }, (_, at) => first + at * DAY_SECS);
  const at = new Map(days.map((one, index) => [seconds(one), index]));
  return [all, ...lists.map((values) => bridgeGaps(all.map((one) => values[at.get(one) ?? -1] ?? null)))];
}

/** Bridges short gaps of a line; longer ones break it. */
export function bridgeGaps(values: readonly (number | null)[]): Value[] {
  const result: Value[] = [...values];
  for (let from = 0; from < values.length; from += 1) {
    if (values[from] !== null) continue;
    let to = from;
    while (to < values.length && values[to] === null) to += 1;
    if (to - from <= MAX_BRIDGED_DAYS) result.fill(undefined, from, to);
    from = to;
  }
  return result;
}

/** The range of the x axis: half a day or month of margin, and at least a week, so that a single day does not fill the plot. */
export function axisRange(days: ArrayLike<number>, step = DAY_SECS): [number, number] {
  const missing = Math.max(0, MIN_AXIS_DAYS - days.length) / 2 + 0.5;
  return [(days[0] ?? 0) - missing * step, (days[days.length - 1] ?? 0) + missing * step];
}

/** Daily figures, one array per column. */
export interface Columns {
  readonly day: readonly string[];
  readonly ratio: readonly (number | null)[];
  readonly bytes_in: readonly number[];
  readonly bytes_out: readonly number[];
  readonly millis: readonly number[];
  readonly tokens_in: readonly number[];
  readonly tokens_out: readonly number[];
  readonly asked: readonly number[];
}

/** Aggregates by month, named by its first day; includes months without data. */
export function byMonth(days: Columns): Columns {
  const monthNumber = (day: string | undefined): number => (day === undefined ? 0 : Number(day.slice(0, 4)) * 12 + Number(day.slice(5, 7)) - 1);
  const [first, last] = [monthNumber(days.day[0]), monthNumber(days.day.at(-1))];
  const months = Array.from({ length: last - first + 1 }, (_, at) => `${String(Math.floor((first + at) / 12)).padStart(4, '0')}-${String((first + at) % 12 + 1).padStart(2, '0')}-01`);
  const added = (values: readonly number[]): number[] => {
    const sums = months.map(() => 0);
    days.day.forEach((day, at) => { sums[monthNumber(day) - first] = (sums[monthNumber(day) - first] ?? 0) + (values[at] ?? 0); });
    return sums;
  };
  const [from, to] = [added(days.bytes_in), added(days.bytes_out)];
  return {
    day: months, ratio: from.map((one, at) => (to[at] ?? 0) === 0 ? null : one / (to[at] ?? 1)), bytes_in: from, bytes_out: to,
    millis: added(days.millis), tokens_in: added(days.tokens_in), tokens_out: added(days.tokens_out), asked: added(days.asked),
  };
}

/** The compression ratio over the seven days around each day. */
export function rollingRatio(from: readonly number[], to: readonly number[]): (number | null)[] {
  const sum = (values: readonly number[], at: number): number => values.slice(Math.max(0, at - 3), at + 4).reduce((all, one) => all + one, 0);
  return from.map((_, at) => sum(to, at) === 0 ? null : sum(from, at) / sum(to, at));
}

/** Formats a duration exactly, for an axis: 90 s is 1:30 min. */
export function formatClock(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${Number((ms / 1_000).toFixed(1))} s`;
  if (ms >= 3_600_000) return `${Number((ms / 3_600_000).toFixed(1))} h`;
  const seconds = Math.round(ms / 1_000) % 60;
  return `${Math.floor(Math.round(ms / 1_000) / 60)}${seconds === 0 ? '' : `:${String(seconds).padStart(2, '0')}`} min`;
}
