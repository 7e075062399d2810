// Changing a page, as a person: what is written here enters the ledger. If somebody else changed the page meanwhile, both are shown.
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Reply } from '../../lib/api.ts';
import { Failure, post, useDoing } from '../../lib/api.ts';
import { many } from '../../lib/format.ts';
import { go, href } from '../../lib/route.ts';
import { Diff } from '../../ui/diff.tsx';
import { Button, Dialog, ErrorBox, Section, Tabs, Text as TextField, classes } from '../../ui/parts.tsx';
import { Text } from './page.tsx';

type Page = Reply<'/api/pages/{kind}/{slug}'>;
export type Saved = Reply<'/api/pages/{kind}/{slug}', 'post'>;

interface Draft {
  text: string;
  /** What was read: its text, and its hash; none for a page that is not there yet. */
  base: string;
  hash: string | undefined;
}

/** What is being written, as long as this window is open: going to look at something else loses nothing. */
const drafts = new Map<string, Draft>();

/** Whether something was written on a page that is not saved. */
export function hasDraft(path: string): boolean {
  const draft = drafts.get(path);
  return draft !== undefined && draft.text !== draft.base;
}

interface EditingProps {
  kind: string;
  slug: string;
  title: string;
  /** The page as it is now; nothing if it is not there yet. */
  page: Page | undefined;
  onSaved: (saved: Saved) => void;
  /** The page may have changed: ask again. */
  onChanged: () => void;
}

function begun(title: string): string {
  return `# ${title}\n\n## Key Facts\n- \n`;
}

export function Editing({ kind, slug, title, page, onSaved, onChanged }: EditingProps): JSX.Element {
  const path = `knowledge/${kind}/${slug}.md`;
  const fresh = (): Draft => ({ text: page?.text ?? begun(title), base: page?.text ?? '', hash: page?.hash });
  const [draft, setDraft] = useState<Draft>(() => drafts.get(path) ?? fresh());
  const [leaving, setLeaving] = useState(false);
  const changed = draft.text !== draft.base;
  const theirs = page !== undefined && page.hash !== draft.hash ? page : undefined;
  const put = (next: Draft): void => {
    drafts.set(path, next);
    setDraft(next);
  };
  useEffect(() => {
    if (!changed) drafts.delete(path);
    const stay = (event: BeforeUnloadEvent): void => { if (changed) event.preventDefault(); };
    addEventListener('beforeunload', stay);
    return () => removeEventListener('beforeunload', stay);
  }, [changed]);
  // One begins at the top of the page, and not where the browser puts the cursor.
  const whole = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const field = whole.current?.querySelector('textarea');
    field?.focus({ preventScroll: true });
    field?.setSelectionRange(0, 0);
    field?.scrollTo(0, 0);
  }, []);
  // Nothing was written yet, so there is nothing to decide: go on with what the page is now.
  useEffect(() => {
    if (theirs && !changed) setDraft({ text: theirs.text, base: theirs.text, hash: theirs.hash });
  }, [theirs?.hash, changed]);

  const saving = useDoing(async (hash: string | undefined) => {
    try {
      const saved = await post('/api/pages/{kind}/{slug}', { path: { kind, slug }, body: { text: draft.text, ...(hash === undefined ? {} : { hash }) } });
      drafts.delete(path);
      onSaved(saved);
    } catch (error) {
      if (!(error instanceof Failure && error.status === 409)) throw error;
      onChanged();
    }
  });
  const back = (): void => {
    drafts.delete(path);
    go(['knowledge', kind, slug]);
  };
  const save = (): void => { if (changed && !theirs) void saving.run(draft.hash); };
  return (
    <div class="editing" ref={whole} onKeyDown={(event) => { if (event.key === 's' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); save(); } }}>
      {theirs && changed && (
        <Both theirs={theirs} draft={draft} busy={saving.busy}
          onTheirs={() => put({ text: theirs.text, base: theirs.text, hash: theirs.hash })}
          onGoOn={() => put({ text: draft.text, base: theirs.text, hash: theirs.hash })}
          onMine={() => void saving.run(theirs.hash)} />
      )}
      {saving.failure && <ErrorBox failure={saving.failure} />}
      <div class="buttons">
        <Button kind="main" busy={saving.busy} disabled={!changed || theirs !== undefined} onClick={save}>Save</Button>
        <Button onClick={() => (changed ? setLeaving(true) : back())}>{changed ? 'Throw away what I wrote' : 'Back to the page'}</Button>
        <span class="dim small">{changed ? 'Not saved yet.' : 'Change a line, add one, or strike one through with ~~…~~.'} Ctrl+S saves. It enters the ledger as your own words.</span>
      </div>
      <div class="two">
        <TextField label="The page, in Markdown" value={draft.text} onInput={(text) => put({ ...draft, text })} lines={26} />
        <section class="preview" aria-label="How it looks"><h3>How it looks</h3><div class="section"><Text text={draft.text} standing={() => undefined} /></div></section>
      </div>
      {changed && <Section title="What you changed"><Diff old={draft.base} now={draft.text} label="What you changed" /></Section>}
      <Dialog title="Throw it away?" open={leaving} onClose={() => setLeaving(false)} foot={<><Button onClick={() => setLeaving(false)}>Go on writing</Button><Button kind="warm" onClick={back}>Throw it away</Button></>}>
        <p>What you wrote on this page since you opened it is lost. The page stays as it is.</p>
      </Dialog>
    </div>
  );
}

/** Two changed the page: what they did, what this person did, and the ways out. */
function Both({ theirs, draft, busy, onTheirs, onGoOn, onMine }: { theirs: Page; draft: Draft; busy: boolean; onTheirs: () => void; onGoOn: () => void; onMine: () => void }): JSX.Element {
  const [tab, setTab] = useState<'theirs' | 'mine' | 'both'>('theirs');
  return (
    <section class={classes('section', 'both')} role="alert" aria-label="Somebody else changed this page">
      <h2>Somebody else changed this page while you were writing</h2>
      <p>Nothing of yours is lost, and nothing is saved yet. Look at both, then choose.</p>
      <Tabs label="What differs" current={tab} onChange={(next) => setTab(next)} tabs={[['theirs', 'What they changed'], ['mine', 'What you changed'], ['both', 'From theirs to yours']]}>
        {tab === 'theirs' && <Diff old={draft.base} now={theirs.text} label="What they changed" />}
        {tab === 'mine' && <Diff old={draft.base} now={draft.text} label="What you changed" />}
        {tab === 'both' && <Diff old={theirs.text} now={draft.text} label="How yours differs from theirs" />}
      </Tabs>
      <div class="buttons">
        <Button kind="main" busy={busy} onClick={onMine}>Save mine as well</Button>
        <Button onClick={onGoOn}>Go on with my text</Button>
        <Button onClick={onTheirs}>Take theirs, drop mine</Button>
      </div>
      <p class="dim small">Saving keeps both: what you stated is added, and a line of theirs that you do not have is not taken back. Where both of you changed one line, both statements stand afterwards; strike one through with ~~…~~. “Go on” keeps your text in the field and compares it with theirs from now on.</p>
    </section>
  );
}

/** What came of saving. */
export function SavedBar({ saved, onClose }: { saved: Saved; onClose: () => void }): JSX.Element {
  const secrets = Object.values(saved.secrets as Record<string, number>).reduce((sum, one) => sum + one, 0);
  return (
    <div class={classes('savedbar', (saved.held || saved.complaints.length > 0) && 'held')} role="status">
      <div>
        <p>{saved.held ? 'Saved as you wrote it. Something in it could not be taken into the ledger:' : saved.learnt.length === 0 ? 'Saved. It says nothing new, so nothing entered the ledger.' : <>Saved. {many(saved.learnt.length, 'event')} entered the ledger: {saved.learnt.map((id, at) => <span key={id}>{at > 0 && ', '}<a href={href(['ledger', id], { status: 'any' })}>{id}</a></span>)}. Retract one there to take it back.</>}</p>
        {saved.complaints.length > 0 && <ul>{saved.complaints.map((one) => <li key={one}>{one}</li>)}</ul>}
        {secrets > 0 && <p>{many(secrets, 'secret')} in it {secrets === 1 ? 'was' : 'were'} replaced before it was kept.</p>}
      </div>
      <Button small kind="quiet" label="Put this away" onClick={onClose}>✕</Button>
    </div>
  );
}
