// The snapshots: taking one, and restoring one after a confirmation.
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Reply } from '../../lib/api.ts';
import { post, useAction, useGet } from '../../lib/api.ts';
import { plural, moment } from '../../lib/format.ts';
import { Button, Dialog, EmptyState, ErrorBox, Section, RequestView, TextField, showToast } from '../../ui/components.tsx';
import { Command } from './problems.tsx';

type Snapshot = Reply<'/api/snapshots'>['snapshots'][number];
type UndoResult = Reply<'/api/undo', 'post'>['undone'];
const MAX_SHOWN = 8;

function RestoreDialog({ to, onClose, onDone }: { to: Snapshot; onClose: () => void; onDone: (undone: UndoResult) => void }): JSX.Element {
  const restoring = useAction(async () => onDone((await post('/api/undo', { body: { to: to.id } })).undone));
  return (
    <Dialog title={`Restore the snapshot of ${moment(to.at)}?`} open onClose={onClose} foot={<><Button onClick={onClose}>Cancel</Button><Button kind="warm" busy={restoring.busy} onClick={() => void restoring.run()}>Restore</Button></>}>
      {restoring.failure && <ErrorBox failure={restoring.failure} />}
      <p>Your memory returns to the state of “{to.note}”. Later changes are removed from the ledger, the pages and the packs.</p>
      <p>Nothing is lost: the current state is stored as a snapshot first, so you can return to it.</p>
      <p><Command text={`icecore undo --to ${to.id.slice(0, 8)}`} /></p>
    </Dialog>
  );
}

export function Snapshots(): JSX.Element {
  const snapshots = useGet('/api/snapshots', { query: { limit: 200 } });
  const [note, setNote] = useState('');
  const [all, setAll] = useState(false);
  const [to, setTo] = useState<Snapshot>();
  const [undone, setUndone] = useState<UndoResult>();
  const taking = useAction(async () => {
    const made = await post('/api/snapshots', { body: note.trim() === '' ? {} : { note: note.trim() } });
    showToast(made.snapshot ? 'Snapshot taken' : 'No changes since the last snapshot');
    setNote('');
    snapshots.reload();
  });
  const forward = useAction(async (before: string) => {
    await post('/api/undo', { body: { to: before } });
    showToast('Undone');
    setUndone(undefined);
    snapshots.reload();
  });
  return (
    <Section title="Snapshots" aside={snapshots.value && plural(snapshots.value.snapshots.length, 'snapshot')}>
      <form class="keep" onSubmit={(event) => { event.preventDefault(); void taking.run(); }}>
        <TextField label="Note for a new snapshot" value={note} placeholder="before the big clean-up" onInput={setNote} />
        <Button type="submit" busy={taking.busy}>Take snapshot</Button>
      </form>
      {taking.failure && <ErrorBox failure={taking.failure} />}
      {undone && (
        <div class="checked" role="status">
          <p>Restored: {undone.note}. {plural(undone.files.length, 'file')} changed{undone.retracted.length > 0 && `, ${plural(undone.retracted.length, 'event')} retracted`}.</p>
          {forward.failure && <ErrorBox failure={forward.failure} />}
          {undone.before !== undefined && <p><Button small busy={forward.busy} onClick={() => void forward.run(undone.before ?? '')}>Undo</Button></p>}
          {undone.files.length > 0 && <details><summary>What changed</summary><ul>{undone.files.map((one) => <li key={one.path}>{one.path} <span class="dim">{one.what}</span></li>)}</ul></details>}
        </div>
      )}
      <RequestView of={snapshots}>
        {(value) => value.snapshots.length === 0
          ? <EmptyState title="No snapshots yet."><p>Take one before a big change; the nightly job takes one by itself.</p></EmptyState>
          : (
            <>
              <ul class="rows">
                {value.snapshots.slice(0, all ? undefined : MAX_SHOWN).map((one) => (
                  <li key={one.id}><div class="row state"><span><strong>{one.note}</strong><span class="meta">{moment(one.at)} UTC, <span class="mono">{one.id.slice(0, 8)}</span></span></span><Button small label={`Restore ${one.note}, ${moment(one.at)}`} onClick={() => setTo(one)}>Restore…</Button></div></li>
                ))}
              </ul>
              {value.snapshots.length > MAX_SHOWN && <Button small onClick={() => setAll(!all)}>{all ? 'Show fewer' : `Show all ${value.snapshots.length}`}</Button>}
            </>
          )}
      </RequestView>
      {to && <RestoreDialog to={to} onClose={() => setTo(undefined)} onDone={(result) => { setTo(undefined); setUndone(result); showToast('Snapshot restored'); snapshots.reload(); }} />}
    </Section>
  );
}
