// What a person can do to the ledger: each asks once in plain words, says what came of it, and how to take it back.
import type { JSX } from 'preact';
import { useId, useState } from 'preact/hooks';
import type { Reply } from '../../lib/api.ts';
import { post, useDoing } from '../../lib/api.ts';
import { label, many } from '../../lib/format.ts';
import { href } from '../../lib/route.ts';
import { Button, Choice, Dialog, ErrorBox, Field, Text } from '../../ui/parts.tsx';
import { KINDS, LASTS, PRIORITIES } from './words.tsx';
import type { Entry, Kind, Priority } from './words.tsx';

/** Something that can be asked for: an act upon an event, or something new that may replace one. */
export type Asked =
  | { act: 'close' | 'confirm' | 'retract' | 'let in' | 'drop'; id: string; content: string }
  /** Taking back what ended an event, which brings it back. */
  | { act: 'bring back'; id: string; content: string; by: string }
  | { act: 'remember'; supersedes?: Entry };

/** Something that was done: what, by which event, and whether that can be taken back. */
export interface Done {
  text: string;
  by: string;
  /** Events that cannot both be true with what was just said. */
  against: readonly string[];
}

type Plain = Exclude<Asked, { act: 'remember' }>;

const WORDS: Record<Plain['act'], { title: string; says: string; note: string; button: string; done: string }> = {
  close: { title: 'Close this?', says: 'It is done with, or will not be done: it is no longer open. It stays readable, with your note.', note: 'How it ended', button: 'Close it', done: 'Closed' },
  confirm: { title: 'Does this still hold?', says: 'You say that it holds as of today. From now on it counts as fresh again.', note: 'How you know', button: 'It still holds', done: 'Confirmed' },
  retract: { title: 'Retract this?', says: 'It no longer counts, as if it had never held. If it superseded or closed something, that comes back. It stays readable, with your note.', note: 'Why', button: 'Retract it', done: 'Retracted' },
  'bring back': { title: 'Bring this back?', says: 'What ended it is retracted, and it counts again.', note: 'Why', button: 'Bring it back', done: 'Brought back' },
  'let in': { title: 'Does this hold?', says: 'Only a tool or a stranger said this. With your word it counts like anything you said yourself.', note: 'How you know', button: 'It holds', done: 'Confirmed' },
  drop: { title: 'Drop this?', says: 'It is not remembered. It stays readable among what was retracted.', note: 'Why', button: 'Drop it', done: 'Dropped' },
};

function hidden(secrets: Reply<'/api/events', 'post'>['secrets']): string {
  const count = Object.values(secrets as Record<string, number>).reduce((sum, one) => sum + one, 0);
  return count === 0 ? '' : ` ${many(count, 'secret')} in it ${count === 1 ? 'was' : 'were'} replaced before it was kept.`;
}

/** Does one of the plain acts. */
async function act(asked: Plain, note: string): Promise<Done> {
  const body = note.trim() === '' ? {} : { note: note.trim() };
  const id = asked.act === 'bring back' ? asked.by : asked.id;
  const wants = { path: { id }, body };
  const reply = await (asked.act === 'close' ? post('/api/events/{id}/close', wants)
    : asked.act === 'confirm' ? post('/api/events/{id}/confirm', wants)
    : asked.act === 'let in' ? post('/api/quarantine/{id}/confirm', wants)
    : asked.act === 'drop' ? post('/api/quarantine/{id}/drop', wants)
    : post('/api/events/{id}/retract', wants));
  const first = reply.acts[0];
  return { text: `${WORDS[asked.act].done}: ${asked.content}.${first ? hidden(first.secrets) : ''}`.replace('..', '.'), by: first?.event.id ?? id, against: [] };
}

/** Takes something back that was just done. */
export async function takeBack(done: Done): Promise<Done> {
  const reply = await post('/api/events/{id}/retract', { path: { id: done.by }, body: {} });
  return { text: `Taken back what you just did. It was: ${done.text}`, by: reply.acts[0]?.event.id ?? done.by, against: [] };
}

function PlainForm({ asked, onDone, onClose }: { asked: Plain; onDone: (done: Done) => void; onClose: () => void }): JSX.Element {
  const words = WORDS[asked.act];
  const [note, setNote] = useState('');
  const doing = useDoing(async () => onDone(await act(asked, note)));
  return (
    <Dialog title={words.title} open onClose={onClose}
      foot={<><Button onClick={onClose}>Leave it</Button><Button kind="main" busy={doing.busy} onClick={() => void doing.run()}>{words.button}</Button></>}>
      <blockquote class="quoted">{asked.content}</blockquote>
      <p>{words.says}</p>
      <form onSubmit={(event) => { event.preventDefault(); void doing.run(); }}>
        <Text label={`${words.note} (may be left empty)`} value={note} onInput={setNote} autofocus />
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
    const guessed = reply.type_guessed ? `, taken as a ${reply.event.type}` : '';
    const against = reply.conflicts.flatMap((one) => one.events).filter((id) => id !== reply.event.id);
    onDone({ text: `${supersedes ? 'Superseded' : 'Remembered'}${guessed}: ${reply.event.content}.${hidden(reply.secrets)}`.replace('..', '.'), by: reply.event.id, against });
  });
  const send = (): void => { if (text.trim() !== '') void doing.run(); };
  return (
    <Dialog title={supersedes ? 'What is it now?' : 'Remember something'} open onClose={onClose}
      foot={<><Button onClick={onClose}>Leave it</Button><Button kind="main" busy={doing.busy} disabled={text.trim() === '' || unchanged} onClick={send}>{supersedes ? 'Supersede it' : 'Remember it'}</Button></>}>
      {supersedes && <p>The new statement takes the place of the old one; both stay readable.</p>}
      <form class="remember" onSubmit={(event) => { event.preventDefault(); send(); }} onKeyDown={(event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) send(); }}>
        <Text label="What is to be remembered" value={text} onInput={setText} lines={3} autofocus required hint={unchanged ? 'Change what it says, or leave it.' : 'One statement that can be understood without anything around it. Ctrl+Enter sends it.'} />
        <div class="pairs">
          <Choice label="Type" value={type} onChange={(value) => setType(value as Kind | '')} options={[['', 'As the words say'], ...KINDS.map((one) => [one, label(one)] as const)]} />
          <Choice label="How long it counts" value={priority} onChange={(value) => setPriority(value as Priority | '')} options={[['', 'As is usual for its type'], ...PRIORITIES.map((one) => [one, `${one}, ${LASTS[one]}`] as const)]} />
          <Field label="About" hint="A person, a project, a thing">
            {(id, said) => <><input id={id} aria-describedby={said} list={known} value={entity} autocomplete="off" spellcheck={false} onInput={(event) => setEntity(event.currentTarget.value)} /><datalist id={known}>{entities.map((one) => <option key={one} value={one} />)}</datalist></>}
          </Field>
          <Text label="Tags" value={tags} onInput={setTags} hint="With commas between them" />
          {commitment && <Text label="Due" type="date" value={due} onInput={setDue} hint="For a commitment" />}
          {commitment && <Text label="Waiting on" value={waitingOn} onInput={setWaitingOn} hint="Whom or what it waits for" />}
        </div>
      </form>
      {doing.failure && <ErrorBox failure={doing.failure} />}
    </Dialog>
  );
}

/** The window in which something is asked for. */
export function Asking({ asked, entities, onDone, onClose }: { asked: Asked; entities: readonly string[]; onDone: (done: Done) => void; onClose: () => void }): JSX.Element {
  return asked.act === 'remember'
    ? <RememberForm supersedes={asked.supersedes} entities={entities} onDone={onDone} onClose={onClose} />
    : <PlainForm asked={asked} onDone={onDone} onClose={onClose} />;
}

/** What was done, and the way back. */
export function DoneBar({ done, onDone, onClose }: { done: Done; onDone: (done: Done) => void; onClose: () => void }): JSX.Element {
  const back = useDoing(async () => onDone(await takeBack(done)));
  return (
    <div class="donebar">
      <p role="status">{done.text} <a href={href(['ledger', done.by])}>{done.by}</a></p>
      {done.against.length > 0 && <p class="warm">It cannot be true together with {done.against.map((id, at) => <span key={id}>{at > 0 && ', '}<a href={href(['ledger', id])}>{id}</a></span>)}. Supersede or retract one of them.</p>}
      <div class="buttons"><Button small busy={back.busy} onClick={() => void back.run()}>Take it back</Button><Button small kind="quiet" label="Put this away" onClick={onClose}>✕</Button></div>
      {back.failure && <ErrorBox failure={back.failure} />}
    </div>
  );
}
