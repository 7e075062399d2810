// Home: today at a glance. The recall pack, open commitments, conflicts, what needs review, the nightly job, and tokens.
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Reply, Schema } from '../../lib/api.ts';
import { post, useAction, useGet } from '../../lib/api.ts';
import { relativeDay, compact, day, label, longDay, plural, moment, number, percent, period, plusDays } from '../../lib/format.ts';
import { useTitle } from '../../lib/hooks.ts';
import { useLive } from '../../lib/live.ts';
import { href } from '../../lib/route.ts';
import { Markdown, MarkdownLine } from '../../ui/markdown.tsx';
import { Button, CopyButton, Dialog, ErrorBox, Section, RequestView, Tag, TextField, showToast } from '../../ui/components.tsx';
import type { View } from '../view.ts';
import './home.css';

type Home = Reply<'/api/home'>;

const STRIP_DAYS = 120;
/** How many commitments are listed; the ledger has all. */
const MAX_COMMITMENTS = 12;

/** The last months as a small horizontal core, with a link to the full one. */
function Strip({ today }: { today: string }): JSX.Element | null {
  const core = useGet('/api/core', { query: { tier: ['day'], from: plusDays(today, 1 - STRIP_DAYS), to: today } });
  const layer = core.value?.layers.day;
  if (!core.value) return null;
  if (!layer || layer.period.length === 0) return <a class="strip" href={href(['core'])}><span class="under">No messages in the last {STRIP_DAYS} days. Open the core to see earlier ones.</span></a>;
  const first = plusDays(today, 1 - STRIP_DAYS);
  const most = Math.max(...layer.bytes, 1);
  const at = (date: string): number => STRIP_DAYS - 1 - Math.round((Date.parse(today) - Date.parse(date)) / 86_400_000);
  const spans = layer.period.map((date, index) => {
    const tall = 8 + 44 * Math.sqrt((layer.bytes[index] ?? 0) / most);
    return { date, x: at(date), tall, pressed: layer.pressed[index] ?? 0, bright: layer.importance[index] === 2 };
  }).filter((one) => one.x >= 0);
  const messages = layer.messages.reduce((sum, one) => sum + one, 0);
  return (
    <a class="strip" href={href(['core'])}>
      <svg viewBox={`0 0 ${STRIP_DAYS} 56`} preserveAspectRatio="none" aria-hidden="true">
        {spans.map((one) => <rect key={one.date} class={`p${one.pressed}`} x={one.x} width="0.9" y={54 - one.tall} height={one.tall} />)}
        {spans.filter((one) => one.bright).map((one) => <rect key={one.date} class="bright" x={one.x} width="0.9" y="54" height="2" />)}
      </svg>
      <span class="under"><span><span class="unseen">Open the core: from </span>{day(first)}</span><span>{plural(messages, 'message')} in {STRIP_DAYS} days, important days are marked</span><span>today</span></span>
    </a>
  );
}

function FirstSteps({ reload }: { reload: () => void }): JSX.Element {
  const [text, setText] = useState('');
  const remember = useAction(async () => {
    await post('/api/events', { body: { text: text.trim() } });
    showToast('Remembered');
    reload();
  });
  return (
    <Section title="Your memory is empty. Get started:">
      <div class="greeting">
        <ol>
          <li>Connect your assistant, so that conversations are captured from now on:<pre><code>icecore install claude-code</code></pre></li>
          <li>Import earlier conversations:<pre><code>icecore import claude-code</code></pre></li>
          <li>
            Or record the first statement now:
            <form class="first" onSubmit={(event) => { event.preventDefault(); void remember.run(); }}>
              <TextField label="Statement" bare value={text} onInput={setText} placeholder="Never deploy on Fridays" />
              <Button type="submit" kind="main" busy={remember.busy} disabled={text.trim() === ''}>Remember</Button>
            </form>
            {remember.failure && <ErrorBox failure={remember.failure} />}
          </li>
          <li>If the daemon runs, it summarizes every night. To run the nightly job by hand:<pre><code>icecore consolidate</code></pre></li>
        </ol>
        <p class="dim">Codex, Claude Desktop, Cursor and VS Code work the same way. This page fills as soon as there is data.</p>
      </div>
    </Section>
  );
}

function dueTag(one: Schema['OpenCommitment']): JSX.Element | null {
  const left = one.due_in_days;
  if (left === null || left === undefined) return null;
  if (left < 0) return <Tag kind="warm">{plural(-left, 'day')} overdue</Tag>;
  if (left === 0) return <Tag kind="warm">due today</Tag>;
  return <Tag kind="ice">due in {plural(left, 'day')}</Tag>;
}

function Commitments({ open, reload }: { open: Home['open']; reload: () => void }): JSX.Element {
  const [closing, setClosing] = useState<Schema['OpenCommitment']>();
  const [note, setNote] = useState('');
  const close = useAction(async () => {
    if (!closing) return;
    await post('/api/events/{id}/close', { path: { id: closing.id }, body: note.trim() === '' ? {} : { note: note.trim() } });
    showToast('Closed');
    setClosing(undefined);
    setNote('');
    reload();
  });
  const sorted = [...open].sort((one, other) => (one.due_in_days ?? 1e6) - (other.due_in_days ?? 1e6) || other.age_days - one.age_days);
  return (
    <Section title="Open commitments" aside={open.length > MAX_COMMITMENTS ? <a href={href(['ledger'], { type: ['commitment'] })}>all {number(open.length)}</a> : number(open.length)}>
      {open.length === 0 && <p class="quiet-good">No open commitments.</p>}
      <ul class="rows">
        {sorted.slice(0, MAX_COMMITMENTS).map((one) => (
          <li key={one.id} class="commitment">
            <div class="what">
              <a href={href(['ledger', one.id])}>{one.content}</a>
              <span class="meta">{dueTag(one)}<Tag>{one.priority}</Tag><span>{one.age_days === 0 ? 'opened today' : `open for ${plural(one.age_days, 'day')}`}</span>{one.waiting_on && <span>waiting on {one.waiting_on}</span>}</span>
            </div>
            <Button small label={`Done: close ${one.content}`} onClick={() => setClosing(one)}>Done</Button>
          </li>
        ))}
      </ul>
      <Dialog title="Close this commitment?" open={closing !== undefined} onClose={() => { setClosing(undefined); close.clear(); }}
        foot={<><Button onClick={() => setClosing(undefined)}>Cancel</Button><Button kind="main" busy={close.busy} onClick={() => void close.run()}>Close commitment</Button></>}>
        <p>{closing?.content}</p>
        <TextField label="Outcome (optional)" value={note} onInput={setNote} />
        {close.failure && <ErrorBox failure={close.failure} />}
      </Dialog>
    </Section>
  );
}

function Conflicts({ conflicts, reload }: { conflicts: Home['conflicts']; reload: () => void }): JSX.Element {
  const keep = useAction(async (kept: Schema['LedgerEntry'], all: readonly Schema['LedgerEntry'][]) => {
    for (const other of all.filter((one) => one.id !== kept.id)) {
      await post('/api/events/{id}/retract', { path: { id: other.id }, body: { note: `in favour of ${kept.id}` } });
    }
    showToast(`Resolved: ${kept.id} is kept`);
    reload();
  });
  return (
    <Section title="Conflicts" aside={number(conflicts.length)}>
      {conflicts.length === 0 && <p class="quiet-good">No conflicts.</p>}
      {keep.failure && <ErrorBox failure={keep.failure} />}
      <div class="stack">
        {conflicts.map((conflict) => (
          <div key={conflict.about + conflict.events.map((one) => one.id).join()}>
            <h3>{label(conflict.about)}</h3>
            <ul class="claims">
              {conflict.events.map((one) => (
                <li key={one.id}>
                  <span><a href={href(['ledger', one.id])}>{one.content}</a> <span class="dim small">{day(one.ts)}</span></span>
                  <Button small busy={keep.busy} label={`Keep this one and retract the others: ${one.content}`} onClick={() => void keep.run(one, conflict.events)}>Keep</Button>
                </li>
              ))}
            </ul>
          </div>
        ))}
      </div>
    </Section>
  );
}

function NeedsReview({ home }: { home: Home }): JSX.Element {
  const { reviews, waiting, status } = home;
  const open = reviews.filter((one) => one.state === 'open');
  const nothing = open.length === 0 && waiting === 0 && status.wrong.length === 0;
  return (
    <Section title="Needs review">
      {nothing && <p class="quiet-good">Nothing to review.</p>}
      <ul class="rows">
        {status.wrong.map((problem) => <li key={problem}><a class="row wrong" href={href(['health'])}><MarkdownLine text={problem.charAt(0).toUpperCase() + problem.slice(1)} /></a></li>)}
        {open.map((one) => (
          <li key={one.period}><a class="row" href={href(['runs'], { review: one.period })}>The draft of {period(one.period)} was refused<span class="meta">{one.complaint}</span></a></li>
        ))}
        {waiting > 0 && <li><a class="row" href={href(['ledger', 'waiting'])}>{plural(waiting, 'unconfirmed statement')} in quarantine<span class="meta">From tools or strangers. They do not count until you confirm them.</span></a></li>}
      </ul>
    </Section>
  );
}

function NightlyJob({ home, reload }: { home: Home; reload: () => void }): JSX.Element {
  const run = useAction(async (job: 'rollup' | 'consolidate') => {
    await post('/api/jobs/run', { body: { job } });
    showToast(job === 'rollup' ? 'Due summaries are written' : 'The nightly job has finished');
    reload();
  });
  const due = home.jobs.filter((job) => job.due);
  return (
    <Section title="Nightly job" aside={<a href={href(['runs'])}>all runs</a>}>
      <div class="stack">
        {due.length > 0
          ? <p><Tag kind="warm">due</Tag> {due.map((job) => label(job.job)).join(', ')}</p>
          : <p class="quiet-good">Nothing is due.</p>}
        <p class="dim small">Next: {home.next.slice(0, 3).map((one) => `${label(one.job)} ${moment(one.at)}`).join('; ') || 'nothing is scheduled'}</p>
        <p><Button busy={run.busy} onClick={() => void run.run('rollup')}>Summarize what is due</Button> <Button busy={run.busy} onClick={() => void run.run('consolidate')}>Run the nightly job now</Button></p>
        {run.failure && <ErrorBox failure={run.failure} />}
        {home.night
          ? <details><summary>Report of {day(home.night.date)}</summary><div class="report" tabIndex={0}><Markdown text={home.night.text} lower={2} /></div></details>
          : <p class="dim small">No report yet: the nightly job has not run.</p>}
      </div>
    </Section>
  );
}

function TokensToday({ spend, model }: { spend: Home['spend']; model: Home['model'] }): JSX.Element {
  const part = spend.ceiling === 0 ? 0 : Math.min(spend.total / spend.ceiling, 1);
  return (
    <Section title="Tokens today" aside={model ?? 'no model'}>
      {model === null || model === undefined
        ? <p class="quiet-good">No model is configured, so no tokens are used: summaries are extracted from the original sentences.</p>
        : (
          <div class="stack">
            <p><strong>{number(spend.total)}</strong> {spend.ceiling === 0 ? 'tokens, no daily limit' : `of ${number(spend.ceiling)} tokens, ${percent(part)}`}</p>
            <svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={`${percent(part)} of the daily limit`}><rect class="all" width="100" height="10" /><rect class={part > 0.8 ? 'much' : 'spent'} width={part * 100} height="10" /></svg>
            <p class="dim small">{plural(spend.spent.asked, 'model call')}, {compact(spend.spent.tokens_in)} in, {compact(spend.spent.tokens_out)} out{spend.spent.reserved > 0 && `, ${compact(spend.spent.reserved)} reserved for running calls`}</p>
          </div>
        )}
    </Section>
  );
}

function RecallPack({ recall }: { recall: Home['recall'] }): JSX.Element {
  return (
    <section class="section" aria-labelledby="recall">
      <header><h2 id="recall">Recall pack</h2><div class="aside">{plural(recall.words, 'word')}, about {compact(recall.tokens)} tokens <CopyButton text={() => recall.text} /></div></header>
      {recall.left_out.length > 0 && <p class="dim small">Left out: {recall.left_out.map((one) => `${one.what} (${one.why})`).join('; ')}. <a href={href(['packs'], { kind: 'recall' })}>Show in Packs</a></p>}
      <div class="pack" tabIndex={0} role="region" aria-label="Text of the recall pack"><Markdown text={recall.text} lower={2} /></div>
    </section>
  );
}

function Page(): JSX.Element {
  useTitle('Home');
  const home = useGet('/api/home', {});
  useLive(['ledger', 'messages', 'summaries', 'runs', 'reviews', 'knowledge', 'config'], home.reload, 800);
  return (
    <div class="home">
      {home.value === undefined && <div class="viewhead"><h1>Home</h1></div>}
      <RequestView of={home}>
        {(value) => {
          const { status } = value;
          const empty = status.statements === 0 && status.days_captured === 0;
          const today = status.now.slice(0, 10);
          const checked = status.integrity.state === 'whole' ? `intact, verified ${status.integrity.at ? relativeDay(status.integrity.at, today) : 'recently'}` : status.integrity.state === 'failing' ? 'damaged' : 'not verified yet';
          return (
            <>
              <div class="viewhead">
                <h1>{longDay(status.now)}</h1>
                {!empty && <p class="dim">{plural(status.days_captured, 'day')} captured, {plural(status.statements, 'statement')}, {number(status.p0)} permanent</p>}
                {!empty && <p class="aside dim small">{status.integrity.state === 'failing' ? <a class="warm" href={href(['health'])}>The vault is {checked}</a> : <>The vault is {checked}</>}</p>}
              </div>
              {empty ? <FirstSteps reload={home.reload} /> : (
                <>
                  <Strip today={today} />
                  <div class="glance">
                    <div class="told-first"><RecallPack recall={value.recall} /></div>
                    <div class="open-first"><Commitments open={value.open} reload={home.reload} /><Conflicts conflicts={value.conflicts} reload={home.reload} /></div>
                    <div class="ran-first"><NeedsReview home={value} /><NightlyJob home={value} reload={home.reload} /><TokensToday spend={value.spend} model={value.model} /></div>
                  </div>
                </>
              )}
            </>
          );
        }}
      </RequestView>
    </div>
  );
}

export const home: View = { id: 'home', title: 'Home', key: 'h', icon: 'M4 11.500 12 4.500l8 7M6.500 9.500V19.500h11V9.500M10 19.500v-5.500h4v5.500', Page };
