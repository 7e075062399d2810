// Home: today at a glance. What the assistant is told, what is open, what contradicts itself, what wants a person, what ran and what it cost.
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Reply, Schema } from '../../lib/api.ts';
import { post, useDoing, useGet } from '../../lib/api.ts';
import { ago, compact, day, label, longDay, many, moment, number, percent, period, plusDays } from '../../lib/format.ts';
import { useTitle } from '../../lib/hooks.ts';
import { useLive } from '../../lib/live.ts';
import { href } from '../../lib/route.ts';
import { Markdown, MarkdownLine } from '../../ui/markdown.tsx';
import { Button, Copy, Dialog, ErrorBox, Section, Shown, Tag, Text, say } from '../../ui/parts.tsx';
import type { View } from '../view.ts';
import './home.css';

type Home = Reply<'/api/home'>;

const STRIP_DAYS = 120;
/** So many commitments are listed; the ledger has all. */
const OPEN_SHOWN = 12;

/** The last months as a small core lying on its side; the way to the large one. */
function Strip({ today }: { today: string }): JSX.Element | null {
  const core = useGet('/api/core', { query: { tier: ['day'], from: plusDays(today, 1 - STRIP_DAYS), to: today } });
  const layer = core.value?.layers.day;
  if (!core.value) return null;
  if (!layer || layer.period.length === 0) return <a class="strip" href={href(['core'])}><span class="under">Nothing was said in the last {STRIP_DAYS} days. To the core, where everything before lies.</span></a>;
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
      <span class="under"><span><span class="unseen">To the core: from </span>{day(first)}</span><span>{many(messages, 'message')} in {STRIP_DAYS} days, marked days matter</span><span>today</span></span>
    </a>
  );
}

function Greeting({ again }: { again: () => void }): JSX.Element {
  const [text, setText] = useState('');
  const remember = useDoing(async () => {
    await post('/api/events', { body: { text: text.trim() } });
    say('It is kept');
    again();
  });
  return (
    <Section title="Your memory is empty. Here is how it begins.">
      <div class="greeting">
        <ol>
          <li>Let your assistant write here, so that nothing more is lost:<pre><code>icecore install claude-code</code></pre></li>
          <li>Bring in what was said so far:<pre><code>icecore import claude-code</code></pre></li>
          <li>
            Or write the first thing down now:
            <form class="first" onSubmit={(event) => { event.preventDefault(); void remember.run(); }}>
              <Text label="Something to remember" bare value={text} onInput={setText} placeholder="Never deploy on Fridays" />
              <Button type="submit" kind="main" busy={remember.busy} disabled={text.trim() === ''}>Remember</Button>
            </form>
            {remember.failure && <ErrorBox failure={remember.failure} />}
          </li>
          <li>At night it is pressed by itself if the daemon runs; by hand it is:<pre><code>icecore consolidate</code></pre></li>
        </ol>
        <p class="dim">Codex, Claude Desktop, Cursor and VS Code work the same way. This page fills as soon as something is here.</p>
      </div>
    </Section>
  );
}

function due(one: Schema['OpenCommitment']): JSX.Element | null {
  const left = one.due_in_days;
  if (left === null || left === undefined) return null;
  if (left < 0) return <Tag kind="warm">{many(-left, 'day')} overdue</Tag>;
  if (left === 0) return <Tag kind="warm">due today</Tag>;
  return <Tag kind="ice">due in {many(left, 'day')}</Tag>;
}

function Commitments({ open, again }: { open: Home['open']; again: () => void }): JSX.Element {
  const [closing, setClosing] = useState<Schema['OpenCommitment']>();
  const [note, setNote] = useState('');
  const close = useDoing(async () => {
    if (!closing) return;
    await post('/api/events/{id}/close', { path: { id: closing.id }, body: note.trim() === '' ? {} : { note: note.trim() } });
    say('Closed');
    setClosing(undefined);
    setNote('');
    again();
  });
  const sorted = [...open].sort((one, other) => (one.due_in_days ?? 1e6) - (other.due_in_days ?? 1e6) || other.age_days - one.age_days);
  return (
    <Section title="Open commitments" aside={open.length > OPEN_SHOWN ? <a href={href(['ledger'], { type: ['commitment'] })}>all {number(open.length)}</a> : number(open.length)}>
      {open.length === 0 && <p class="quiet-good">Nothing is open.</p>}
      <ul class="rows">
        {sorted.slice(0, OPEN_SHOWN).map((one) => (
          <li key={one.id} class="commitment">
            <div class="what">
              <a href={href(['ledger', one.id])}>{one.content}</a>
              <span class="meta">{due(one)}<Tag>{one.priority}</Tag><span>{one.age_days === 0 ? 'since today' : `for ${many(one.age_days, 'day')}`}</span>{one.waiting_on && <span>waits for {one.waiting_on}</span>}</span>
            </div>
            <Button small label={`Done: close ${one.content}`} onClick={() => setClosing(one)}>Done</Button>
          </li>
        ))}
      </ul>
      <Dialog title="Close this commitment?" open={closing !== undefined} onClose={() => { setClosing(undefined); close.clear(); }}
        foot={<><Button onClick={() => setClosing(undefined)}>Not yet</Button><Button kind="main" busy={close.busy} onClick={() => void close.run()}>Close it</Button></>}>
        <p>{closing?.content}</p>
        <Text label="How it ended, if that is worth a word" value={note} onInput={setNote} />
        {close.failure && <ErrorBox failure={close.failure} />}
      </Dialog>
    </Section>
  );
}

function Conflicts({ conflicts, again }: { conflicts: Home['conflicts']; again: () => void }): JSX.Element {
  const keep = useDoing(async (kept: Schema['Entry'], all: readonly Schema['Entry'][]) => {
    for (const other of all.filter((one) => one.id !== kept.id)) {
      await post('/api/events/{id}/retract', { path: { id: other.id }, body: { note: `${kept.id} holds instead` } });
    }
    say(`Settled: ${kept.id} holds`);
    again();
  });
  return (
    <Section title="Contradictions" aside={number(conflicts.length)}>
      {conflicts.length === 0 && <p class="quiet-good">Nothing contradicts itself.</p>}
      {keep.failure && <ErrorBox failure={keep.failure} />}
      <div class="stack">
        {conflicts.map((conflict) => (
          <div key={conflict.about + conflict.events.map((one) => one.id).join()}>
            <h3>{label(conflict.about)}</h3>
            <ul class="claims">
              {conflict.events.map((one) => (
                <li key={one.id}>
                  <span><a href={href(['ledger', one.id])}>{one.content}</a> <span class="dim small">{day(one.ts)}</span></span>
                  <Button small busy={keep.busy} label={`Holds, and the others do not: ${one.content}`} onClick={() => void keep.run(one, conflict.events)}>Holds</Button>
                </li>
              ))}
            </ul>
          </div>
        ))}
      </div>
    </Section>
  );
}

function Wants({ home }: { home: Home }): JSX.Element {
  const { reviews, waiting, status } = home;
  const open = reviews.filter((one) => one.state === 'open');
  const nothing = open.length === 0 && waiting === 0 && status.wrong.length === 0;
  return (
    <Section title="Wants a look">
      {nothing && <p class="quiet-good">Nothing waits for you.</p>}
      <ul class="rows">
        {status.wrong.map((said) => <li key={said}><a class="row wrong" href={href(['health'])}><MarkdownLine text={said.charAt(0).toUpperCase() + said.slice(1)} /></a></li>)}
        {open.map((one) => (
          <li key={one.period}><a class="row" href={href(['runs'], { review: one.period })}>The draft of {period(one.period)} was refused<span class="meta">{one.complaint}</span></a></li>
        ))}
        {waiting > 0 && <li><a class="row" href={href(['ledger', 'waiting'])}>{many(waiting, 'statement')} of tools and strangers {waiting === 1 ? 'waits' : 'wait'} for your word<span class="meta">They are not believed until you confirm them.</span></a></li>}
      </ul>
    </Section>
  );
}

function Night({ home, again }: { home: Home; again: () => void }): JSX.Element {
  const run = useDoing(async (job: 'rollup' | 'consolidate') => {
    await post('/api/jobs/run', { body: { job } });
    say(job === 'rollup' ? 'What was due is pressed' : 'The night’s work is done');
    again();
  });
  const due = home.jobs.filter((job) => job.due);
  return (
    <Section title="The night" aside={<a href={href(['runs'])}>all runs</a>}>
      <div class="stack">
        {due.length > 0
          ? <p><Tag kind="warm">due</Tag> {due.map((job) => label(job.job)).join(', ')}</p>
          : <p class="quiet-good">Everything that was due has run.</p>}
        <p class="dim small">Next: {home.next.slice(0, 3).map((one) => `${label(one.job)} ${moment(one.at)}`).join('; ') || 'nothing is planned'}</p>
        <p><Button busy={run.busy} onClick={() => void run.run('rollup')}>Press what is due</Button> <Button busy={run.busy} onClick={() => void run.run('consolidate')}>Do the night now</Button></p>
        {run.failure && <ErrorBox failure={run.failure} />}
        {home.night
          ? <details><summary>Report of {day(home.night.date)}</summary><div class="report" tabIndex={0}><Markdown text={home.night.text} lower={2} /></div></details>
          : <p class="dim small">No night has run yet, so there is no report.</p>}
      </div>
    </Section>
  );
}

function Spend({ spend, model }: { spend: Home['spend']; model: Home['model'] }): JSX.Element {
  const part = spend.ceiling === 0 ? 0 : Math.min(spend.total / spend.ceiling, 1);
  return (
    <Section title="Spent today" aside={model ?? 'no model'}>
      {model === null || model === undefined
        ? <p class="quiet-good">No model is set, so nothing is spent: summaries are made of the sources' own sentences.</p>
        : (
          <div class="stack">
            <p><strong>{number(spend.total)}</strong> of {spend.ceiling === 0 ? 'as many as it takes' : number(spend.ceiling)} tokens{spend.ceiling > 0 && `, ${percent(part)}`}</p>
            <svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={`${percent(part)} of the ceiling`}><rect class="all" width="100" height="10" /><rect class={part > 0.8 ? 'much' : 'spent'} width={part * 100} height="10" /></svg>
            <p class="dim small">{many(spend.spent.asked, 'question')}, {compact(spend.spent.tokens_in)} in, {compact(spend.spent.tokens_out)} out{spend.spent.reserved > 0 && `, ${compact(spend.spent.reserved)} held for what runs now`}</p>
          </div>
        )}
    </Section>
  );
}

function Recall({ recall }: { recall: Home['recall'] }): JSX.Element {
  return (
    <section class="section" aria-labelledby="recall">
      <header><h2 id="recall">What your assistant is told</h2><div class="aside">{many(recall.words, 'word')}, about {compact(recall.tokens)} tokens <Copy text={() => recall.text} /></div></header>
      {recall.left_out.length > 0 && <p class="dim small">Left out: {recall.left_out.map((one) => `${one.what} (${one.why})`).join('; ')}. <a href={href(['packs'], { kind: 'recall' })}>More room?</a></p>}
      <div class="pack" tabIndex={0} role="region" aria-label="The recall pack"><Markdown text={recall.text} lower={2} /></div>
    </section>
  );
}

function Page(): JSX.Element {
  useTitle('Home');
  const home = useGet('/api/home', {});
  useLive(['ledger', 'messages', 'summaries', 'runs', 'reviews', 'knowledge', 'config'], home.again, 800);
  return (
    <div class="home">
      {home.value === undefined && <div class="viewhead"><h1>Home</h1></div>}
      <Shown of={home} what="Looking">
        {(value) => {
          const { status } = value;
          const empty = status.statements === 0 && status.days_captured === 0;
          const today = status.now.slice(0, 10);
          const checked = status.integrity.state === 'whole' ? `whole, checked ${status.integrity.at ? ago(status.integrity.at, today) : 'lately'}` : status.integrity.state === 'failing' ? 'not whole' : 'not checked yet';
          return (
            <>
              <div class="viewhead">
                <h1>{longDay(status.now)}</h1>
                {!empty && <p class="dim">{many(status.days_captured, 'day')} kept, {many(status.statements, 'statement')} hold, {number(status.p0)} for good</p>}
                {!empty && <p class="aside dim small">{status.integrity.state === 'failing' ? <a class="warm" href={href(['health'])}>The vault is {checked}</a> : <>The vault is {checked}</>}</p>}
              </div>
              {empty ? <Greeting again={home.again} /> : (
                <>
                  <Strip today={today} />
                  <div class="glance">
                    <div class="told-first"><Recall recall={value.recall} /></div>
                    <div class="open-first"><Commitments open={value.open} again={home.again} /><Conflicts conflicts={value.conflicts} again={home.again} /></div>
                    <div class="ran-first"><Wants home={value} /><Night home={value} again={home.again} /><Spend spend={value.spend} model={value.model} /></div>
                  </div>
                </>
              )}
            </>
          );
        }}
      </Shown>
    </div>
  );
}

export const home: View = { id: 'home', title: 'Home', key: 'h', icon: 'M4 11.500 12 4.500l8 7M6.500 9.500V19.500h11V9.500M10 19.500v-5.500h4v5.500', Page };
