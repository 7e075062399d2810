// Usage of the summarizer by day: compression, time, tokens, cost; and today's tokens against the daily limit.
import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { Reply } from '../../lib/api.ts';
import { useGet } from '../../lib/api.ts';
import { bytes, compact, day, daysBetween, duration, label, plural, number, percent, plusDays } from '../../lib/format.ts';
import { useLive } from '../../lib/live.ts';
import { href } from '../../lib/route.ts';
import { Bar } from '../../ui/bar.tsx';
import { Select, EmptyState, Section, RequestView, Table, TextField } from '../../ui/components.tsx';
import { byMonth, formatClock, rollingRatio } from './days.ts';
import { MAX_POINTS, Plot } from './plot.tsx';
import type { Series } from './plot.tsx';

type Days = Reply<'/api/runs/days'>;
type RunsReply = Reply<'/api/runs'>;

/** The price of a model as the user entered it: icecore knows no prices. Stored in this browser. */
interface Price {
  sent: string;
  back: string;
  currency: string;
}

const STORAGE_KEY = 'icecore.price';
const MILLION = 1_000_000;
/** Beyond this many days the plots are by month. */
const MAX_DAILY_DAYS = 400;
const RANGES = [['30', '30 days'], ['90', '90 days'], ['365', 'a year'], ['all', 'everything']] as const;
export type Range = (typeof RANGES)[number][0];

export function parseRange(text: string | null): Range {
  return RANGES.find(([one]) => one === text)?.[0] ?? '90';
}

function storedPrice(): Price {
  try {
    const kept = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? '{}') as Partial<Price>;
    return { sent: String(kept.sent ?? ''), back: String(kept.back ?? ''), currency: String(kept.currency ?? 'USD') };
  } catch {
    return { sent: '', back: '', currency: 'USD' };
  }
}

function cost(price: Price, sent: number, received: number): number | undefined {
  const each = [Number(price.sent), Number(price.back)] as const;
  if (price.sent === '' && price.back === '' || each.some((one) => !Number.isFinite(one) || one < 0)) return undefined;
  return (sent * each[0] + received * each[1]) / MILLION;
}

function money(value: number, currency: string): string {
  return `${value.toFixed(value !== 0 && value < 0.1 ? 4 : 2)} ${currency}`;
}

function sum(values: readonly number[]): number {
  return values.reduce((all, one) => all + one, 0);
}

function formatRatio(ratio: number): string {
  return `${ratio.toFixed(1)}×`;
}

const TIME_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000];
const WHOLE_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];

function Figure({ value, of }: { value: string; of: string }): JSX.Element {
  return <div class="figure"><p class="value">{value}</p><p class="of">{of}</p></div>;
}

/** Today's tokens against the daily limit. */
function TokenBudget({ runs, price }: { runs: RunsReply; price: Price }): JSX.Element {
  const { spent_today: spent, ceiling } = runs;
  const used = spent.tokens_in + spent.tokens_out;
  const todayCost = cost(price, spent.tokens_in, spent.tokens_out);
  const near = used + spent.reserved > ceiling * 0.9;
  return (
    <Section title="Token budget today" aside={percent(ceiling === 0 ? 0 : used / ceiling)}>
      <div class="spend">
        <p>{number(used)} of {plural(ceiling, 'token')}{todayCost !== undefined && ` (${money(todayCost, price.currency)})`}</p>
        <Bar part={used} whole={ceiling} warm={near} />
        <p class="dim small">
          {spent.asked === 0 ? 'No model calls today.' : `${plural(spent.asked, 'model call')}: ${number(spent.tokens_in)} tokens sent, ${number(spent.tokens_out)} received.`}
          {spent.reserved > 0 && ` ${number(spent.reserved)} are reserved for running calls.`}
        </p>
        {spent.jobs.length > 0 && <ul class="spendjobs">{spent.jobs.map(([job, tokens]) => <li key={job}><span>{label(String(job))}</span><span class="figures">{number(Number(tokens))}</span></li>)}</ul>}
        {near && <p class="warm">Work beyond the limit is deferred until tomorrow. Raise <code>tokens_per_day</code> under <code>[spend]</code> in your config.toml, then restart <code>icecore serve</code>.</p>}
      </div>
    </Section>
  );
}

function Prices({ price, onPrice }: { price: Price; onPrice: (price: Price) => void }): JSX.Element {
  return (
    <details class="prices">
      <summary>{cost(price, 1, 1) === undefined ? 'Enter the price of a million tokens to see the cost' : 'Price of a million tokens'}</summary>
      <div class="pricefields">
        <TextField label="Sent" type="number" value={price.sent} placeholder="0.40" onInput={(sent) => onPrice({ ...price, sent })} />
        <TextField label="Received" type="number" value={price.back} placeholder="1.60" onInput={(received) => onPrice({ ...price, back: received })} />
        <TextField label="Currency" value={price.currency} onInput={(currency) => onPrice({ ...price, currency: currency.slice(0, 8) })} />
      </div>
      <p class="dim small">icecore knows no prices. Your entry stays in this browser.</p>
    </details>
  );
}

interface Row {
  day: string;
  runs: number;
  refused: number;
  ratio: number | null;
  from: number;
  to: number;
  millis: number;
  sent: number;
  received: number;
  asked: number;
}

function rows(days: Days): Row[] {
  return days.day.map((one, at) => ({
    day: one, runs: days.runs[at] ?? 0, refused: days.refused[at] ?? 0, ratio: days.ratio[at] ?? null, from: days.bytes_in[at] ?? 0, to: days.bytes_out[at] ?? 0,
    millis: days.millis[at] ?? 0, sent: days.tokens_in[at] ?? 0, received: days.tokens_out[at] ?? 0, asked: days.asked[at] ?? 0,
  })).reverse();
}

function Plots({ days: each, price, onPrice }: { days: Days; price: Price; onPrice: (price: Price) => void }): JSX.Element {
  // Years of daily bars are a block of colour; months are readable.
  const unit = daysBetween(each.day[0] ?? '', each.day.at(-1) ?? '') > MAX_DAILY_DAYS ? 'month' as const : 'day' as const;
  const days = useMemo(() => unit === 'month' ? byMonth(each) : each, [each, unit]);
  const ratio = useMemo((): Series[] => unit === 'month' || days.day.length <= MAX_POINTS
    ? [{ label: 'compression', values: days.ratio, colour: '--glacier', kind: 'line' }]
    // A line of so many days is unreadable; its seven-day average is not.
    : [{ label: 'that day', values: days.ratio, colour: '--ice-week', kind: 'faint' }, { label: 'over seven days', values: rollingRatio(days.bytes_in, days.bytes_out), colour: '--glacier', kind: 'line' }], [days]);
  const time = useMemo((): Series[] => [{ label: 'time', values: days.millis, colour: '--glacier', kind: 'bars' }], [days]);
  const tokens = useMemo((): Series[] => [
    { label: 'sent and received', values: days.day.map((_, at) => (days.tokens_in[at] ?? 0) + (days.tokens_out[at] ?? 0)), colour: '--ice-month', kind: 'bars' },
    { label: 'sent', values: days.tokens_in, colour: '--glacier', kind: 'bars' },
  ], [days]);
  const known = cost(price, 1, 1) !== undefined;
  const costs = useMemo((): Series[] => [{ label: 'cost', values: days.day.map((_, at) => cost(price, days.tokens_in[at] ?? 0, days.tokens_out[at] ?? 0) ?? null), colour: '--glacier', kind: 'bars' }], [days, price]);
  const calls = useMemo((): Series[] => [{ label: 'calls', values: days.asked, colour: '--glacier', kind: 'bars' }], [days]);
  const [from, to] = [sum(days.bytes_in), sum(days.bytes_out)];
  const spent = cost(price, sum(days.tokens_in), sum(days.tokens_out));
  const refused = sum(each.refused);
  const by = unit === 'month' ? ', by month' : '';
  // Ten years are thousands of rows: render them on demand only.
  const [table, setTable] = useState(false);
  return (
    <>
      <div class="figuresrow runsfigures">
        <Figure value={number(sum(each.runs))} of={sum(each.runs) === 1 ? 'summary written' : 'summaries written'} />
        <Figure value={to === 0 ? 'none' : formatRatio(from / to)} of={`compression: ${bytes(from)} to ${bytes(to)}`} />
        <Figure value={duration(sum(days.millis))} of="run time" />
        <Figure value={compact(sum(days.tokens_in) + sum(days.tokens_out))} of={`tokens, in ${plural(sum(days.asked), 'model call')}`} />
        {spent !== undefined && <Figure value={money(spent, price.currency)} of="cost" />}
        <Figure value={number(refused)} of={refused === 1 ? 'refused draft' : 'refused drafts'} />
      </div>
      <div class="plots">
        <Plot title={`Compression${by}`} unit={unit} days={days.day} series={ratio} write={formatRatio} note="The summary of a short source can be longer than the source: its value is below 1×." />
        <Plot title={`Time${by}`} unit={unit} days={days.day} series={time} write={formatClock} steps={TIME_STEPS} />
        <Plot title={`Tokens${by}`} unit={unit} days={days.day} series={tokens} write={compact} limit={unit === 'day' ? { value: each.ceiling, label: `limit ${compact(each.ceiling)}` } : undefined} note={`The limit is ${plural(each.ceiling, 'token')} a day.`} />
        {known
          ? <Plot title={`Cost${by}`} unit={unit} days={days.day} series={costs} write={(value) => money(value, price.currency)}><Prices price={price} onPrice={onPrice} /></Plot>
          : <Plot title={`Model calls${by}`} unit={unit} days={days.day} series={calls} write={compact} steps={WHOLE_STEPS}><Prices price={price} onPrice={onPrice} /></Plot>}
      </div>
      <details class="twin" onToggle={(event) => setTable(event.currentTarget.open)}>
        <summary>Show as a table</summary>
        {table && <Table caption="Usage by day, the newest first" rows={rows(each)} id={(row) => row.day} columns={[
          { title: 'Day', cell: (row) => <a href={href(['core', row.day])}>{day(row.day)}</a> },
          { title: 'Summaries', cell: (row) => number(row.runs), figures: true },
          { title: 'Refused', cell: (row) => number(row.refused), figures: true },
          { title: 'From', cell: (row) => bytes(row.from), figures: true },
          { title: 'To', cell: (row) => bytes(row.to), figures: true },
          { title: 'Compression', cell: (row) => row.ratio === null ? 'none' : formatRatio(row.ratio), figures: true },
          { title: 'Time', cell: (row) => duration(row.millis), figures: true },
          { title: 'Calls', cell: (row) => number(row.asked), figures: true },
          { title: 'Sent', cell: (row) => number(row.sent), figures: true },
          { title: 'Received', cell: (row) => number(row.received), figures: true },
          ...(known ? [{ title: 'Cost', cell: (row: Row) => money(cost(price, row.sent, row.received) ?? 0, price.currency), figures: true }] : []),
        ]} />}
      </details>
    </>
  );
}

export function Usage({ shown, onRange }: { shown: Range; onRange: (range: Range) => void }): JSX.Element {
  const today = useGet('/api/runs', { query: { limit: 1 } });
  // The API does not send the vault's date; the browser's is close enough for a range.
  const from = shown === 'all' ? '1970-01-01' : plusDays(new Date().toISOString(), -Number(shown));
  const days = useGet('/api/runs/days', { query: { from } });
  const [price, setPrice] = useState(storedPrice);
  useLive(['runs', 'summaries', 'reviews'], () => {
    today.reload();
    days.reload();
  });
  const keep = (changed: Price): void => {
    setPrice(changed);
    try {
      localStorage.setItem(STORAGE_KEY, JSON.stringify(changed));
    } catch {
      // Without storage, the price lasts until the page is reloaded.
    }
  };
  const last = today.value?.runs[0];
  return (
    <div class="runspage">
      <div class="runstop">
        <RequestView of={today}>{(value) => <TokenBudget runs={value} price={price} />}</RequestView>
        <div class="rangefield"><Select label="Range" value={shown} options={RANGES} onChange={(one) => onRange(parseRange(one))} /></div>
      </div>
      <RequestView of={days} what="Loading usage">
        {(value) => value.day.length > 0 ? <Plots days={value} price={price} onPrice={keep} /> : (
          <EmptyState title={last ? `No summaries in the last ${RANGES.find(([one]) => one === shown)?.[1] ?? ''}.` : 'No summaries yet.'}>
            {last
              ? <p>The last one was written on {day(last.ts)}. <a href={href(['runs'], { range: 'all' })}>Show everything</a>, or <a href={href(['runs', 'due'])}>summarize what is due</a>.</p>
              : <p>Store a conversation with <code>icecore session add talk.md</code>; then <a href={href(['runs', 'due'])}>summarize what is due</a>, or let <code>icecore daemon</code> do it every night.</p>}
          </EmptyState>
        )}
      </RequestView>
    </div>
  );
}
