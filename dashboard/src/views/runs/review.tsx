// Refused drafts: each beside its sources and the current summary, with the three ways to settle it.
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Schema } from '../../lib/api.ts';
import { post, useDoing, useGet } from '../../lib/api.ts';
import { day, label, many, moment, number, period as periodName } from '../../lib/format.ts';
import { useRows } from '../../lib/keys.ts';
import { go, href } from '../../lib/route.ts';
import { Markdown } from '../../ui/markdown.tsx';
import { Messages } from '../../ui/messages.tsx';
import { Button, Empty, ErrorBox, Shown, Tabs, Text, say } from '../../ui/parts.tsx';
import { cutAt, invented } from './invented.ts';

type Review = Schema['Review'];
const MOST_MESSAGES = 200;

/** A text with the unsupported terms highlighted. */
function Marked({ text, words }: { text: string; words: readonly string[] }): JSX.Element {
  return <p class="drafted">{cutAt(text, words).map((piece, at) => at % 2 === 1 ? <mark key={at} class="invented" title="No source contains this">{piece}</mark> : piece)}</p>;
}

function Said({ date, conversation, session }: { date: string; conversation?: string | undefined; session?: string | undefined }): JSX.Element {
  const said = useGet('/api/core/{period}/messages', { path: { period: date }, query: { limit: MOST_MESSAGES, ...(conversation === undefined || session === undefined ? {} : { conversation, session }) } });
  return (
    <Shown of={said} what="Loading the messages">
      {(value) => (
        <>
          <Messages messages={value.messages} />
          {value.messages.length < value.total && <p class="dim small">And {many(value.total - value.messages.length, 'message')} more, <a href={href(['core', date])}>in the core</a>.</p>}
        </>
      )}
    </Shown>
  );
}

/** A child period: its headline, and its full summary on demand. */
function Below({ period, headline }: { period: string; headline: string | null | undefined }): JSX.Element {
  const [open, setOpen] = useState(false);
  const node = useGet('/api/core/{period}', open ? { path: { period } } : undefined);
  return (
    <li>
      <p><a href={href(['core', period])}>{periodName(period)}</a></p>
      <p>{headline ?? 'Not summarized.'}</p>
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>full summary</summary>
        {open && <Shown of={node}>{(value) => <Markdown lower={2} text={value.lines.slice(1).map((line) => line.text).join('\n')} />}</Shown>}
      </details>
    </li>
  );
}

/** The sources of a draft: messages for a session or a day, otherwise the summaries of the child periods. */
function Sources({ period }: { period: string }): JSX.Element {
  const date = period.slice(0, 10);
  const parent = /_session_/.test(period) ? date : period;
  const node = useGet('/api/core/{period}', { path: { period: parent } });
  return (
    <Shown of={node} what="Loading the sources">
      {(value) => {
        const session = parent === period ? undefined : value.children.find((child) => child.period === period);
        if (session) return <Said date={date} conversation={session.conversation ?? undefined} session={session.session ?? undefined} />;
        if (value.children.length === 0) return <Said date={date} />;
        return <ul class="below">{value.children.map((child, at) => child.period ? <Below key={child.period} period={child.period} headline={child.headline} /> : <li key={at} class="dim">{child.conversation}: no summary of its own</li>)}</ul>;
      }}
    </Shown>
  );
}

function Now({ period }: { period: string }): JSX.Element {
  const node = useGet('/api/core/{period}', { path: { period } });
  return (
    <Shown of={node} what="Loading the current summary">
      {(value) => (
        <>
          <p class="dim small">Version {number(value.version)}, made by {value.made_by ?? 'unknown'}{value.created_at && ` on ${moment(value.created_at)}`}{value.provisional && ', provisional'}</p>
          <Markdown lower={2} text={value.lines.map((line) => line.text).join('\n')} />
        </>
      )}
    </Shown>
  );
}

/** One draft and how to settle it. */
function Draft({ review, focus, onSettled }: { review: Review; focus: boolean; onSettled: () => void }): JSX.Element {
  const whole = `${review.headline}\n\n${review.body}`;
  const [own, setOwn] = useState<string>();
  const [beside, setBeside] = useState<'sources' | 'now'>('sources');
  const words = useMemo(() => invented(review.complaint), [review.complaint]);
  const heading = useRef<HTMLHeadingElement>(null);
  // After one draft is settled, the focus moves to the next.
  useEffect(() => {
    if (focus) heading.current?.focus();
  }, []);
  const settling = useDoing(async (settle: 'accept' | 'edit' | 'retry') => {
    await post('/api/reviews/{period}', { path: { period: review.period }, body: settle === 'edit' ? { settle, text: own ?? whole } : { settle } });
    say({ accept: 'Draft accepted', edit: 'Your summary is saved', retry: 'The model tries again at the next run' }[settle]);
    onSettled();
  });
  return (
    <section class="section draft" aria-label={`The draft of ${periodName(review.period)}`}>
      <header><h2 ref={heading} tabIndex={-1}>{periodName(review.period)}</h2><p class="aside">{moment(review.ts)}, {many(review.cost.attempts, 'attempt')}</p></header>
      <p class="complaint"><strong>Refused:</strong> {review.complaint}. {words.length > 0 && 'It is highlighted in the draft.'}</p>
      {settling.failure && <ErrorBox failure={settling.failure} />}
      <div class="draftbeside">
        <div>
          <h3>{own === undefined ? 'Draft' : 'Your summary'}</h3>
          {own === undefined
            ? <><Marked text={review.headline} words={words} /><Marked text={review.body} words={words} /></>
            : <Text label="Headline, a blank line, then the body" value={own} lines={16} autofocus onInput={setOwn} />}
        </div>
        <div>
          <h3>Compare with</h3>
          <Tabs label="Beside the draft" tabs={[['sources', 'Sources'], ['now', 'Current summary']]} current={beside} onChange={setBeside}>
            {beside === 'sources' ? <Sources period={review.period} /> : <Now period={review.period} />}
          </Tabs>
        </div>
      </div>
      <footer class="settle">
        {own === undefined ? (
          <>
            <Button kind="main" busy={settling.busy} onClick={() => void settling.run('accept')}>Accept</Button>
            <Button onClick={() => setOwn(whole)}>Edit</Button>
            <Button busy={settling.busy} onClick={() => void settling.run('retry')}>Retry with the model</Button>
          </>
        ) : (
          <>
            <Button kind="main" busy={settling.busy} disabled={own.trim() === ''} onClick={() => void settling.run('edit')}>Save</Button>
            <Button onClick={() => setOwn(undefined)}>Back to the draft</Button>
          </>
        )}
      </footer>
    </section>
  );
}

export function Reviews({ reviews, chosen, onSettled }: { reviews: readonly Review[]; chosen: string | undefined; onSettled: () => void }): JSX.Element {
  const rows = useRows<HTMLUListElement>();
  const shown = reviews.find((one) => one.period === chosen) ?? (chosen === undefined ? reviews[0] : undefined);
  const goesOn = useRef(false);
  const settled = (): void => {
    goesOn.current = true;
    const at = reviews.findIndex((one) => one.period === shown?.period);
    const next = reviews[at + 1] ?? reviews[at - 1];
    go(['runs', 'review'], { review: next?.period }, true);
    onSettled();
  };
  if (reviews.length === 0) {
    return <Empty title="No drafts to review."><p>Every draft is checked before it is stored: it must fit its size, keep the decisions, and name nothing that its sources do not. A draft that is refused three times appears here.</p></Empty>;
  }
  return (
    <div class="reviews">
      <nav class="section" aria-label="Drafts to review">
        <ul class="rows" ref={rows}>
          {reviews.map((one) => (
            <li key={one.period}>
              <a class="row" data-row href={href(['runs', 'review'], { review: one.period })} aria-current={one.period === shown?.period ? 'true' : undefined}>
                <strong>{periodName(one.period)}</strong>
                <span class="meta">{label(one.complaint)}</span>
              </a>
            </li>
          ))}
        </ul>
      </nav>
      {shown
        ? <Draft key={shown.period} review={shown} focus={goesOn.current} onSettled={settled} />
        : <section class="section"><p>There is no draft of {periodName(chosen ?? '')} to review: it was settled, or its sources changed. <a href={href(['core', chosen ?? ''])}>Open the summary{/^\d{4}-\d{2}-\d{2}/.test(chosen ?? '') && ` of ${day(chosen ?? '')}`}</a></p></section>}
    </div>
  );
}
