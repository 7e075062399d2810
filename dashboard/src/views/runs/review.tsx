// Refused drafts: each beside its sources and the current summary, with the three ways to settle it.
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Schema } from '../../lib/api.ts';
import { post, useAction, useGet } from '../../lib/api.ts';
import { day, label, plural, moment, number, period as periodName } from '../../lib/format.ts';
import { useRows } from '../../lib/keyboard.ts';
import { go, href } from '../../lib/route.ts';
import { Markdown } from '../../ui/markdown.tsx';
import { Messages } from '../../ui/messages.tsx';
import { Button, EmptyState, ErrorBox, RequestView, Tabs, TextField, showToast } from '../../ui/components.tsx';
import { splitAtTerms, unsupportedTerms } from './unsupported.ts';

type Review = Schema['Review'];
const MAX_MESSAGES = 200;

/** A text with the unsupported terms highlighted. */
function Highlighted({ text, terms }: { text: string; terms: readonly string[] }): JSX.Element {
  return <p class="drafted">{splitAtTerms(text, terms).map((piece, at) => at % 2 === 1 ? <mark key={at} class="invented" title="No source contains this">{piece}</mark> : piece)}</p>;
}

function PeriodMessages({ date, conversation, session }: { date: string; conversation?: string | undefined; session?: string | undefined }): JSX.Element {
  const messages = useGet('/api/core/{period}/messages', { path: { period: date }, query: { limit: MAX_MESSAGES, ...(conversation === undefined || session === undefined ? {} : { conversation, session }) } });
  return (
    <RequestView of={messages} what="Loading the messages">
      {(value) => (
        <>
          <Messages messages={value.messages} />
          {value.messages.length < value.total && <p class="dim small">And {plural(value.total - value.messages.length, 'message')} more, <a href={href(['core', date])}>in the core</a>.</p>}
        </>
      )}
    </RequestView>
  );
}

/** A child period: its headline, and its full summary on demand. */
function ChildPeriod({ period, headline }: { period: string; headline: string | null | undefined }): JSX.Element {
  const [open, setOpen] = useState(false);
  const node = useGet('/api/core/{period}', open ? { path: { period } } : undefined);
  return (
    <li>
      <p><a href={href(['core', period])}>{periodName(period)}</a></p>
      <p>{headline ?? 'Not summarized.'}</p>
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>full summary</summary>
        {open && <RequestView of={node}>{(value) => <Markdown lower={2} text={value.lines.slice(1).map((line) => line.text).join('\n')} />}</RequestView>}
      </details>
    </li>
  );
}

/** The sources of a draft: messages for a session or a day, otherwise the summaries of the child periods. */
function DraftSources({ period }: { period: string }): JSX.Element {
  const date = period.slice(0, 10);
  const parent = /_session_/.test(period) ? date : period;
  const node = useGet('/api/core/{period}', { path: { period: parent } });
  return (
    <RequestView of={node} what="Loading the sources">
      {(value) => {
        const session = parent === period ? undefined : value.children.find((child) => child.period === period);
        if (session) return <PeriodMessages date={date} conversation={session.conversation ?? undefined} session={session.session ?? undefined} />;
        if (value.children.length === 0) return <PeriodMessages date={date} />;
        return <ul class="below">{value.children.map((child, at) => child.period ? <ChildPeriod key={child.period} period={child.period} headline={child.headline} /> : <li key={at} class="dim">{child.conversation}: no summary of its own</li>)}</ul>;
      }}
    </RequestView>
  );
}

function CurrentSummary({ period }: { period: string }): JSX.Element {
  const node = useGet('/api/core/{period}', { path: { period } });
  return (
    <RequestView of={node} what="Loading the current summary">
      {(value) => (
        <>
          <p class="dim small">Version {number(value.version)}, made by {value.made_by ?? 'unknown'}{value.created_at && ` on ${moment(value.created_at)}`}{value.provisional && ', provisional'}</p>
          <Markdown lower={2} text={value.lines.map((line) => line.text).join('\n')} />
        </>
      )}
    </RequestView>
  );
}

/** One draft and how to settle it. */
function Draft({ review, focus, onSettled }: { review: Review; focus: boolean; onSettled: () => void }): JSX.Element {
  const whole = `${review.headline}\n\n${review.body}`;
  const [edited, setEdited] = useState<string>();
  const [beside, setBeside] = useState<'sources' | 'now'>('sources');
  const terms = useMemo(() => unsupportedTerms(review.complaint), [review.complaint]);
  const heading = useRef<HTMLHeadingElement>(null);
  // After one draft is settled, the focus moves to the next.
  useEffect(() => {
    if (focus) heading.current?.focus();
  }, []);
  const settling = useAction(async (settle: 'accept' | 'edit' | 'retry') => {
    await post('/api/reviews/{period}', { path: { period: review.period }, body: settle === 'edit' ? { settle, text: edited ?? whole } : { settle } });
    showToast({ accept: 'Draft accepted', edit: 'Your summary is saved', retry: 'The model tries again at the next run' }[settle]);
    onSettled();
  });
  return (
    <section class="section draft" aria-label={`The draft of ${periodName(review.period)}`}>
      <header><h2 ref={heading} tabIndex={-1}>{periodName(review.period)}</h2><p class="aside">{moment(review.ts)}, {plural(review.cost.attempts, 'attempt')}</p></header>
      <p class="complaint"><strong>Refused:</strong> {review.complaint}. {terms.length > 0 && 'It is highlighted in the draft.'}</p>
      {settling.failure && <ErrorBox failure={settling.failure} />}
      <div class="draftbeside">
        <div>
          <h3>{edited === undefined ? 'Draft' : 'Your summary'}</h3>
          {edited === undefined
            ? <><Highlighted text={review.headline} terms={terms} /><Highlighted text={review.body} terms={terms} /></>
            : <TextField label="Headline, a blank line, then the body" value={edited} lines={16} autofocus onInput={setEdited} />}
        </div>
        <div>
          <h3>Compare with</h3>
          <Tabs label="Beside the draft" tabs={[['sources', 'Sources'], ['now', 'Current summary']]} current={beside} onChange={setBeside}>
            {beside === 'sources' ? <DraftSources period={review.period} /> : <CurrentSummary period={review.period} />}
          </Tabs>
        </div>
      </div>
      <footer class="settle">
        {edited === undefined ? (
          <>
            <Button kind="main" busy={settling.busy} onClick={() => void settling.run('accept')}>Accept</Button>
            <Button onClick={() => setEdited(whole)}>Edit</Button>
            <Button busy={settling.busy} onClick={() => void settling.run('retry')}>Retry with the model</Button>
          </>
        ) : (
          <>
            <Button kind="main" busy={settling.busy} disabled={edited.trim() === ''} onClick={() => void settling.run('edit')}>Save</Button>
            <Button onClick={() => setEdited(undefined)}>Back to the draft</Button>
          </>
        )}
      </footer>
    </section>
  );
}

export function Reviews({ reviews, chosen, onSettled }: { reviews: readonly Review[]; chosen: string | undefined; onSettled: () => void }): JSX.Element {
  const rows = useRows<HTMLUListElement>();
  const shown = reviews.find((one) => one.period === chosen) ?? (chosen === undefined ? reviews[0] : undefined);
  const focusNext = useRef(false);
  const settled = (): void => {
    focusNext.current = true;
    const at = reviews.findIndex((one) => one.period === shown?.period);
    const next = reviews[at + 1] ?? reviews[at - 1];
    go(['runs', 'review'], { review: next?.period }, true);
    onSettled();
  };
  if (reviews.length === 0) {
    return <EmptyState title="No drafts to review."><p>Every draft is checked before it is stored: it must fit its size, keep the decisions, and name nothing that its sources do not. A draft that is refused three times appears here.</p></EmptyState>;
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
        ? <Draft key={shown.period} review={shown} focus={focusNext.current} onSettled={settled} />
        : <section class="section"><p>There is no draft of {periodName(chosen ?? '')} to review: it was settled, or its sources changed. <a href={href(['core', chosen ?? ''])}>Open the summary{/^\d{4}-\d{2}-\d{2}/.test(chosen ?? '') && ` of ${day(chosen ?? '')}`}</a></p></section>}
    </div>
  );
}
