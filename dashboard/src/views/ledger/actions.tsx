// The actions on the ledger: each asks for confirmation, shows the result, and can be undone.
import type { JSX } from 'preact';
import { useId, useState } from 'preact/hooks';
import type { Reply } from '../../lib/api.ts';
import { post, useAction } from '../../lib/api.ts';
import { label, plural } from '../../lib/format.ts';
import { href } from '../../lib/route.ts';
import { Button, Select, Dialog, ErrorBox, Field, TextField } from '../../ui/components.tsx';
import { EVENT_TYPES, PRIORITY_LIFETIMES, PRIORITIES } from './filters.tsx';
import type { Entry, EventType, Priority } from './filters.tsx';

/** An action that waits for confirmation: on an event, or a new statement that may supersede one. */
export type PendingAction =
  | { act: 'close' | 'confirm' | 'retract' | 'accept' | 'drop'; id: string; content: string }
  /** Retracts the event that ended this one, so that this one is active again. */
  | { act: 'restore'; id: string; content: string; by: string }
  | { act: 'remember'; supersedes?: Entry };

/** A completed action: its message and the event that it created. */
export interface CompletedAction {
  text: string;
  by: string;
  /** The events that contradict the new statement. */
  conflicting: readonly string[];
}

type EventAction = Exclude<PendingAction, { act: 'remember' }>;

const ACTION_TEXTS: Record<EventAction['act'], { title: string; description: string; note: string; button: string; done: string }> = {
  close: { title: 'Close this commitment?', description: 'It is done, or will not be done: it is no longer open. It stays in the ledger, with your note.', note: 'Outcome', button: 'Close commitment', done: 'Closed' },
  confirm: { title: 'Confirm this?', description: 'You confirm that it is still true today. It counts as fresh from now on.', note: 'How you know', button: 'Confirm', done: 'Confirmed' },
  retract: { title: 'Retract this?', description: 'It no longer counts, as if it had never been true. If it superseded or closed another event, that one is active again. It stays in the ledger, with your note.', note: 'Reason', button: 'Retract', done: 'Retracted' },
  restore: { title: 'Restore this?', description: 'The event that ended it is retracted, and it is active again.', note: 'Reason', button: 'Restore', done: 'Restored' },
  accept: { title: 'Confirm this?', description: 'Only a tool or a stranger said this. Once you confirm it, it counts like anything you said yourself.', note: 'How you know', button: 'Confirm', done: 'Confirmed' },
  drop: { title: 'Drop this?', description: 'It is not remembered. It stays in the ledger as retracted.', note: 'Reason', button: 'Drop', done: 'Dropped' },
};

function secretsNote(secrets: Reply<'/api/events', 'post'>['secrets']): string {
  const count = Object.values(secrets as Record<string, number>).reduce((sum, one) => sum + one, 0);
  return count === 0 ? '' : ` ${plural(count, 'secret')} in it ${count === 1 ? 'was' : 'were'} redacted before it was stored.`;
}

/** Sends an action on an event. */
async function performAction(action: EventAction, note: string): Promise<CompletedAction> {
  const body = note.trim() === '' ? {} : { note: note.trim() };
  const id = action.act === 'restore' ? action.by : action.id;
  const wants = { path: { id }, body };
  const reply = await (action.act === 'close' ? post('/api/events/{id}/close', wants)
    : action.act === 'confirm' ? post('/api/events/{id}/confirm', wants)
    : action.act === 'accept' ? post('/api/quarantine/{id}/confirm', wants)
    : action.act === 'drop' ? post('/api/quarantine/{id}/drop', wants)
    : post('/api/events/{id}/retract', wants));
  const first = reply.acts[0];
  return { text: `${ACTION_TEXTS[action.act].done}: ${action.content}.${first ? secretsNote(first.secrets) : ''}`.replace('..', '.'), by: first?.event.id ?? id, conflicting: [] };
}

/** Undoes an action: retracts the event that it created. */
export async function undoAction(done: CompletedAction): Promise<CompletedAction> {
  const reply = await post('/api/events/{id}/retract', { path: { id: done.by }, body: {} });
  return { text: `Undone: ${done.text}`, by: reply.acts[0]?.event.id ?? done.by, conflicting: [] };
}

function EventActionDialog({ action, onDone, onClose }: { action: EventAction; onDone: (done: CompletedAction) => void; onClose: () => void }): JSX.Element {
  const words = ACTION_TEXTS[action.act];
  const [note, setNote] = useState('');
  const submission = useAction(async () => onDone(await performAction(action, note)));
  return (
    <Dialog title={words.title} open onClose={onClose}
      foot={<><Button onClick={onClose}>Cancel</Button><Button kind="main" busy={submission.busy} onClick={() => void submission.run()}>{words.button}</Button></>}>
      <blockquote class="quoted">{action.content}</blockquote>
      <p>{words.description}</p>
      <form onSubmit={(event) => { event.preventDefault(); void submission.run(); }}>
        <TextField label={`${words.note} (optional)`} value={note} onInput={setNote} autofocus />
      </form>
      {submission.failure && <ErrorBox failure={submission.failure} />}
    </Dialog>
  );
}

function RememberDialog({ supersedes, entities, onDone, onClose }: { supersedes: Entry | undefined; entities: readonly string[]; onDone: (done: CompletedAction) => void; onClose: () => void }): JSX.Element {
  const [text, setText] = useState(supersedes?.content ?? '');
  const [type, setType] = useState<EventType | ''>(supersedes?.type ?? '');
  const [priority, setPriority] = useState<Priority | ''>(supersedes?.priority ?? '');
  const [entity, setEntity] = useState(supersedes?.entity ?? '');
  const [tags, setTags] = useState((supersedes?.tags ?? []).join(', '));
  const [due, setDue] = useState(supersedes?.due?.slice(0, 10) ?? '');
  const [waitingOn, setWaitingOn] = useState(supersedes?.waiting_on ?? '');
  const known = useId();
  const commitment = type === 'commitment' || type === '';
  const unchanged = supersedes !== undefined && text.trim() === supersedes.content;
  const submission = useAction(async () => {
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
    const typeNote = reply.type_guessed ? ` as a ${reply.event.type}` : '';
    const conflicting = reply.conflicts.flatMap((one) => one.events).filter((id) => id !== reply.event.id);
    onDone({ text: `${supersedes ? 'Superseded' : 'Remembered'}${typeNote}: ${reply.event.content}.${secretsNote(reply.secrets)}`.replace('..', '.'), by: reply.event.id, conflicting });
  });
  const send = (): void => { if (text.trim() !== '') void submission.run(); };
  return (
    <Dialog title={supersedes ? 'Supersede this statement' : 'Remember something'} open onClose={onClose}
      foot={<><Button onClick={onClose}>Cancel</Button><Button kind="main" busy={submission.busy} disabled={text.trim() === '' || unchanged} onClick={send}>{supersedes ? 'Supersede' : 'Remember'}</Button></>}>
      {supersedes && <p>The new statement replaces the old one; both stay in the ledger.</p>}
      <form class="remember" onSubmit={(event) => { event.preventDefault(); send(); }} onKeyDown={(event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) send(); }}>
        <TextField label="Statement" value={text} onInput={setText} lines={3} autofocus required hint={unchanged ? 'Change the text, or cancel.' : 'One statement that can be understood without context. Ctrl+Enter saves it.'} />
        <div class="pairs">
          <Select label="Type" value={type} onChange={(value) => setType(value as EventType | '')} options={[['', 'Detect from the text'], ...EVENT_TYPES.map((one) => [one, label(one)] as const)]} />
          <Select label="Priority" value={priority} onChange={(value) => setPriority(value as Priority | '')} options={[['', 'Default for its type'], ...PRIORITIES.map((one) => [one, `${one}, ${PRIORITY_LIFETIMES[one]}`] as const)]} />
          <Field label="Entity" hint="A person, a project, a thing">
            {(id, said) => <><input id={id} aria-describedby={said} list={known} value={entity} autocomplete="off" spellcheck={false} onInput={(event) => setEntity(event.currentTarget.value)} /><datalist id={known}>{entities.map((one) => <option key={one} value={one} />)}</datalist></>}
          </Field>
          <TextField label="Tags" value={tags} onInput={setTags} hint="Separated by commas" />
          {commitment && <TextField label="Due" type="date" value={due} onInput={setDue} hint="For a commitment" />}
          {commitment && <TextField label="Waiting on" value={waitingOn} onInput={setWaitingOn} hint="The person or thing it waits for" />}
        </div>
      </form>
      {submission.failure && <ErrorBox failure={submission.failure} />}
    </Dialog>
  );
}

/** The dialog of an action. */
export function ActionDialog({ action, entities, onDone, onClose }: { action: PendingAction; entities: readonly string[]; onDone: (done: CompletedAction) => void; onClose: () => void }): JSX.Element {
  return action.act === 'remember'
    ? <RememberDialog supersedes={action.supersedes} entities={entities} onDone={onDone} onClose={onClose} />
    : <EventActionDialog action={action} onDone={onDone} onClose={onClose} />;
}

/** The result of an action, with an undo button. */
export function UndoBar({ done, onDone, onClose }: { done: CompletedAction; onDone: (done: CompletedAction) => void; onClose: () => void }): JSX.Element {
  const back = useAction(async () => onDone(await undoAction(done)));
  return (
    <div class="donebar">
      <p role="status">{done.text} <a href={href(['ledger', done.by])}>{done.by}</a></p>
      {done.conflicting.length > 0 && <p class="warm">It contradicts {done.conflicting.map((id, at) => <span key={id}>{at > 0 && ', '}<a href={href(['ledger', id])}>{id}</a></span>)}. Supersede or retract one of them.</p>}
      <div class="buttons"><Button small busy={back.busy} onClick={() => void back.run()}>Undo</Button><Button small kind="quiet" label="Dismiss" onClick={onClose}>✕</Button></div>
      {back.failure && <ErrorBox failure={back.failure} />}
    </div>
  );
}
