// The snapshots: taking one, and restoring one after a confirmation.
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Reply } from '../../lib/api.ts';
import { post, useDoing, useGet } from '../../lib/api.ts';
import { many, moment } from '../../lib/format.ts';
import { Button, Dialog, Empty, ErrorBox, Section, Shown, Text, say } from '../../ui/parts.tsx';
import { Command } from './problems.tsx';

type Snapshot = Reply<'/api/snapshots'>['snapshots'][number];
type Undone = Reply<'/api/undo', 'post'>['undone'];
const SHOWN = 8;

function Back({ to, onClose, onDone }: { to: Snapshot; onClose: () => void; onDone: (undone: Undone) => void }): JSX.Element {
  const going = useDoing(async () => onDone((await post('/api/undo', { body: { to: to.id } })).undone));
  return (
    <Dialog title={`Restore the snapshot of ${moment(to.at)}?`} open onClose={onClose} foot={<><Button onClick={onClose}>Cancel</Button><Button kind="warm" busy={going.busy} onClick={() => void going.run()}>Restore</Button></>}>
      {going.failure && <ErrorBox failure={going.failure} />}
      <p>Your memory returns to the state of “{to.note}”. Later changes are removed from the ledger, the pages and the packs.</p>
      <p>Nothing is lost: the current state is stored as a snapshot first, so you can return to it.</p>
      <p><Command text={`icecore undo --to ${to.id.slice(0, 8)}`} /></p>
    </Dialog>
  );
}

export function States(): JSX.Element {
  const kept = useGet('/api/snapshots', { query: { limit: 200 } });
  const [note, setNote] = useState('');
  const [all, setAll] = useState(false);
  const [to, setTo] = useState<Snapshot>();
  const [undone, setUndone] = useState<Undone>();
  const keeping = useDoing(async () => {
    const made = await post('/api/snapshots', { body: note.trim() === '' ? {} : { note: note.trim() } });
    say(made.snapshot ? 'Snapshot taken' : 'No changes since the last snapshot');
    setNote('');
    kept.again();
  });
  const forward = useDoing(async (before: string) => {
    await post('/api/undo', { body: { to: before } });
    say('Undone');
    setUndone(undefined);
    kept.again();
  });
  return (
    <Section title="Snapshots" aside={kept.value && many(kept.value.snapshots.length, 'snapshot')}>
      <form class="keep" onSubmit={(event) => { event.preventDefault(); void keeping.run(); }}>
        <Text label="Note for a new snapshot" value={note} placeholder="before the big clean-up" onInput={setNote} />
        <Button type="submit" busy={keeping.busy}>Take snapshot</Button>
      </form>
      {keeping.failure && <ErrorBox failure={keeping.failure} />}
      {undone && (
        <div class="checked" role="status">
          <p>Restored: {undone.note}. {many(undone.files.length, 'file')} changed{undone.retracted.length > 0 && `, ${many(undone.retracted.length, 'event')} retracted`}.</p>
          {forward.failure && <ErrorBox failure={forward.failure} />}
          {undone.before !== undefined && <p><Button small busy={forward.busy} onClick={() => void forward.run(undone.before ?? '')}>Undo</Button></p>}
          {undone.files.length > 0 && <details><summary>What changed</summary><ul>{undone.files.map((one) => <li key={one.path}>{one.path} <span class="dim">{one.what}</span></li>)}</ul></details>}
        </div>
      )}
      <Shown of={kept}>
        {(value) => value.snapshots.length === 0
          ? <Empty title="No snapshots yet."><p>Take one before a big change; the nightly job takes one by itself.</p></Empty>
          : (
            <>
              <ul class="rows">
                {value.snapshots.slice(0, all ? undefined : SHOWN).map((one) => (
                  <li key={one.id}><div class="row state"><span><strong>{one.note}</strong><span class="meta">{moment(one.at)} UTC, <span class="mono">{one.id.slice(0, 8)}</span></span></span><Button small label={`Restore ${one.note}, ${moment(one.at)}`} onClick={() => setTo(one)}>Restore…</Button></div></li>
                ))}
              </ul>
              {value.snapshots.length > SHOWN && <Button small onClick={() => setAll(!all)}>{all ? 'Show fewer' : `Show all ${value.snapshots.length}`}</Button>}
            </>
          )}
      </Shown>
      {to && <Back to={to} onClose={() => setTo(undefined)} onDone={(told) => { setTo(undefined); setUndone(told); say('Snapshot restored'); kept.again(); }} />}
    </Section>
  );
}
