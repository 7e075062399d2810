// Health: integrity, coverage, index, schedule, disk, models, conflicts and snapshots; every problem with its fix.
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Reply, Schema } from '../../lib/api.ts';
import { post, useAction, useGet } from '../../lib/api.ts';
import { relativeDay, bytes, day, label, plural, moment, number, percent } from '../../lib/format.ts';
import { useTitle } from '../../lib/hooks.ts';
import { useLive } from '../../lib/live.ts';
import { href } from '../../lib/route.ts';
import type { Route } from '../../lib/route.ts';
import { Bar } from '../../ui/bar.tsx';
import { Button, CopyButton, Dialog, ErrorBox, Section, RequestView, Table, Tag, showToast } from '../../ui/components.tsx';
import type { View } from '../view.ts';
import './health.css';
import { Findings, Integrity } from './integrity.tsx';
import { Command, Problem } from './problems.tsx';
import { Snapshots } from './snapshots.tsx';

type Health = Reply<'/api/health'>;

const PART_LABELS: readonly (readonly [RegExp, string])[] = [
  [/^\.git$/, 'the snapshots'],
  [/^\.icecore$/, 'the index; it can be rebuilt at any time'],
  [/^memory\/messages$/, 'messages, verbatim'],
  [/^memory\/summaries/, 'summaries, all versions'],
  [/^memory\/ledger\.jsonl$/, 'the ledger'],
  [/^memory\/(ledger-archive.*|archive)$/, 'archived events'],
  [/^memory\/spend$/, 'model usage'],
  [/^memory\/review/, 'refused drafts'],
  [/^memory\/memories$/, 'extracted memories'],
  [/^memory\/\d{4}-\d{2}-\d{2}\.md$/, 'a day\'s log'],
  [/^primers$/, 'summaries as files'],
  [/^knowledge$/, 'pages and reports'],
  [/^recall$/, 'packs as files'],
];
const MAX_PARTS = 9;

const JOB_LABELS: Record<string, string> = {
  consolidation: 'Nightly job', day: 'Daily summary', week: 'Weekly summary', month: 'Monthly summary', year: 'Yearly summary',
  archive: 'Archive summaries', compact: 'Compact the ledger', prune: 'Prune the ledger', check: 'Verify integrity',
};

function Problems({ health, conflicts, config }: { health: Health; conflicts: number; config: string | undefined }): JSX.Element {
  const texts = [
    ...(config === undefined ? [] : [config]),
    ...health.wrong,
    ...(conflicts === 0 ? [] : [`${plural(conflicts, 'conflict')} between statements. \`icecore conflicts\` shows how to resolve ${conflicts === 1 ? 'it' : 'them'}`]),
  ];
  return texts.length === 0
    ? <p class="allgood"><span aria-hidden="true">✓</span> No problems.</p>
    : <Section title={plural(texts.length, 'problem')} wide><ul class="problems">{texts.map((text) => <Problem key={text} text={text} />)}</ul></Section>;
}

const FIRST_COMMANDS = ['icecore remember "Never deploy on Fridays" --priority P0', 'icecore session add talk.md', 'icecore install claude-code', 'icecore daemon'];

/** First steps in an empty vault. */
function FirstSteps(): JSX.Element {
  return (
    <Section title="A new vault" wide>
      <p>The vault is ready and empty. Remember something, store a conversation, connect an assistant, and let the daemon run the jobs:</p>
      <ul class="settles firststeps">{FIRST_COMMANDS.map((command) => <li key={command}><Command text={command} /></li>)}</ul>
    </Section>
  );
}

function Disk({ disk }: { disk: Health['disk'] }): JSX.Element {
  const [all, setAll] = useState(false);
  const parts = [...disk.parts].sort((one, other) => other.bytes - one.bytes);
  const shown = all ? parts : parts.slice(0, MAX_PARTS);
  const rest = parts.slice(shown.length).reduce((sum, one) => sum + one.bytes, 0);
  return (
    <Section title="Disk" aside={bytes(disk.bytes)}>
      <ul class="disk">
        {shown.map((one) => (
          <li key={one.part}>
            <span class="part"><span class="mono">{one.part}</span> <span class="dim">{PART_LABELS.find(([name]) => name.test(one.part))?.[1]}</span></span>
            <span class="figures" title={plural(one.files, 'file')}>{bytes(one.bytes)}<span class="dim"> {percent(disk.bytes === 0 ? 0 : one.bytes / disk.bytes)}</span></span>
            <Bar part={one.bytes} whole={disk.bytes} />
          </li>
        ))}
      </ul>
      {parts.length > MAX_PARTS && <Button small onClick={() => setAll(!all)}>{all ? 'Show fewer' : `Show ${parts.length - shown.length} more, ${bytes(rest)}`}</Button>}
    </Section>
  );
}

function Schedule({ health }: { health: Health }): JSX.Element {
  const due = health.jobs.filter((job) => job.due);
  return (
    <Section title="Schedule" aside={due.length === 0 ? 'nothing is due' : `${due.length} due`}>
      <Table caption="Last and next run of each job" rows={health.jobs} id={(job) => job.job} columns={[
        { title: 'Job', cell: (job) => <>{JOB_LABELS[job.job] ?? label(job.job)}{job.due && <> <Tag kind="warm">due</Tag></>}</> },
        { title: 'Covers up to', cell: (job) => job.last === null ? 'never' : <span title={day(job.last)}>{relativeDay(job.last, health.now)}</span> },
        { title: 'Next', cell: (job) => job.next === null ? 'not scheduled' : moment(job.next) },
      ]} />
      <div class="doing">{due.length > 0 && <a class="button small" href={href(['runs', 'due'])}>Run what is due</a>}<a class="button small" href={href(['runs', 'log'])}>Show the log</a></div>
      <p class="dim small">The daemon runs every job when it is due: <Command text="icecore daemon" /></p>
    </Section>
  );
}

function Coverage({ coverage }: { coverage: Health['coverage'] }): JSX.Element {
  return (
    <Section title="Coverage" aside={<Tag kind={coverage.ok ? 'ice' : 'warm'}>{coverage.ok ? 'complete' : 'gaps'}</Tag>}>
      <p>{plural(coverage.sessions, 'session')}, {plural(coverage.summaries, 'summary', 'summaries')} of them.</p>
      {coverage.sessions === 0 && <p class="dim small">Store a conversation with <Command text="icecore session add talk.md" /></p>}
      {coverage.findings.length > 0 && <Findings findings={coverage.findings} />}
    </Section>
  );
}

function Index({ index, onDone }: { index: Health['index']; onDone: () => void }): JSX.Element {
  const rebuild = useAction(async (words: boolean) => {
    const made = await post('/api/reindex', { body: words ? { words } : {} });
    showToast(`Index rebuilt: ${plural(made.events, 'event')}, ${plural(made.passages, 'passage')}`);
    onDone();
  });
  return (
    <Section title="Index" aside={<Tag kind={index.meanings ? 'ice' : 'plain'}>{index.meanings ? 'keyword and semantic' : 'keyword only'}</Tag>}>
      <p>{plural(index.passages, 'passage')} in the keyword index, {number(index.vectors)} in the semantic index.</p>
      {index.passages === 0 && <p class="dim small">The first search builds the index; so does the button.</p>}
      {!index.meanings && <p class="dim small">For semantic search, fetch the small embedding model, which runs on this machine: <Command text="icecore model fetch" /></p>}
      <div class="doing">
        <Button small busy={rebuild.busy} onClick={() => void rebuild.run(true)}>Rebuild the keyword index</Button>
        {index.meanings && <Button small busy={rebuild.busy} onClick={() => void rebuild.run(false)}>Rebuild everything</Button>}
      </div>
      {rebuild.failure && <ErrorBox failure={rebuild.failure} />}
    </Section>
  );
}

const MODEL_CONFIG_EXAMPLE = '[summarizer]\nprovider = "openai"\nbase_url = "http://127.0.0.1:11434/v1"\nmodel = "qwen3:14b"\n';

function Models({ models }: { models: Health['models'] }): JSX.Element {
  const [result, setResult] = useState<Reply<'/api/model/check', 'post'>>();
  const checking = useAction(async () => setResult(await post('/api/model/check', { body: {} })));
  return (
    <Section title="Models">
      <dl class="pairs">
        <div><dt>Summaries</dt><dd>{models.summarizer ?? 'none: extracted from the original sentences'}</dd></div>
        <div><dt>Chats</dt><dd>{models.chat ?? 'none: chats cannot be forwarded'}</dd></div>
      </dl>
      {models.summarizer === null && (
        <details><summary>How to configure a model</summary><p class="small">Put this into <code>~/.config/icecore/config.toml</code> with your own address and model, then restart <code>icecore serve</code>. <CopyButton text={() => MODEL_CONFIG_EXAMPLE} /></p><pre class="example">{MODEL_CONFIG_EXAMPLE}</pre></details>
      )}
      <div class="doing"><Button small busy={checking.busy} onClick={() => void checking.run()}>{checking.busy ? 'Checking…' : 'Check the model'}</Button></div>
      <p class="dim small">This sends a few short requests to the model, only when you press the button. <Command text="icecore model check" /></p>
      {checking.failure && <ErrorBox failure={checking.failure} />}
      {result && (
        <div class="checked" role="status">
          <p>{result.model === null ? 'No model is configured:' : `${result.model} ${result.ok === false ? 'failed a check.' : 'passed every check.'}`}</p>
          <ul class="checks">{result.probes.map((one) => <li key={one.what} class={one.ok ? 'ok' : 'no'}><span aria-hidden="true">{one.ok ? '✓' : '✗'}</span><span class="unseen">{one.ok ? 'yes: ' : 'no: '}</span><span>{one.what} <span class="dim">{one.said}</span></span></li>)}</ul>
          {result.hint !== undefined && <p class="advice">{result.hint}</p>}
          {result.ok === false && result.hint === undefined && <p>Nothing is lost without the model: summaries are extracted from the original sentences, and rewritten once it works. Fix its entry in <code>config.toml</code>, restart <code>icecore serve</code>, and check again.</p>}
        </div>
      )}
    </Section>
  );
}

function Conflicts({ conflicts, onSettled }: { conflicts: readonly Schema['Conflict'][]; onSettled: () => void }): JSX.Element {
  const [retracting, setRetracting] = useState<Schema['LedgerEntry']>();
  const retraction = useAction(async (id: string) => {
    await post('/api/events/{id}/retract', { path: { id }, body: {} });
    showToast(`${id} retracted`);
    setRetracting(undefined);
    onSettled();
  });
  return (
    <>
      <Section title="Conflicts" aside={plural(conflicts.length, 'conflict')}>
        {retracting && (
          <Dialog title="Retract this?" open onClose={() => setRetracting(undefined)} foot={<><Button onClick={() => setRetracting(undefined)}>Cancel</Button><Button kind="warm" busy={retraction.busy} onClick={() => void retraction.run(retracting.id)}>Retract</Button></>}>
            {retraction.failure && <ErrorBox failure={retraction.failure} />}
            <p>“{retracting.content}”</p>
            <p>Packs no longer include it. It stays in the ledger as retracted.</p>
            <p><Command text={`icecore retract ${retracting.id}`} /></p>
          </Dialog>
        )}
        {conflicts.length === 0 ? <p class="dim">No conflicts.</p> : (
          <ul class="conflicts">
            {conflicts.map((one) => (
              <li key={one.about}>
                <h3>{one.about}</h3>
                <ul>{one.events.map((event) => (
                  <li key={event.id}>
                    <p>{event.content}</p>
                    <p class="meta"><a class="mono" href={href(['ledger', event.id])}>{event.id}</a><span>{day(event.ts)}</span><Button small label={`Wrong, retract: ${event.content}`} onClick={() => setRetracting(event)}>Wrong, retract…</Button></p>
                  </li>
                ))}</ul>
                <details><summary>Commands that resolve it</summary><ul class="settles">{one.settle.map((command) => <li key={command}><Command text={command} /></li>)}</ul></details>
              </li>
            ))}
          </ul>
        )}
      </Section>
    </>
  );
}

/** A card that an address can scroll to: `?part=integrity`. */
function Anchor({ name, wanted, children }: { name: string; wanted: string | null; children: ComponentChildren }): JSX.Element {
  const here = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (name !== wanted) return;
    here.current?.scrollIntoView({ block: 'start' });
    here.current?.querySelector<HTMLElement>('button')?.focus({ preventScroll: true });
  }, [name, wanted]);
  return <div ref={here}>{children}</div>;
}

function Page({ route }: { route: Route }): JSX.Element {
  const health = useGet('/api/health', {});
  const conflicts = useGet('/api/conflicts', {});
  const config = useGet('/api/config/check', {});
  const part = route.query.get('part');
  useTitle('Health');
  const again = (): void => {
    health.reload();
    conflicts.reload();
    config.reload();
  };
  useLive(['ledger', 'summaries', 'runs', 'reviews', 'config'], again, 1_000);
  const body = (value: Health): ComponentChildren => (
    <>
      <Problems health={value} conflicts={conflicts.value?.conflicts.length ?? 0} config={config.failure && config.failure.status >= 400 ? config.failure.message : undefined} />
      {value.coverage.sessions === 0 && value.jobs.every((job) => job.last === null) && <FirstSteps />}
      <div class="healthcards">
        <Anchor name="integrity" wanted={part}><Integrity health={value} onChecked={again} /></Anchor>
        <Schedule health={value} />
        <Models models={value.models} />
        <Disk disk={value.disk} />
        <Coverage coverage={value.coverage} />
        <Index index={value.index} onDone={again} />
        <RequestView of={conflicts}>{(result) => <Anchor name="conflicts" wanted={part}><Conflicts conflicts={result.conflicts} onSettled={again} /></Anchor>}</RequestView>
        <Snapshots />
      </div>
      <p class="dim small healthfoot">icecore {value.version}, {moment(value.now)}.</p>
    </>
  );
  return (
    <>
      <div class="viewhead"><h1>Health</h1><p class="dim">Integrity, schedule, models, disk and index, with a fix for every problem.</p></div>
      <RequestView of={health} what="Loading the health report">{body}</RequestView>
    </>
  );
}

export const health: View = {
  id: 'health',
  title: 'Health',
  key: 'e',
  icon: 'M3 12h4l2-6 4 12 2.500-6H21',
  Page,
};
