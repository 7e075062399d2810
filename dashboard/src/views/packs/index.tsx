// Packs: the context that an assistant gets, for any day and budget: its sections, what was left out, and the source of each line.
import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { Answer, Schema } from '../../lib/api.ts';
import { get, useAnswer, useGet } from '../../lib/api.ts';
import { bytes, day as dayName, many, number, period, plusDays } from '../../lib/format.ts';
import { useSettled, useTitle } from '../../lib/hooks.ts';
import { useRows } from '../../lib/keys.ts';
import { useLive } from '../../lib/live.ts';
import { go, href } from '../../lib/route.ts';
import type { Route } from '../../lib/route.ts';
import { Bar } from '../../ui/bar.tsx';
import { Diff } from '../../ui/diff.tsx';
import { MarkdownLine } from '../../ui/markdown.tsx';
import { Button, Choice, Copy, Empty, Section, Shown, Tabs, Text, classes, say } from '../../ui/parts.tsx';
import { Why } from '../../ui/why.tsx';
import type { View } from '../view.ts';
import './packs.css';

type Pack = Schema['Pack'];
type Policy = Schema['Policy'];
type Unit = 'words' | 'tokens' | 'bytes' | 'characters';
const KINDS = ['recall', 'session-start', 'upload', 'pyramid', 'delta', 'chat'] as const;
type Kind = (typeof KINDS)[number];
type Face = 'read' | 'raw' | 'compare';

interface About {
  title: string;
  says: string;
  /** The unit of its size, and the default budget. */
  unit: Unit;
  room: (policy: Policy) => number;
  dated: boolean;
  /** Whether the budget can be changed. */
  bounded: boolean;
}

const ABOUT: Record<Kind, About> = {
  recall: { title: 'Recall', says: 'The essentials for today, on one page of eight sections.', unit: 'words', room: (policy) => recallRooms(policy).reduce((sum, room) => sum + room, policy.recall.buffer_words), dated: true, bounded: false },
  'session-start': { title: 'Session start', says: 'The context at the start of a coding session: the recall pack, the saved state, the last logs. Your own files and the saved state are always the current ones.', unit: 'characters', room: () => 9_000, dated: true, bounded: true },
  upload: { title: 'Upload', says: 'The context for a new session in another client: the latest month, this week, today.', unit: 'bytes', room: (policy) => policy.budget.upload_bytes, dated: true, bounded: true },
  pyramid: { title: 'Pyramid', says: 'Yesterday and today in full, then days, weeks, months and years.', unit: 'tokens', room: (policy) => policy.budget.pyramid_tokens, dated: true, bounded: true },
  delta: { title: 'Delta', says: 'The context for one prompt: the oldest open commitments, and the pages that its words trigger.', unit: 'characters', room: (policy) => policy.recall.max_chars_per_prompt, dated: true, bounded: true },
  chat: { title: 'Chat', says: 'The context that a chat model gets before the next turn of a conversation.', unit: 'tokens', room: (policy) => policy.chat.max_memory_tokens, dated: false, bounded: false },
};

// The order of the recall pack's sections.
function recallRooms({ recall }: Policy): number[] {
  return [recall.p0_words, recall.mantra_words, recall.open_words, recall.waiting_words, recall.focus_words, recall.context_words, recall.procedures_words, recall.accounts_words];
}

interface Asked {
  kind: Kind;
  date: string;
  budget: string;
  scope: string;
  session: string;
  prompt: string;
  conversation: string;
}

function asked(route: Route): Asked {
  const { query } = route;
  const kind = KINDS.find((one) => one === route.rest[0]) ?? 'recall';
  const read = (name: string): string => query.get(name) ?? '';
  return { kind, date: read('date'), budget: read('budget'), scope: read('scope'), session: read('session'), prompt: read('prompt'), conversation: read('conversation') };
}

/** Requests a pack. */
function fetched(what: Asked, signal: AbortSignal): Promise<Pack> {
  const date = what.date === '' ? {} : { date: what.date };
  const budget = Number(what.budget) > 0 ? { budget: Number(what.budget) } : {};
  switch (what.kind) {
    case 'recall':
      return get('/api/packs/recall', { query: { ...date, ...(what.scope === '' ? {} : { scope: what.scope.split(/[\s,]+/).filter(Boolean) }) } }, signal);
    case 'session-start':
      return get('/api/packs/session-start', { query: { ...date, ...budget, ...(what.session === 'side' ? { kind: 'side' as const } : {}) } }, signal);
    case 'upload':
      return get('/api/packs/upload', { query: { ...date, ...budget } }, signal);
    case 'pyramid':
      return get('/api/packs/pyramid', { query: { ...date, ...budget } }, signal);
    case 'delta':
      return get('/api/packs/delta', { query: { prompt: what.prompt, ...date, ...budget } }, signal);
    case 'chat':
      return get('/api/packs/chat', { query: { conversation: what.conversation, ...(what.prompt === '' ? {} : { prompt: what.prompt }) } }, signal);
  }
}

function usePack(what: Asked | undefined): Answer<Pack> {
  const ready = what !== undefined && (what.kind !== 'delta' || what.prompt.trim() !== '') && (what.kind !== 'chat' || what.conversation !== '');
  return useAnswer(ready ? (signal) => fetched(what, signal) : undefined, JSON.stringify(what));
}

function used(pack: Pack, unit: Unit): number {
  return unit === 'characters' ? [...pack.text].length : pack[unit];
}

function amount(value: number, unit: Unit): string {
  return unit === 'bytes' ? bytes(value) : `${number(value)} ${unit}`;
}

/** Its size in the other units. */
function also(pack: Pack, unit: Unit): string {
  const told: [Unit, string][] = [['words', many(pack.words, 'word')], ['tokens', `about ${many(pack.tokens, 'token')}`], ['bytes', bytes(pack.bytes)]];
  return told.filter(([one]) => one !== unit).map(([, said]) => said).join(', ');
}

/** A line of a pack, with its source on demand. */
function Line({ text, top }: { text: string; top: number }): JSX.Element | null {
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
      {open && <div class="because">{at !== undefined && <p>Logged on <a href={href(['core', at])}>{dayName(at)}</a>.</p>}<Why of={words} /></div>}
    </li>
  );
}

function AsRead({ text }: { text: string }): JSX.Element {
  const rows = useRows<HTMLOListElement>();
  const lines = useMemo(() => text.split('\n'), [text]);
  // A pack may begin with any heading level; for screen readers the levels have no gaps.
  const top = useMemo(() => lines.map((line) => /^(#{1,6})\s/.exec(line)?.[1]?.length).find((level) => level !== undefined) ?? 1, [lines]);
  return <ol class="packlines" ref={rows}>{lines.map((line, at) => <Line key={`${at} ${line}`} text={line} top={top} />)}</ol>;
}

function download(pack: Pack): void {
  const address = URL.createObjectURL(new Blob([pack.text], { type: 'text/markdown;charset=utf-8' }));
  const link = document.createElement('a');
  link.href = address;
  link.download = `icecore-${pack.kind}-${pack.date}.md`;
  link.click();
  // The download has started by then; release the memory.
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
  say(`Saved as ${link.download}`);
}

function Sections({ pack, about, policy, kind }: { pack: Pack; about: About; policy: Policy | undefined; kind: Kind }): JSX.Element {
  const rooms = kind === 'recall' && policy ? recallRooms(policy) : undefined;
  const total = pack.sections.reduce((sum, one) => sum + one.words, 0);
  if (pack.sections.length === 0) return <p class="dim">This pack has no sections: {many(pack.words, 'word')}.</p>;
  return (
    <>
      <ul class="packsections">
        {pack.sections.map((one, at) => {
          const room = rooms?.[at];
          // An empty section contains the line `none`, which does not count.
          const words = pack.text.includes(`## ${one.title}\n- none\n`) ? 0 : one.words;
          return (
            <li key={at}>
              <span class="title">{one.title}</span>
              <span class="figures">{room === undefined ? many(words, 'word') : `${number(words)} of ${many(room, 'word')}`}</span>
              <Bar part={words} whole={room ?? total} />
            </li>
          );
        })}
      </ul>
      <p class="dim small">{rooms && policy
        ? `A section that exceeds its budget uses the shared buffer of ${many(policy.recall.buffer_words, 'word')}.`
        : `The bars show each section's share of the ${many(total, 'word')}; the limit in ${about.unit} applies to the whole pack.`}</p>
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

function Aside({ pack, about, policy, kind }: { pack: Pack; about: About; policy: Policy | undefined; kind: Kind }): JSX.Element {
  return (
    <div class="packaside">
      <Section title="Sections"><Sections pack={pack} about={about} policy={policy} kind={kind} /></Section>
      <Section title="Left out">
        {pack.left_out.length === 0 ? <p class="dim">Nothing was left out.</p>
          : <ul class="leftout">{pack.left_out.map((one, at) => <li key={at}>{one.what}<span class="dim">{one.why}</span></li>)}</ul>}
      </Section>
      <Section title="Sources" aside={many(pack.sources.length, 'source')}>
        {pack.sources.length === 0 ? <p class="dim">None yet.</p>
          : <ul class="madefrom">{pack.sources.map((one) => <li key={one}><Source name={one} /></li>)}</ul>}
      </Section>
    </div>
  );
}

function Compare({ what, pack, to, onTo }: { what: Asked; pack: Pack; to: string; onTo: (date: string) => void }): JSX.Element {
  const other = usePack({ ...what, date: to });
  const [old, now] = to <= pack.date ? [other.value, pack] : [pack, other.value];
  return (
    <>
      <div class="packform">
        <Text label="Compare with day" type="date" value={to} onInput={onTo} />
        <div class="steps" role="group" aria-label="Compare with">
          {([['the day before', 1], ['a week before', 7], ['a month before', 30]] as const).map(([said, days]) => (
            <Button key={days} small pressed={to === plusDays(pack.date, -days)} onClick={() => onTo(plusDays(pack.date, -days))}>{said}</Button>
          ))}
        </div>
      </div>
      <Shown of={other} what="Assembling the other pack">
        {() => old && now && (
          <>
            <p class="dim">From {dayName(old.date)} ({many(old.words, 'word')}) to {dayName(now.date)} ({many(now.words, 'word')}).</p>
            <Diff old={old.text} now={now.text} label={`Changes from ${dayName(old.date)} to ${dayName(now.date)}`} />
          </>
        )}
      </Shown>
    </>
  );
}

function Conversation({ value, onChange }: { value: string; onChange: (value: string) => void }): JSX.Element {
  const all = useGet('/api/conversations', {});
  return (
    <Shown of={all}>
      {(found) => found.conversations.length === 0
        ? <p class="dim">There are no conversations yet. Connect a chat client to this server, or run <code>icecore chat</code>.</p>
        : <Choice label="Conversation" value={value} onChange={onChange} options={[['', 'Choose one'], ...found.conversations.map(({ conversation }) => [conversation, conversation] as const)]} />}
    </Shown>
  );
}

function Page({ route }: { route: Route }): JSX.Element {
  const now = asked(route);
  const about = ABOUT[now.kind];
  const settled = useSettled(JSON.stringify(now), 250);
  // Selections take effect immediately; only typed text is debounced.
  const waiting = (JSON.parse(settled) as Asked).kind === now.kind ? (JSON.parse(settled) as Asked) : now;
  const what: Asked = { ...now, date: about.dated ? now.date : '', budget: waiting.budget, scope: waiting.scope, prompt: waiting.prompt };
  const pack = usePack(what);
  const config = useGet('/api/config', {});
  const policy = config.value;
  useTitle(`${about.title} pack`);
  useLive(['ledger', 'summaries', 'messages', 'knowledge', 'logs', 'reviews'], () => pack.again(), 1_000);
  const face = (route.query.get('as') ?? 'read') as Face;
  const to = route.query.get('to') ?? '';
  const change = (changed: Partial<Asked> & { as?: string; to?: string }): void => {
    const { kind, ...rest } = { ...now, as: route.query.get('as') ?? '', to, ...changed };
    go(['packs', kind], { ...rest, as: rest.as === 'read' ? '' : rest.as }, true);
  };
  const shownDate = now.date === '' ? pack.value?.date ?? '' : now.date;
  const room = Number(now.budget) > 0 && about.bounded ? Number(now.budget) : policy && about.room(policy);
  const faces: readonly (readonly [Face, string])[] = about.dated ? [['read', 'Line by line'], ['raw', 'Raw'], ['compare', 'Compare']] : [['read', 'Line by line'], ['raw', 'Raw']];
  const current = faces.some(([one]) => one === face) ? face : 'read';
  return (
    <>
      <div class="viewhead"><h1>Packs</h1><p class="dim">The context that an assistant gets from your memory, verbatim.</p></div>
      <nav class="packkinds" aria-label="Kinds of packs">
        {KINDS.map((kind) => <a key={kind} class="button" aria-current={kind === now.kind ? 'page' : undefined} href={href(['packs', kind], ABOUT[kind].dated ? { date: now.date } : {})}>{ABOUT[kind].title}</a>)}
      </nav>
      <p class="packsays">{about.says}</p>
      <form class="packform" aria-label="Which pack" onSubmit={(event) => event.preventDefault()}>
        {about.dated && (
          <>
            <Text label="Day" type="date" value={shownDate} onInput={(date) => change({ date })} />
            <div class="steps" role="group" aria-label="Another day">
              <Button small label="The day before" disabled={shownDate === ''} onClick={() => change({ date: plusDays(shownDate, -1) })}>‹</Button>
              <Button small label="The day after" disabled={shownDate === ''} onClick={() => change({ date: plusDays(shownDate, 1) })}>›</Button>
              <Button small pressed={now.date === ''} onClick={() => change({ date: '' })}>Today</Button>
            </div>
          </>
        )}
        {now.kind === 'recall' && <Text label="Scope" value={now.scope} placeholder="project:shop" onInput={(scope) => change({ scope })} />}
        {now.kind === 'session-start' && <Choice label="Session" value={now.session === 'side' ? 'side' : 'main'} options={[['main', 'main session'], ['side', 'side session']]} onChange={(session) => change({ session })} />}
        {now.kind === 'chat' && <Conversation value={now.conversation} onChange={(conversation) => change({ conversation })} />}
        {(now.kind === 'delta' || now.kind === 'chat') && <div class="grows"><Text label={now.kind === 'delta' ? 'Prompt' : 'Next message'} value={now.prompt} placeholder="What do we deploy on Monday?" onInput={(prompt) => change({ prompt })} /></div>}
        {about.bounded && <Text label={`Limit in ${about.unit}`} type="number" value={now.budget} placeholder={policy ? String(about.room(policy)) : ''} onInput={(budget) => change({ budget })} />}
      </form>
      {now.kind === 'delta' && now.prompt.trim() === '' && <Empty title="Write a prompt to see the context it would get."><p>A prompt loads the pages whose trigger words it contains, and the oldest open commitments.</p></Empty>}
      {now.kind === 'chat' && now.conversation === '' && <Empty title="Choose a conversation to see the context the model would get." />}
      <Shown of={pack} what="Assembling the pack">
        {(value) => (
          <div class="packpage">
            <section class="section" aria-label="The pack">
              <header>
                <h2>{about.title}, {dayName(value.date)}</h2>
                <div class="aside"><Copy text={() => value.text} /> <Button small onClick={() => download(value)}>Download</Button></div>
              </header>
              <div class="packtotal">
                <p>{room === undefined ? amount(used(value, about.unit), about.unit) : `${about.unit === 'bytes' ? bytes(used(value, 'bytes')) : number(used(value, about.unit))} of ${amount(room, about.unit)}`} <span class="dim">· {also(value, about.unit)}</span></p>
                {room !== undefined && <Bar part={used(value, about.unit)} whole={room} />}
              </div>
              <Tabs label="Display" tabs={faces} current={current} onChange={(as) => change({ as, ...(as === 'compare' && to === '' ? { to: plusDays(value.date, -7) } : {}) })}>
                {current === 'read' && (value.sources.length === 0 && value.sections.every((one) => one.words <= 2)
                  ? <Empty title="This pack is empty."><p>Remember something with <code>icecore remember "Never deploy on Fridays" --priority P0</code>, or store a conversation with <code>icecore session add talk.md</code>.</p></Empty>
                  : <AsRead text={value.text} />)}
                {current === 'raw' && <pre class="packraw">{value.text}</pre>}
                {current === 'compare' && <Compare what={what} pack={value} to={to === '' ? plusDays(value.date, -7) : to} onTo={(date) => change({ to: date })} />}
              </Tabs>
            </section>
            <Aside pack={value} about={about} policy={policy} kind={now.kind} />
          </div>
        )}
      </Shown>
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
