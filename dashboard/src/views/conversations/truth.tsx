// The base truth of a conversation: what was established, now or at the end of any turn, and what changed between two turns.
import type { JSX } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import type { Reply, Schema } from '../../lib/api.ts';
import { post, useDoing, useGet } from '../../lib/api.ts';
import { compare, words } from '../../lib/diff.ts';
import { many, moment } from '../../lib/format.ts';
import { go, href } from '../../lib/route.ts';
import { Button, Choice, Dialog, Empty, ErrorBox, Section, Tag, classes, say } from '../../ui/parts.tsx';

export type Whole = Reply<'/api/conversations/{name}'>;
type Fact = Schema['Fact'];

/** The last value there was: a slider that is moved shows no gaps. */
function useKept<T>(value: T | undefined): T | undefined {
  const kept = useRef<T>();
  if (value !== undefined) kept.current = value;
  return value ?? kept.current;
}

interface TruthProps {
  whole: Whole;
  /** The turn that is looked at; the newest if there is none. */
  turn: number | undefined;
  /** The turn it is compared with; the one before if there is none. */
  against: number | undefined;
  mayWrite: boolean;
}

/** From the beginning to now, turn by turn. */
function Slider({ last, turn, whole, onTurn }: { last: number; turn: number; whole: Whole; onTurn: (turn: number) => void }): JSX.Element {
  const id = useId();
  const established = new Map<number, number>();
  for (const fact of whole.facts) if (fact.turn !== null) established.set(fact.turn, (established.get(fact.turn) ?? 0) + 1);
  const said = turn === 0 ? 'before the first turn' : turn === last ? `turn ${turn}, now` : `turn ${turn} of ${last}`;
  return (
    <div class="slider">
      <label for={id}>{turn === 0 ? 'As it was ' : 'At the end of '}<strong>{said}</strong></label>
      <div class="track">
        <Button small label="One turn back" disabled={turn <= 0} onClick={() => onTurn(turn - 1)}>‹</Button>
        <div class="range">
          <svg viewBox={`0 0 ${Math.max(last, 1) * 10} 12`} preserveAspectRatio="none" aria-hidden="true">
            {whole.turns.map((one) => <rect key={one.turn} class={classes(one.turn <= turn && 'past', one.state !== 'summarized' && 'raw')} x={one.turn * 10 - 2.5} width="5" y={12 - Math.min(2 + 3 * (established.get(one.turn) ?? 0), 12)} height={Math.min(2 + 3 * (established.get(one.turn) ?? 0), 12)} />)}
          </svg>
          <input id={id} type="range" min={0} max={last} step={1} value={turn} aria-valuetext={said} onInput={(event) => onTurn(Number(event.currentTarget.value))} />
        </div>
        <Button small label="One turn on" disabled={turn >= last} onClick={() => onTurn(turn + 1)}>›</Button>
        <Button small disabled={turn === last} onClick={() => onTurn(last)}>Now</Button>
      </div>
    </div>
  );
}

/** A fact that became another, word by word. */
function Changed({ old, now }: { old: string; now: string }): JSX.Element {
  const parts = compare(words(old), words(now));
  return <>{parts.map((part, at) => part.kind === 'same' ? part.what : part.kind === 'added' ? <ins key={at}>{part.what}</ins> : <del key={at}>{part.what}</del>)}</>;
}

function Between({ name, from, to }: { name: string; from: number; to: number }): JSX.Element {
  const changes = useGet('/api/conversations/{name}/diff', { path: { name }, query: { from, to } });
  const value = useKept(changes.value);
  if (changes.failure) return <ErrorBox failure={changes.failure} again={changes.again} />;
  if (!value) return <p class="loading">Comparing…</p>;
  if (value.added.length + value.changed.length + value.removed.length === 0) return <p class="dim">Nothing that was established changed.</p>;
  return (
    <ul class="changes">
      {value.added.map((text) => <li key={`+${text}`} class="added"><span class="sign" aria-hidden="true">+</span><span class="unseen">added: </span>{text}</li>)}
      {value.changed.map((one) => <li key={`~${one.old}`} class="changed"><span class="sign" aria-hidden="true">~</span><span class="unseen">changed: </span><span><Changed old={one.old} now={one.new} /></span></li>)}
      {value.removed.map((text) => <li key={`-${text}`} class="removed"><span class="sign" aria-hidden="true">−</span><span class="unseen">removed: </span><del>{text}</del></li>)}
    </ul>
  );
}

/** Asks once, then tells a fact to all conversations. */
function Lifting({ name, fact, onClose }: { name: string; fact: Fact; onClose: () => void }): JSX.Element {
  const [lifted, setLifted] = useState<string>();
  const lifting = useDoing(async () => {
    const told = await post('/api/conversations/{name}/promote', { path: { name }, body: { id: fact.id } });
    say('It holds everywhere now');
    setLifted(told.id);
  });
  return (
    <Dialog title={lifted === undefined ? 'Let this hold everywhere?' : 'It holds everywhere now'} open onClose={onClose}
      foot={lifted === undefined ? <><Button onClick={onClose}>Leave it</Button><Button kind="main" busy={lifting.busy} onClick={() => void lifting.run()}>Let it hold everywhere</Button></> : <Button kind="main" onClick={onClose}>Good</Button>}>
      <blockquote class="quoted">{fact.text}</blockquote>
      {lifted === undefined ? <p>It goes from this conversation into the ledger, and every conversation is told it.</p> : <p>It is <a href={href(['ledger', lifted])}>{lifted}</a> in the ledger. Retract it there to take it back.</p>}
      {lifting.failure && <ErrorBox failure={lifting.failure} />}
    </Dialog>
  );
}

function Facts({ name, facts, turn, mayWrite }: { name: string; facts: readonly Fact[]; turn: number; mayWrite: boolean }): JSX.Element {
  const [lifting, setLifting] = useState<Fact>();
  return (
    <>
      <ul class="rows facts">
        {facts.map((fact) => (
          <li key={fact.id} class={classes(fact.turn === turn && 'fresh')}>
            <p>{fact.text}{fact.hard && <Tag kind="strong" title="It says must, never or the like, and is always told">hard</Tag>}{fact.turn === turn && <Tag kind="ice">new in this turn</Tag>}</p>
            <p class="meta">{fact.turn === null ? 'from before the turn log' : <a href={href(['conversations', name, 'turns'], { open: fact.turn })}>turn {fact.turn}</a>}<span>{moment(fact.since)}</span>{mayWrite && <button type="button" class="link" onClick={() => setLifting(fact)}>let it hold everywhere<span class="unseen">: {fact.text}</span></button>}</p>
          </li>
        ))}
      </ul>
      {lifting && <Lifting name={name} fact={lifting} onClose={() => setLifting(undefined)} />}
    </>
  );
}

export function Truth({ whole, turn: wanted, against, mayWrite }: TruthProps): JSX.Element {
  const name = whole.conversation;
  const last = Math.max(0, ...whole.turns.map((one) => one.turn));
  const turn = Math.min(wanted ?? last, last);
  const from = Math.min(against ?? Math.max(turn - 1, 0), last);
  // The address follows a moment later: a slider that is pulled would else write a hundred of them.
  const [pulled, setPulled] = useState(turn);
  useEffect(() => setPulled(turn), [turn, name]);
  useEffect(() => {
    if (pulled === turn) return;
    const timer = setTimeout(() => go(['conversations', name], { turn: pulled === last ? undefined : pulled, against }, true), 120);
    return () => clearTimeout(timer);
  }, [pulled]);
  const then = useGet('/api/conversations/{name}/facts', turn === last ? undefined : { path: { name }, query: { turn } });
  const facts = useKept(turn === last ? whole.facts : then.value?.facts);
  const line = whole.turns.find((one) => one.turn === turn);
  const turns = (most: string): (readonly [string, string])[] => [['', most], ['0', 'the beginning'], ...whole.turns.map((one) => [String(one.turn), `turn ${one.turn}`] as const)];
  return (
    <div class="truth">
      <section class="section slide" aria-label="The turn that is looked at">
        <Slider last={last} turn={pulled} whole={whole} onTurn={setPulled} />
        {line && <p class="exchange"><span class="user">{line.user_summary}</span><span class="assistant">{line.assistant_summary}</span> <a href={href(['conversations', name, 'turns'], { open: line.turn })}>its words</a></p>}
      </section>
      <Section title="What was established" aside={facts && many(facts.length, 'fact')}>
        {then.failure && <ErrorBox failure={then.failure} again={then.again} />}
        {facts && (facts.length === 0 ? <Empty title={turn === 0 ? 'Nothing yet: this is before the first turn.' : 'Nothing was established until here.'} /> : <Facts name={name} facts={facts} turn={turn} mayWrite={mayWrite && turn === last} />)}
      </Section>
      <Section title={from <= turn ? `What changed since ${from === 0 ? 'the beginning' : `turn ${from}`}` : `What would change back, from turn ${from} to ${turn === 0 ? 'the beginning' : `turn ${turn}`}`}
        aside={<Choice label="Compare with" value={against === undefined ? '' : String(against)} options={turns('the turn before')} onChange={(next) => go(['conversations', name], { turn: turn === last ? undefined : turn, against: next === '' ? undefined : Number(next) }, true)} />}>
        {from === turn ? <p class="dim">{turn === 0 ? 'There is nothing before the beginning.' : 'This is one and the same turn.'}</p> : <Between name={name} from={from} to={turn} />}
      </Section>
    </div>
  );
}
