// Days as plots need them: every day in between, what is joined and what is a gap, and what a stretch of days came to.

/** Over so many days without a figure a line goes on. */
export const SPANNED_DAYS = 7;
export const DAY_SECS = 86_400;
/** A lone day stands in the middle of so many. */
const LEAST_DAYS = 7;

/** `undefined` is passed over by a line, `null` breaks it. */
export type Value = number | null | undefined;

function seconds(day: string): number {
  return Date.parse(`${day}T00:00:00Z`) / 1_000;
}

/** Every day from the first to the last, in seconds; and each list of values with one for each of them. */
export function spread(days: readonly string[], lists: readonly (readonly (number | null)[])[]): [number[], ...Value[][]] {
  const first = seconds(days[0] ?? '');
  const count = Math.round((seconds(days.at(-1) ?? '') - first) / DAY_SECS) + 1;
  const all = Array.from({ length: count }, (_, at) => first + at * DAY_SECS);
  const at = new Map(days.map((one, index) => [seconds(one), index]));
  return [all, ...lists.map((values) => joined(all.map((one) => values[at.get(one) ?? -1] ?? null)))];
}

/** A line goes on over a few days without a figure, and breaks where there was none for longer. */
export function joined(values: readonly (number | null)[]): Value[] {
  const told: Value[] = [...values];
  for (let from = 0; from < values.length; from += 1) {
    if (values[from] !== null) continue;
    let to = from;
    while (to < values.length && values[to] === null) to += 1;
    if (to - from <= SPANNED_DAYS) told.fill(undefined, from, to);
    from = to;
  }
  return told;
}

/** From the first to the last day, with half a day at each side; a lone day is not as wide as the plot. */
export function around(days: ArrayLike<number>): [number, number] {
  const missing = Math.max(0, LEAST_DAYS - days.length) / 2 + 0.5;
  return [(days[0] ?? 0) - missing * DAY_SECS, (days[days.length - 1] ?? 0) + missing * DAY_SECS];
}

/** How much shorter the days around each day were together. */
export function smooth(from: readonly number[], to: readonly number[]): (number | null)[] {
  const sum = (values: readonly number[], at: number): number => values.slice(Math.max(0, at - 3), at + 4).reduce((all, one) => all + one, 0);
  return from.map((_, at) => sum(to, at) === 0 ? null : sum(from, at) / sum(to, at));
}

/** 90 s is 1:30 min: an axis does not round. */
export function clock(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${Number((ms / 1_000).toFixed(1))} s`;
  if (ms >= 3_600_000) return `${Number((ms / 3_600_000).toFixed(1))} h`;
  const seconds = Math.round(ms / 1_000) % 60;
  return `${Math.floor(Math.round(ms / 1_000) / 60)}${seconds === 0 ? '' : `:${String(seconds).padStart(2, '0')}`} min`;
}
