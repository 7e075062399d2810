// The actions on the ledger: each asks for confirmation, shows the result, and can be undone.
import type { JSX } from 'preact';
import { useId, useState } from 'preact/hooks';
import type { Reply } from '../../lib/api.ts';
import { post, useDoing } from '../../lib/api.ts';
import { label, many } from '../../lib/format.ts';
import { href } from '../../lib/route.ts';
import { Button, Choice, Dialog, ErrorBox, Field, Text } from '../../ui/parts.tsx';
import { KINDS, LASTS, PRIORITIES } from './words.tsx';
import type { Entry, Kind, Priority } from './words.tsx';

/** An action that waits for confirmation: on an event, or a new statement that may supersede one. */
export type Asked =
  | { act: 'close' | 'confirm' | 'retract' | 'accept' | 'drop'; id: string; content: string }
  /** Retracts the event that ended this one, so that this one is active again. */
  | { act: 'restore'; id: string; content: string; by: string }
  | { act: 'remember'; supersedes?: Entry };

/** A completed action: its message and the event that it created. */
export interface Done {
  text: string;
  by: string;
  /** The events that contradict the new statement. */
  against: readonly string[];
}

type Plain = Exclude<Asked, { act: 'remember' }>;

const WORDS: Record<Plain['act'], { title: string; says: string; note: string; button: string; done: string }> = {
  close: { title: 'Close this commitment?', says: 'It is done, or will not be done: it is no longer open. It stays in the ledger, with your note.', note: 'Outcome', button: 'Close commitment', done: 'Closed' },
  confirm: { title: 'Confirm this?', says: 'You confirm that it is still true today. It counts as fresh from now on.', note: 'How you know', button: 'Confirm', done: 'Confirmed' },
  retract: { title: 'Retract this?', says: 'It no longer counts, as if it had never been true. If it superseded or closed another event, that one is active again. It stays in the ledger, with your note.', note: 'Reason', button: 'Retract', done: 'Retracted' },
  restore: { title: 'Restore this?', says: 'The event that ended it is retracted, and it is active again.', note: 'Reason', button: 'Restore', done: 'Restored' },
  accept: { title: 'Confirm this?', says: 'Only a tool or a stranger said this. Once you confirm it, it counts like anything you said yourself.', note: 'How you know', button: 'Confirm', done: 'Confirmed' },
  drop: { title: 'Drop this?', says: 'It is not remembered. It stays in the ledger as retracted.', note: 'Reason', button: 'Drop', done: 'Dropped' },
};

function hidden(secrets: Reply<'/api/events', 'post'>['secrets']): string {
  const count = Object.values(secrets as Record<string, number>).reduce((sum, one) => sum + one, 0);
  return count === 0 ? '' : ` ${many(count, 'secret')} in it ${count === 1 ? 'was' : 'were'} redacted before it was stored.`;
}

/** Sends an action on an event. */
async function act(asked: Plain, note: string): Promise<Done> {
  const body = note.trim() === '' ? {} : { note: note.trim() };
  const id = asked.act === 'restore' ? asked.by : asked.id;
  const wants = { path: { id }, body };
  const reply = await (asked.act === 'close' ? post('/api/events/{id}/close', wants)
    : asked.act === 'confirm' ? post('/api/events/{id}/confirm', wants)
    : asked.act === 'accept' ? post('/api/quarantine/{id}/confirm', wants)
    : asked.act === 'drop' ? post('/api/quarantine/{id}/drop', wants)
    : post('/api/events/{id}/retract', wants));
  const first = reply.acts[0];
  return { text: `${WORDS[asked.act].done}: ${asked.content}.${first ? hidden(first.secrets) : ''}`.replace('..', '.'), by: first?.event.id ?? id, against: [] };
}

/** Undoes an action: retracts the event that it created. */
export async function takeBack(done: Done): Promise<Done> {
  const reply = await post('/api/events/{id}/retract', { path: { id: done.by }, body: {} });
  return { text: `Undone: ${done.text}`, by: reply.acts[0]?.event.id ?? done.by, against: [] };
}

function PlainForm({ asked, onDone, onClose }: { asked: Plain; onDone: (done: Done) => void; onClose: () => void }): JSX.Element {
  const words = WORDS[asked.act];
  const [note, setNote] = useState('');
  const doing = useDoing(async () => onDone(await act(asked, note)));
  return (
    <Dialog title={words.title} open onClose={onClose}
      foot={<><Button onClick={onClose}>Cancel</Button><Button kind="main" busy={doing.busy} onClick={() => void doing.run()}>{words.button}</Button></>}>
      <blockquote class="quoted">{asked.content}</blockquote>
      <p>{words.says}</p>
      <form onSubmit={(event) => { event.preventDefault(); void doing.run(); }}>
        <Text label={`${words.note} (optional)`} value={note} onInput={setNote} autofocus />
      </form>
      {doing.failure && <ErrorBox failure={doing.failure} />}
    </Dialog>
  );
}

function RememberForm({ supersedes, entities, onDone, onClose }: { supersedes: Entry | undefined; entities: readonly string[]; onDone: (done: Done) => void; onClose: () => void }): JSX.Element {
  const [text, setText] = useState(supersedes?.content ?? '');
  const [type, setType] = useState<Kind | ''>(supersedes?.type ?? '');
  const [priority, setPriority] = useState<Priority | ''>(supersedes?.priority ?? '');
  const [entity, setEntity] = useState(supersedes?.entity ?? '');
  const [tags, setTags] = useState((supersedes?.tags ?? []).join(', '));
  const [due, setDue] = useState(supersedes?.due?.slice(0, 10) ?? '');
  const [waitingOn, setWaitingOn] = useState(supersedes?.waiting_on ?? '');
  const known = useId();
  const commitment = type === 'commitment' || type === '';
  const unchanged = supersedes !== undefined && text.trim() === supersedes.content;
  const doing = useDoing(async () => {
    const reply = await post('/api/events', {
      body: {
        text: text.trim(),
        ...(type === '' ? {} : { type }),
        ...(priority === '' ? {} : { priority }),
        ...(entity.trim() === '' ? {} : { entity: entity.trim() }),
        ...(tags.trim() === '' ? {} : { tags: tags.split(',').map((tag) => tag.trim()).filter((tag) => tag !== '') }),
        ...(due === '' || !commitment ? {} : { due }),
        ...(waitingOn.trim() === '' || !commitment ? {} : { waiting_on: waitingOn.trim() }),
        ...(supersedes ? { supersedes: [supersedes.id] } : {}),
      },
    });
    const guessed = reply.type_guessed ? ` as a ${reply.event.type}` : '';
    const against = reply.conflicts.flatMap((one) => one.events).filter((id) => id !== reply.event.id);
    onDone({ text: `${supersedes ? 'Superseded' : 'Remembered'}${guessed}: ${reply.event.content}.${hidden(reply.secrets)}`.replace('..', '.'), by: reply.event.id, against });
  });
  const send = (): void => { if (text.trim() !== '') void doing.run(); };
  return (
    <Dialog title={supersedes ? 'Supersede this statement' : 'Remember something'} open onClose={onClose}
      foot={<><Button onClick={onClose}>Cancel</Button><Button kind="main" busy={doing.busy} disabled={text.trim() === '' || unchanged} onClick={send}>{supersedes ? 'Supersede' : 'Remember'}</Button></>}>
      {supersedes && <p>The new statement replaces the old one; both stay in the ledger.</p>}
      <form class="remember" onSubmit={(event) => { event.preventDefault(); send(); }} onKeyDown={(event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) send(); }}>
        <Text label="Statement" value={text} onInput={setText} lines={3} autofocus required hint={unchanged ? 'Change the text, or cancel.' : 'One statement that can be understood without context. Ctrl+Enter saves it.'} />
        <div class="pairs">
          <Choice label="Type" value={type} onChange={(value) => setType(value as Kind | '')} options={[['', 'Detect from the text'], ...KINDS.map((one) => [one, label(one)] as const)]} />
          <Choice label="Priority" value={priority} onChange={(value) => setPriority(value as Priority | '')} options={[['', 'Default for its type'], ...PRIORITIES.map((one) => [one, `${one}, ${LASTS[one]}`] as const)]} />
          <Field label="Entity" hint="A person, a project, a thing">
            {(id, said) => <><input id={id} aria-describedby={said} list={known} value={entity} autocomplete="off" spellcheck={false} onInput={(event) => setEntity(event.currentTarget.value)} /><datalist id={known}>{entities.map((one) => <option key={one} value={one} />)}</datalist></>}
          </Field>
          <Text label="Tags" value={tags} onInput={setTags} hint="Separated by commas" />
          {commitment && <Text label="Due" type="date" value={due} onInput={setDue} hint="For a commitment" />}
          {commitment && <Text label="Waiting on" value={waitingOn} onInput={setWaitingOn} hint="The person or thing it waits for" />}
        </div>
      </form>
      {doing.failure && <ErrorBox failure={doing.failure} />}
    </Dialog>
  );
}

/** The dialog of an action. */
export function Asking({ asked, entities, onDone, onClose }: { asked: Asked; entities: readonly string[]; onDone: (done: Done) => void; onClose: () => void }): JSX.Element {
  return asked.act === 'remember'
    ? <RememberForm supersedes={asked.supersedes} entities={entities} onDone={onDone} onClose={onClose} />
    : <PlainForm asked={asked} onDone={onDone} onClose={onClose} />;
}

/** The result of an action, with an undo button. */
export function DoneBar({ done, onDone, onClose }: { done: Done; onDone: (done: Done) => void; onClose: () => void }): JSX.Element {
  const back = useDoing(async () => onDone(await takeBack(done)));
  return (
    <div class="donebar">
      <p role="status">{done.text} <a href={href(['ledger', done.by])}>{done.by}</a></p>
      {done.against.length > 0 && <p class="warm">It contradicts {done.against.map((id, at) => <span key={id}>{at > 0 && ', '}<a href={href(['ledger', id])}>{id}</a></span>)}. Supersede or retract one of them.</p>}
      <div class="buttons"><Button small busy={back.busy} onClick={() => void back.run()}>Undo</Button><Button small kind="quiet" label="Dismiss" onClick={onClose}>✕</Button></div>
      {back.failure && <ErrorBox failure={back.failure} />}
    </div>
  );
}
