// Formats dates, counts and sizes: in one place, so that every view writes them alike.

const countFormat = new Intl.NumberFormat('en-GB');
const compactFormat = new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 });
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const LONG_MONTHS = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November', 'December'];
const WEEKDAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const DAY_MS = 86_400_000;

/** 12,345 */
export function number(value: number): string {
  return countFormat.format(value);
}

/** 12.3k, where space is short. */
export function compact(value: number): string {
  // Lower-case k is a thousand; lower-case m would be a minute or a metre.
  return compactFormat.format(value).replace('K', 'k');
}

/** `3 messages`, `1 message`. */
export function plural(value: number, one: string, more = `${one}s`): string {
  return `${number(value)} ${value === 1 ? one : more}`;
}

/** 14.2 kB */
export function bytes(value: number): string {
  for (const [unit, size] of [['GB', 1e9], ['MB', 1e6], ['kB', 1e3]] as const) {
    if (value >= size) return `${(value / size).toFixed(value >= 100 * size ? 0 : 1)} ${unit}`;
  }
  return `${number(value)} B`;
}

/** 12 % */
export function percent(part: number): string {
  return `${Math.round(part * 100)} %`;
}

/** 1.4 s, 320 ms, 3 min */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  return ms < 3_600_000 ? `${Math.round(ms / 60_000)} min` : `${(ms / 3_600_000).toFixed(1)} h`;
}

interface DateParts {
  year: number;
  month: number;
  day: number;
  time: string;
}

// A time is shown in the offset it was written with: the local day of the user, wherever the browser is.
function parseDate(moment: string): DateParts | undefined {
  const found = /^(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}:\d{2}))?/.exec(moment);
  if (!found) return undefined;
  return { year: Number(found[1]), month: Number(found[2]), day: Number(found[3]), time: found[4] ?? '' };
}

function utcMillis(day: string): number {
  const at = parseDate(day);
  return at ? Date.UTC(at.year, at.month - 1, at.day) : Number.NaN;
}

/** 13 Feb 2026 */
export function day(moment: string): string {
  const at = parseDate(moment);
  return at ? `${at.day} ${MONTHS[at.month - 1] ?? ''} ${at.year}` : moment;
}

/** Friday, 13 February 2026 */
export function longDay(moment: string): string {
  const at = parseDate(moment);
  if (!at) return moment;
  return `${WEEKDAYS[new Date(utcMillis(moment)).getUTCDay()] ?? ''}, ${at.day} ${LONG_MONTHS[at.month - 1] ?? ''} ${at.year}`;
}

/** 09:41 */
export function time(moment: string): string {
  return parseDate(moment)?.time ?? '';
}

/** 13 Feb 2026, 09:41 */
export function moment(text: string): string {
  const at = time(text);
  return at === '' ? day(text) : `${day(text)}, ${at}`;
}

/** Whole days from one day to another. */
export function daysBetween(from: string, to: string): number {
  return Math.round((utcMillis(to) - utcMillis(from)) / DAY_MS);
}

/** The distance of a day from another: today, yesterday, 12 days ago, in 3 days, 4 months ago. */
export function relativeDay(day: string, today: string): string {
  const days = daysBetween(day, today);
  if (!Number.isFinite(days)) return day;
  if (days === 0) return 'today';
  if (days === 1) return 'yesterday';
  if (days === -1) return 'tomorrow';
  const distanceDays = Math.abs(days);
  const distance = distanceDays < 60 ? `${distanceDays} days` : distanceDays < 730 ? `${Math.round(distanceDays / 30.44)} months` : `${Math.round(distanceDays / 365.25)} years`;
  return days > 0 ? `${distance} ago` : `in ${distance}`;
}

/** The day `days` after a day: 2026-02-13. */
export function plusDays(day: string, days: number): string {
  return new Date(utcMillis(day) + days * DAY_MS).toISOString().slice(0, 10);
}

/** A period for display: Week 7 of 2026, February 2026, 13 Feb 2026, session 2. */
export function period(name: string): string {
  const week = /^(\d{4})-W(\d{2})$/.exec(name);
  if (week) return `Week ${Number(week[2])} of ${week[1] ?? ''}`;
  const month = /^(\d{4})-(\d{2})$/.exec(name);
  if (month) return `${LONG_MONTHS[Number(month[2]) - 1] ?? ''} ${month[1] ?? ''}`;
  const session = /^(\d{4}-\d{2}-\d{2})_session_(\d+)$/.exec(name);
  if (session) return `${day(session[1] ?? '')}, session ${Number(session[2])}`;
  return /^\d{4}-\d{2}-\d{2}$/.test(name) ? day(name) : name;
}

/** An identifier as a label: `waiting_on` is `Waiting on`. */
export function label(word: string): string {
  const text = word.replaceAll('_', ' ');
  return text.charAt(0).toUpperCase() + text.slice(1);
}
