// Ten years as `/api/core` returns them: 3,650 days and a million messages, in the shape of the program's answer. Generated here because
// storing a million messages takes longer than all these tests; a test compares the shape with a real answer.

const DAYS = 3_650;
const MESSAGES = 1_000_000;
const PER_DAY = 8;
/** A Monday, so that weeks are aligned. */
const ORIGIN = Date.UTC(2016, 4, 23);
const DAY = 86_400_000;

// Deterministic.
function* random(seed) {
  for (let state = seed; ;) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    yield state / 4_294_967_296;
  }
}

const iso = (at) => new Date(ORIGIN + at * DAY).toISOString().slice(0, 10);

function week(at) {
  const thursday = new Date(ORIGIN + (at * 7 + 3) * DAY);
  const first = Date.UTC(thursday.getUTCFullYear(), 0, 1);
  const number = Math.floor((thursday.getTime() - first) / DAY / 7) + 1;
  return { name: `${thursday.getUTCFullYear()}-W${String(number).padStart(2, '0')}`, month: thursday.toISOString().slice(0, 7), year: String(thursday.getUTCFullYear()) };
}

const empty = (more = []) => Object.fromEntries(['period', 'first', 'days', 'messages', 'bytes', 'pressed', 'state', 'importance', 'version', 'headline', 'body', 'sessions', 'events', ...more].map((name) => [name, []]));

function add(columns, row) {
  for (const [name, column] of Object.entries(columns)) column.push(row[name]);
}

/** The timeline, as the API returns it. */
export function decade() {
  const dice = random(7);
  const roll = () => dice.next().value;
  const names = Array.from({ length: 60 }, (_, at) => `conversation ${at}`);
  const layers = { year: empty(), month: empty(), week: empty(), day: empty(), session: empty(['conversation', 'name', 'from', 'to']) };
  const weights = Array.from({ length: DAYS }, () => 0.2 + roll() ** 3 * 4);
  const whole = weights.reduce((sum, one) => sum + one, 0);
  const days = weights.map((weight) => Math.max(Math.round((weight / whole) * MESSAGES), PER_DAY));
  days[DAYS - 1] += MESSAGES - days.reduce((sum, one) => sum + one, 0);
  const pressed = (at) => (at < DAYS - 400 ? 5 : at < DAYS - 60 ? 4 : at < DAYS - 14 ? 3 : at < DAYS - 2 ? 2 : 0);
  const row = (period, first, many, messages, sessions, more = {}) => ({
    period, first, days: many, messages, bytes: messages * 180, pressed: pressed(first), state: roll() < 0.05 ? 1 : roll() < 0.01 ? 2 : 0, importance: roll() < 0.03 ? 2 : roll() < 0.1 ? 0 : 1, version: 1, headline: 120, body: 1_400, sessions, events: Math.round(roll() * many), ...more,
  });
  days.forEach((messages, at) => {
    add(layers.day, row(iso(at), at, 1, messages, PER_DAY));
    for (let one = 0; one < PER_DAY; one += 1) {
      const share = Math.floor(messages / PER_DAY) + (one < messages % PER_DAY ? 1 : 0);
      const from = 480 + one * 90 + Math.floor(roll() * 30);
      add(layers.session, row(`${iso(at)}_session_${String(one + 1).padStart(2, '0')}`, at, 1, share, 1, { conversation: (at + one) % 60, name: (at + one * 7) % 60, from, to: from + 45 }));
    }
  });
  const spans = { week: new Map(), month: new Map(), year: new Map() };
  for (let at = 0; at * 7 < DAYS; at += 1) {
    const named = week(at);
    for (const [tier, name] of [['week', named.name], ['month', named.month], ['year', named.year]]) {
      const span = spans[tier].get(name) ?? { first: at * 7, last: at * 7 };
      span.last = Math.min(at * 7 + 6, DAYS - 1);
      spans[tier].set(name, span);
    }
  }
  for (const [tier, all] of Object.entries(spans)) {
    for (const [name, { first, last }] of all) add(layers[tier], row(name, first, last - first + 1, days.slice(first, last + 1).reduce((sum, one) => sum + one, 0), (last - first + 1) * PER_DAY));
  }
  return { origin: iso(0), last: iso(DAYS - 1), names, layers };
}

const WORDS = 'ice snow core drill depth layer winter station wind sledge camp dust ash bubble density isotope summer melt water season night light'.split(' ');
const sentence = (seed, many) => Array.from({ length: many }, (_, at) => WORDS[(seed * 7 + at * 13) % WORDS.length]).join(' ');

/** The headlines of a tier. */
export function headlines(timeline, tier) {
  return { headlines: timeline.layers[tier].period.map((period, at) => ({ period, headline: sentence(at, 18) })) };
}

/** The messages of a session. */
export function messages(date) {
  return { messages: Array.from({ length: 40 }, (_, at) => ({ id: `m${at}`, conversation: 'conversation 1', session: 'conversation 2', role: at % 2 === 0 ? 'user' : 'assistant', name: null, kind: 'message', text: sentence(at, 60), ts: `${date}T09:${String(at).padStart(2, '0')}:00+02:00`, bytes: 400, words: 60, cut: false, has_parts: false, origin: 'user', title: null, trust: 'high' })), total: 40, offset: 0 };
}
