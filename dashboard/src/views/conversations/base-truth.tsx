// The base truth of a conversation: its facts now or at the end of any turn, and the changes between two turns.
import type { JSX } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import type { Reply, Schema } from '../../lib/api.ts';
import { post, useAction, useGet } from '../../lib/api.ts';
import { diff, words } from '../../lib/diff.ts';
import { plural, moment } from '../../lib/format.ts';
import { go, href } from '../../lib/route.ts';
import { Button, Select, Dialog, EmptyState, ErrorBox, Section, Tag, classes, showToast } from '../../ui/components.tsx';

export type Conversation = Reply<'/api/conversations/{name}'>;
type Fact = Schema['Fact'];

/** The last defined value: moving the slider leaves no gaps. */
function useLastDefined<T>(value: T | undefined): T | undefined {
  const lastDefined = useRef<T>();
  if (value !== undefined) lastDefined.current = value;
  return value ?? lastDefined.current;
}

interface BaseTruthProps {
  whole: Conversation;
  /** The selected turn; the newest by default. */
  turn: number | undefined;
  /** The turn to compare with; the one before by default. */
  against: number | undefined;
  mayWrite: boolean;
}

/** The slider over all turns. */
function TurnSlider({ last, turn, whole, onTurn }: { last: number; turn: number; whole: Conversation; onTurn: (turn: number) => void }): JSX.Element {
  const id = useId();
  const established = new Map<number, number>();
  for (const fact of whole.facts) if (fact.turn !== null) established.set(fact.turn, (established.get(fact.turn) ?? 0) + 1);
  const position = turn === 0 ? 'before the first turn' : turn === last ? `turn ${turn}, now` : `turn ${turn} of ${last}`;
  return (
    <div class="slider">
      <label for={id}>{turn === 0 ? 'State ' : 'State after '}<strong>{position}</strong></label>
      <div class="track">
        <Button small label="Previous turn" disabled={turn <= 0} onClick={() => onTurn(turn - 1)}>‹</Button>
        <div class="range">
          <svg viewBox={`0 0 ${Math.max(last, 1) * 10} 12`} preserveAspectRatio="none" aria-hidden="true">
            {whole.turns.map((one) => <rect key={one.turn} class={classes(one.turn <= turn && 'past', one.state !== 'summarized' && 'raw')} x={one.turn * 10 - 2.5} width="5" y={12 - Math.min(2 + 3 * (established.get(one.turn) ?? 0), 12)} height={Math.min(2 + 3 * (established.get(one.turn) ?? 0), 12)} />)}
          </svg>
          <input id={id} type="range" min={0} max={last} step={1} value={turn} aria-valuetext={position} onInput={(event) => onTurn(Number(event.currentTarget.value))} />
        </div>
        <Button small label="Next turn" disabled={turn >= last} onClick={() => onTurn(turn + 1)}>›</Button>
        <Button small disabled={turn === last} onClick={() => onTurn(last)}>Now</Button>
      </div>
    </div>
  );
}

/** The change of a fact, word by word. */
function WordDiff({ old, now }: { old: string; now: string }): JSX.Element {
  const parts = diff(words(old), words(now));
  return <>{parts.map((part, at) => part.kind === 'same' ? part.value : part.kind === 'added' ? <ins key={at}>{part.value}</ins> : <del key={at}>{part.value}</del>)}</>;
}

function FactChanges({ name, from, to }: { name: string; from: number; to: number }): JSX.Element {
  const changes = useGet('/api/conversations/{name}/diff', { path: { name }, query: { from, to } });
  const value = useLastDefined(changes.value);
  if (changes.failure) return <ErrorBox failure={changes.failure} again={changes.reload} />;
  if (!value) return <p class="loading">Comparing…</p>;
  if (value.added.length + value.changed.length + value.removed.length === 0) return <p class="dim">No facts changed.</p>;
  return (
    <ul class="changes">
      {value.added.map((text) => <li key={`+${text}`} class="added"><span class="sign" aria-hidden="true">+</span><span class="unseen">added: </span>{text}</li>)}
      {value.changed.map((one) => <li key={`~${one.old}`} class="changed"><span class="sign" aria-hidden="true">~</span><span class="unseen">changed: </span><span><WordDiff old={one.old} now={one.new} /></span></li>)}
      {value.removed.map((text) => <li key={`-${text}`} class="removed"><span class="sign" aria-hidden="true">−</span><span class="unseen">removed: </span><del>{text}</del></li>)}
    </ul>
  );
}

/** Confirms, then promotes a fact to the ledger, so that every conversation gets it. */
function PromoteDialog({ name, fact, onClose }: { name: string; fact: Fact; onClose: () => void }): JSX.Element {
  const [promotedId, setPromotedId] = useState<string>();
  const promotion = useAction(async () => {
    const reply = await post('/api/conversations/{name}/promote', { path: { name }, body: { id: fact.id } });
    showToast('Promoted to the ledger');
    setPromotedId(reply.id);
  });
  return (
    <Dialog title={promotedId === undefined ? 'Promote this fact to the ledger?' : 'Promoted to the ledger'} open onClose={onClose}
      foot={promotedId === undefined ? <><Button onClick={onClose}>Cancel</Button><Button kind="main" busy={promotion.busy} onClick={() => void promotion.run()}>Promote</Button></> : <Button kind="main" onClick={onClose}>Close</Button>}>
      <blockquote class="quoted">{fact.text}</blockquote>
      {promotedId === undefined ? <p>It becomes an event in the ledger and applies to every conversation.</p> : <p>The event is <a href={href(['ledger', promotedId])}>{promotedId}</a>. Retract it in the ledger to undo this.</p>}
      {promotion.failure && <ErrorBox failure={promotion.failure} />}
    </Dialog>
  );
}

function Facts({ name, facts, turn, mayWrite }: { name: string; facts: readonly Fact[]; turn: number; mayWrite: boolean }): JSX.Element {
  const [promotion, setPromotion] = useState<Fact>();
  return (
    <>
      <ul class="rows facts">
        {facts.map((fact) => (
          <li key={fact.id} class={classes(fact.turn === turn && 'fresh')}>
            <p>{fact.text}{fact.hard && <Tag kind="strong" title="A hard constraint (must, never, …): always part of the context">hard</Tag>}{fact.turn === turn && <Tag kind="ice">new in this turn</Tag>}</p>
            <p class="meta">{fact.turn === null ? 'older than the turn log' : <a href={href(['conversations', name, 'turns'], { open: fact.turn })}>turn {fact.turn}</a>}<span>{moment(fact.since)}</span>{mayWrite && <button type="button" class="link" onClick={() => setPromotion(fact)}>promote to the ledger<span class="unseen">: {fact.text}</span></button>}</p>
          </li>
        ))}
      </ul>
      {promotion && <PromoteDialog name={name} fact={promotion} onClose={() => setPromotion(undefined)} />}
    </>
  );
}

export function BaseTruth({ whole, turn: wanted, against, mayWrite }: BaseTruthProps): JSX.Element {
  const name = whole.conversation;
  const last = Math.max(0, ...whole.turns.map((one) => one.turn));
  const turn = Math.min(wanted ?? last, last);
  const from = Math.min(against ?? Math.max(turn - 1, 0), last);
  // The address follows after a delay: dragging the slider would otherwise replace it a hundred times.
  const [sliderTurn, setSliderTurn] = useState(turn);
  useEffect(() => setSliderTurn(turn), [turn, name]);
  useEffect(() => {
    if (sliderTurn === turn) return;
    const timer = setTimeout(() => go(['conversations', name], { turn: sliderTurn === last ? undefined : sliderTurn, against }, true), 120);
    return () => clearTimeout(timer);
  }, [sliderTurn]);
  const then = useGet('/api/conversations/{name}/facts', turn === last ? undefined : { path: { name }, query: { turn } });
  const facts = useLastDefined(turn === last ? whole.facts : then.value?.facts);
  const line = whole.turns.find((one) => one.turn === turn);
  const turns = (most: string): (readonly [string, string])[] => [['', most], ['0', 'the beginning'], ...whole.turns.map((one) => [String(one.turn), `turn ${one.turn}`] as const)];
  return (
    <div class="truth">
      <section class="section slide" aria-label="Selected turn">
        <TurnSlider last={last} turn={sliderTurn} whole={whole} onTurn={setSliderTurn} />
        {line && <p class="exchange"><span class="user">{line.user_summary}</span><span class="assistant">{line.assistant_summary}</span> <a href={href(['conversations', name, 'turns'], { open: line.turn })}>full text</a></p>}
      </section>
      <Section title="Facts" aside={facts && plural(facts.length, 'fact')}>
        {then.failure && <ErrorBox failure={then.failure} again={then.reload} />}
        {facts && (facts.length === 0 ? <EmptyState title={turn === 0 ? 'No facts yet: this is before the first turn.' : 'No facts up to this turn.'} /> : <Facts name={name} facts={facts} turn={turn} mayWrite={mayWrite && turn === last} />)}
      </Section>
      <Section title={from <= turn ? `Changes since ${from === 0 ? 'the beginning' : `turn ${from}`}` : `Changes backwards, from turn ${from} to ${turn === 0 ? 'the beginning' : `turn ${turn}`}`}
        aside={<Select label="Compare with" value={against === undefined ? '' : String(against)} options={turns('the previous turn')} onChange={(next) => go(['conversations', name], { turn: turn === last ? undefined : turn, against: next === '' ? undefined : Number(next) }, true)} />}>
        {from === turn ? <p class="dim">{turn === 0 ? 'There is nothing before the beginning.' : 'Both are the same turn.'}</p> : <FactChanges name={name} from={from} to={turn} />}
      </Section>
    </div>
  );
}
