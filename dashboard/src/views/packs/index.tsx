// Packs: the context that an assistant gets, for any day and budget: its sections, what was left out, and the source of each line.
import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { RequestState, Schema } from '../../lib/api.ts';
import { get, useRequest, useGet } from '../../lib/api.ts';
import { bytes, day as dayName, plural, number, period, plusDays } from '../../lib/format.ts';
import { useDebounced, useTitle } from '../../lib/hooks.ts';
import { useRows } from '../../lib/keyboard.ts';
import { useLive } from '../../lib/live.ts';
import { go, href } from '../../lib/route.ts';
import type { Route } from '../../lib/route.ts';
import { Bar } from '../../ui/bar.tsx';
import { Diff } from '../../ui/diff.tsx';
import { MarkdownLine } from '../../ui/markdown.tsx';
import { Button, Select, CopyButton, EmptyState, Section, RequestView, Tabs, TextField, classes, showToast } from '../../ui/components.tsx';
import { WhySources } from '../../ui/why.tsx';
import type { View } from '../view.ts';
import './packs.css';

type Pack = Schema['Pack'];
type Policy = Schema['Policy'];
type Unit = 'words' | 'tokens' | 'bytes' | 'characters';
const KINDS = ['recall', 'session-start', 'upload', 'pyramid', 'delta', 'chat'] as const;
type Kind = (typeof KINDS)[number];
type Display = 'read' | 'raw' | 'compare';

interface PackInfo {
  title: string;
  description: string;
  /** The unit of its size, and the default budget. */
  unit: Unit;
  defaultBudget: (policy: Policy) => number;
  dated: boolean;
  /** Whether the budget can be changed. */
  budgeted: boolean;
}

const PACKS: Record<Kind, PackInfo> = {
  recall: { title: 'Recall', description: 'The essentials for today, on one page of eight sections.', unit: 'words', defaultBudget: (policy) => recallBudgets(policy).reduce((sum, room) => sum + room, policy.recall.buffer_words), dated: true, budgeted: false },
  'session-start': { title: 'Session start', description: 'The context at the start of a coding session: the recall pack, the saved state, the last logs. Your own files and the saved state are always the current ones.', unit: 'characters', defaultBudget: () => 9_000, dated: true, budgeted: true },
  upload: { title: 'Upload', description: 'The context for a new session in another client: the latest month, this week, today.', unit: 'bytes', defaultBudget: (policy) => policy.budget.upload_bytes, dated: true, budgeted: true },
  pyramid: { title: 'Pyramid', description: 'Yesterday and today in full, then days, weeks, months and years.', unit: 'tokens', defaultBudget: (policy) => policy.budget.pyramid_tokens, dated: true, budgeted: true },
  delta: { title: 'Delta', description: 'The context for one prompt: the oldest open commitments, and the pages that its words trigger.', unit: 'characters', defaultBudget: (policy) => policy.recall.max_chars_per_prompt, dated: true, budgeted: true },
  chat: { title: 'Chat', description: 'The context that a chat model gets before the next turn of a conversation.', unit: 'tokens', defaultBudget: (policy) => policy.chat.max_memory_tokens, dated: false, budgeted: false },
};

// The order of the recall pack's sections.
function recallBudgets({ recall }: Policy): number[] {
  return [recall.p0_words, recall.mantra_words, recall.open_words, recall.waiting_words, recall.focus_words, recall.context_words, recall.procedures_words, recall.accounts_words];
}

interface PackRequest {
  kind: Kind;
  date: string;
  budget: string;
  scope: string;
  session: string;
  prompt: string;
  conversation: string;
}

function parsePackRequest(route: Route): PackRequest {
  const { query } = route;
  const kind = KINDS.find((one) => one === route.rest[0]) ?? 'recall';
  const read = (name: string): string => query.get(name) ?? '';
  return { kind, date: read('date'), budget: read('budget'), scope: read('scope'), session: read('session'), prompt: read('prompt'), conversation: read('conversation') };
}

/** Requests a pack. */
function fetchPack(request: PackRequest, signal: AbortSignal): Promise<Pack> {
  const date = request.date === '' ? {} : { date: request.date };
  const budget = Number(request.budget) > 0 ? { budget: Number(request.budget) } : {};
  switch (request.kind) {
    case 'recall':
      return get('/api/packs/recall', { query: { ...date, ...(request.scope === '' ? {} : { scope: request.scope.split(/[\s,]+/).filter(Boolean) }) } }, signal);
    case 'session-start':
      return get('/api/packs/session-start', { query: { ...date, ...budget, ...(request.session === 'side' ? { kind: 'side' as const } : {}) } }, signal);
    case 'upload':
      return get('/api/packs/upload', { query: { ...date, ...budget } }, signal);
    case 'pyramid':
      return get('/api/packs/pyramid', { query: { ...date, ...budget } }, signal);
    case 'delta':
      return get('/api/packs/delta', { query: { prompt: request.prompt, ...date, ...budget } }, signal);
    case 'chat':
      return get('/api/packs/chat', { query: { conversation: request.conversation, ...(request.prompt === '' ? {} : { prompt: request.prompt }) } }, signal);
  }
}

function usePack(request: PackRequest | undefined): RequestState<Pack> {
  const ready = request !== undefined && (request.kind !== 'delta' || request.prompt.trim() !== '') && (request.kind !== 'chat' || request.conversation !== '');
  return useRequest(ready ? (signal) => fetchPack(request, signal) : undefined, JSON.stringify(request));
}

function usedAmount(pack: Pack, unit: Unit): number {
  return unit === 'characters' ? [...pack.text].length : pack[unit];
}

function formatAmount(value: number, unit: Unit): string {
  return unit === 'bytes' ? bytes(value) : `${number(value)} ${unit}`;
}

/** Its size in the other units. */
function otherUnits(pack: Pack, unit: Unit): string {
  const amounts: [Unit, string][] = [['words', plural(pack.words, 'word')], ['tokens', `about ${plural(pack.tokens, 'token')}`], ['bytes', bytes(pack.bytes)]];
  return amounts.filter(([one]) => one !== unit).map(([, label]) => label).join(', ');
}

/** A line of a pack, with its source on demand. */
function PackLine({ text, top }: { text: string; top: number }): JSX.Element | null {
  const [open, setOpen] = useState(false);
  if (/^\s*$/.test(text)) return null;
  if (/^-{3,}\s*$/.test(text)) return <li class="rule"><hr /></li>;
  if (/^<!--.*-->$/.test(text)) return <li class="frame">{text}</li>;
  const heading = /^(#{1,6})\s+(.*)$/.exec(text);
  if (heading) return <li class={`heading h${heading[1]?.length ?? 1}`}><span role="heading" aria-level={Math.min(Math.max((heading[1]?.length ?? 1) - top, 0) + 3, 6)}>{heading[2]}</span></li>;
  const item = /^\s*[-*]\s+(.*)$/.exec(text);
  const words = item?.[1] ?? text;
  const none = words === 'none';
  const at = /^\[(\d{4}-\d{2}-\d{2}) \d{2}:\d{2}\]/.exec(words)?.[1];
  return (
    <li class={classes(item ? 'item' : 'words', open && 'open')}>
      <div class="packline">
        <span class="packwords"><MarkdownLine text={words} /></span>
        {!none && <button type="button" class="whybutton" data-row aria-expanded={open} aria-label={`why? Source of: ${words.slice(0, 80)}`} title="Show the source" onClick={() => setOpen(!open)}>why?</button>}
      </div>
      {open && <div class="because">{at !== undefined && <p>Logged on <a href={href(['core', at])}>{dayName(at)}</a>.</p>}<WhySources of={words} /></div>}
    </li>
  );
}

function PackLines({ text }: { text: string }): JSX.Element {
  const rows = useRows<HTMLOListElement>();
  const lines = useMemo(() => text.split('\n'), [text]);
  // A pack may begin with any heading level; for screen readers the levels have no gaps.
  const top = useMemo(() => lines.map((line) => /^(#{1,6})\s/.exec(line)?.[1]?.length).find((level) => level !== undefined) ?? 1, [lines]);
  return <ol class="packlines" ref={rows}>{lines.map((line, at) => <PackLine key={`${at} ${line}`} text={line} top={top} />)}</ol>;
}

function download(pack: Pack): void {
  const address = URL.createObjectURL(new Blob([pack.text], { type: 'text/markdown;charset=utf-8' }));
  const link = document.createElement('a');
  link.href = address;
  link.download = `icecore-${pack.kind}-${pack.date}.md`;
  link.click();
  // The download has started by then; release the memory.
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
  showToast(`Saved as ${link.download}`);
}

function Sections({ pack, info, policy, kind }: { pack: Pack; info: PackInfo; policy: Policy | undefined; kind: Kind }): JSX.Element {
  const budgets = kind === 'recall' && policy ? recallBudgets(policy) : undefined;
  const total = pack.sections.reduce((sum, one) => sum + one.words, 0);
  if (pack.sections.length === 0) return <p class="dim">This pack has no sections: {plural(pack.words, 'word')}.</p>;
  return (
    <>
      <ul class="packsections">
        {pack.sections.map((one, at) => {
          const room = budgets?.[at];
          // An empty section contains the line `none`, which does not count.
          const words = pack.text.includes(`## ${one.title}\n- none\n`) ? 0 : one.words;
          return (
            <li key={at}>
              <span class="title">{one.title}</span>
              <span class="figures">{room === undefined ? plural(words, 'word') : `${number(words)} of ${plural(room, 'word')}`}</span>
              <Bar part={words} whole={room ?? total} />
            </li>
          );
        })}
      </ul>
      <p class="dim small">{budgets && policy
        ? `A section that exceeds its budget uses the shared buffer of ${plural(policy.recall.buffer_words, 'word')}.`
        : `The bars show each section's share of the ${plural(total, 'word')}; the limit in ${info.unit} applies to the whole pack.`}</p>
    </>
  );
}

function Source({ name }: { name: string }): JSX.Element {
  const made = /^(\d{4}[\w-]*)#(\d+)$/.exec(name);
  if (made) return <a href={href(['core', made[1] ?? ''])}>{period(made[1] ?? '')}</a>;
  if (name.startsWith('EVT-')) return <a class="mono" href={href(['ledger', name])}>{name}</a>;
  const page = /^knowledge\/([^/]+)\/([^/]+)\.md$/.exec(name);
  return page ? <a href={href(['knowledge', page[1] ?? '', page[2] ?? ''])}>{name}</a> : <span class="mono">{name}</span>;
}

function Aside({ pack, info, policy, kind }: { pack: Pack; info: PackInfo; policy: Policy | undefined; kind: Kind }): JSX.Element {
  return (
    <div class="packaside">
      <Section title="Sections"><Sections pack={pack} info={info} policy={policy} kind={kind} /></Section>
      <Section title="Left out">
        {pack.left_out.length === 0 ? <p class="dim">Nothing was left out.</p>
          : <ul class="leftout">{pack.left_out.map((one, at) => <li key={at}>{one.what}<span class="dim">{one.why}</span></li>)}</ul>}
      </Section>
      <Section title="Sources" aside={plural(pack.sources.length, 'source')}>
        {pack.sources.length === 0 ? <p class="dim">None yet.</p>
          : <ul class="madefrom">{pack.sources.map((one) => <li key={one}><Source name={one} /></li>)}</ul>}
      </Section>
    </div>
  );
}

function Compare({ request, pack, to, onTo }: { request: PackRequest; pack: Pack; to: string; onTo: (date: string) => void }): JSX.Element {
  const other = usePack({ ...request, date: to });
  const [old, now] = to <= pack.date ? [other.value, pack] : [pack, other.value];
  return (
    <>
      <div class="packform">
        <TextField label="Compare with day" type="date" value={to} onInput={onTo} />
        <div class="steps" role="group" aria-label="Compare with">
          {([['the day before', 1], ['a week before', 7], ['a month before', 30]] as const).map(([label, days]) => (
            <Button key={days} small pressed={to === plusDays(pack.date, -days)} onClick={() => onTo(plusDays(pack.date, -days))}>{label}</Button>
          ))}
        </div>
      </div>
      <RequestView of={other} what="Assembling the other pack">
        {() => old && now && (
          <>
            <p class="dim">From {dayName(old.date)} ({plural(old.words, 'word')}) to {dayName(now.date)} ({plural(now.words, 'word')}).</p>
            <Diff old={old.text} now={now.text} label={`Changes from ${dayName(old.date)} to ${dayName(now.date)}`} />
          </>
        )}
      </RequestView>
    </>
  );
}

function Conversation({ value, onChange }: { value: string; onChange: (value: string) => void }): JSX.Element {
  const all = useGet('/api/conversations', {});
  return (
    <RequestView of={all}>
      {(found) => found.conversations.length === 0
        ? <p class="dim">There are no conversations yet. Connect a chat client to this server, or run <code>icecore chat</code>.</p>
        : <Select label="Conversation" value={value} onChange={onChange} options={[['', 'Choose one'], ...found.conversations.map(({ conversation }) => [conversation, conversation] as const)]} />}
    </RequestView>
  );
}

function Page({ route }: { route: Route }): JSX.Element {
  const now = parsePackRequest(route);
  const info = PACKS[now.kind];
  const settled = useDebounced(JSON.stringify(now), 250);
  // Selections take effect immediately; only typed text is debounced.
  const waiting = (JSON.parse(settled) as PackRequest).kind === now.kind ? (JSON.parse(settled) as PackRequest) : now;
  const request: PackRequest = { ...now, date: info.dated ? now.date : '', budget: waiting.budget, scope: waiting.scope, prompt: waiting.prompt };
  const pack = usePack(request);
  const config = useGet('/api/config', {});
  const policy = config.value;
  useTitle(`${info.title} pack`);
  useLive(['ledger', 'summaries', 'messages', 'knowledge', 'logs', 'reviews'], () => pack.reload(), 1_000);
  const display = (route.query.get('as') ?? 'read') as Display;
  const to = route.query.get('to') ?? '';
  const change = (changed: Partial<PackRequest> & { as?: string; to?: string }): void => {
    const { kind, ...rest } = { ...now, as: route.query.get('as') ?? '', to, ...changed };
    go(['packs', kind], { ...rest, as: rest.as === 'read' ? '' : rest.as }, true);
  };
  const shownDate = now.date === '' ? pack.value?.date ?? '' : now.date;
  const room = Number(now.budget) > 0 && info.budgeted ? Number(now.budget) : policy && info.defaultBudget(policy);
  const displays: readonly (readonly [Display, string])[] = info.dated ? [['read', 'Line by line'], ['raw', 'Raw'], ['compare', 'Compare']] : [['read', 'Line by line'], ['raw', 'Raw']];
  const current = displays.some(([one]) => one === display) ? display : 'read';
  return (
    <>
      <div class="viewhead"><h1>Packs</h1><p class="dim">The context that an assistant gets from your memory, verbatim.</p></div>
      <nav class="packkinds" aria-label="Kinds of packs">
        {KINDS.map((kind) => <a key={kind} class="button" aria-current={kind === now.kind ? 'page' : undefined} href={href(['packs', kind], PACKS[kind].dated ? { date: now.date } : {})}>{PACKS[kind].title}</a>)}
      </nav>
      <p class="packsays">{info.description}</p>
      <form class="packform" aria-label="Which pack" onSubmit={(event) => event.preventDefault()}>
        {info.dated && (
          <>
            <TextField label="Day" type="date" value={shownDate} onInput={(date) => change({ date })} />
            <div class="steps" role="group" aria-label="Another day">
              <Button small label="The day before" disabled={shownDate === ''} onClick={() => change({ date: plusDays(shownDate, -1) })}>‹</Button>
              <Button small label="The day after" disabled={shownDate === ''} onClick={() => change({ date: plusDays(shownDate, 1) })}>›</Button>
              <Button small pressed={now.date === ''} onClick={() => change({ date: '' })}>Today</Button>
            </div>
          </>
        )}
        {now.kind === 'recall' && <TextField label="Scope" value={now.scope} placeholder="project:shop" onInput={(scope) => change({ scope })} />}
        {now.kind === 'session-start' && <Select label="Session" value={now.session === 'side' ? 'side' : 'main'} options={[['main', 'main session'], ['side', 'side session']]} onChange={(session) => change({ session })} />}
        {now.kind === 'chat' && <Conversation value={now.conversation} onChange={(conversation) => change({ conversation })} />}
        {(now.kind === 'delta' || now.kind === 'chat') && <div class="grows"><TextField label={now.kind === 'delta' ? 'Prompt' : 'Next message'} value={now.prompt} placeholder="What do we deploy on Monday?" onInput={(prompt) => change({ prompt })} /></div>}
        {info.budgeted && <TextField label={`Limit in ${info.unit}`} type="number" value={now.budget} placeholder={policy ? String(info.defaultBudget(policy)) : ''} onInput={(budget) => change({ budget })} />}
      </form>
      {now.kind === 'delta' && now.prompt.trim() === '' && <EmptyState title="Write a prompt to see the context it would get."><p>A prompt loads the pages whose trigger words it contains, and the oldest open commitments.</p></EmptyState>}
      {now.kind === 'chat' && now.conversation === '' && <EmptyState title="Choose a conversation to see the context the model would get." />}
      <RequestView of={pack} what="Assembling the pack">
        {(value) => (
          <div class="packpage">
            <section class="section" aria-label="The pack">
              <header>
                <h2>{info.title}, {dayName(value.date)}</h2>
                <div class="aside"><CopyButton text={() => value.text} /> <Button small onClick={() => download(value)}>Download</Button></div>
              </header>
              <div class="packtotal">
                <p>{room === undefined ? formatAmount(usedAmount(value, info.unit), info.unit) : `${info.unit === 'bytes' ? bytes(usedAmount(value, 'bytes')) : number(usedAmount(value, info.unit))} of ${formatAmount(room, info.unit)}`} <span class="dim">· {otherUnits(value, info.unit)}</span></p>
                {room !== undefined && <Bar part={usedAmount(value, info.unit)} whole={room} />}
              </div>
              <Tabs label="Display" tabs={displays} current={current} onChange={(as) => change({ as, ...(as === 'compare' && to === '' ? { to: plusDays(value.date, -7) } : {}) })}>
                {current === 'read' && (value.sources.length === 0 && value.sections.every((one) => one.words <= 2)
                  ? <EmptyState title="This pack is empty."><p>Remember something with <code>icecore remember "Never deploy on Fridays" --priority P0</code>, or store a conversation with <code>icecore session add talk.md</code>.</p></EmptyState>
                  : <PackLines text={value.text} />)}
                {current === 'raw' && <pre class="packraw">{value.text}</pre>}
                {current === 'compare' && <Compare request={request} pack={value} to={to === '' ? plusDays(value.date, -7) : to} onTo={(date) => change({ to: date })} />}
              </Tabs>
            </section>
            <Aside pack={value} info={info} policy={policy} kind={now.kind} />
          </div>
        )}
      </RequestView>
    </>
  );
}

export const packs: View = {
  id: 'packs',
  title: 'Packs',
  key: 'p',
  icon: 'M12 3 4 7v10l8 4 8-4V7l-8-4ZM4 7l8 4 8-4M12 11v10M8 5l8 4',
  Page,
};
