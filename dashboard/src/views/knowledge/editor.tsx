// The page editor: edits become events in the ledger. If the page changed in the meantime, both versions are shown.
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Reply } from '../../lib/api.ts';
import { ApiError, post, useAction } from '../../lib/api.ts';
import { plural } from '../../lib/format.ts';
import { go, href } from '../../lib/route.ts';
import { Diff } from '../../ui/diff.tsx';
import { Button, Dialog, ErrorBox, Section, Tabs, TextField as TextField, classes } from '../../ui/components.tsx';
import { PageText } from './page.tsx';

type Page = Reply<'/api/pages/{kind}/{slug}'>;
export type Saved = Reply<'/api/pages/{kind}/{slug}', 'post'>;

interface Draft {
  text: string;
  /** The text and the hash that the edit is based on; no hash for a new page. */
  base: string;
  hash: string | undefined;
}

/** Unsaved drafts, for as long as this window is open: changing the view loses nothing. */
const drafts = new Map<string, Draft>();

/** Whether a page has unsaved changes. */
export function hasDraft(path: string): boolean {
  const draft = drafts.get(path);
  return draft !== undefined && draft.text !== draft.base;
}

interface PageEditorProps {
  kind: string;
  slug: string;
  title: string;
  /** The current page; undefined for a new one. */
  page: Page | undefined;
  onSaved: (saved: Saved) => void;
  /** The page may have changed: reload it. */
  onChanged: () => void;
}

function newPageText(title: string): string {
  return `# ${title}\n\n## Key Facts\n- \n`;
}

export function PageEditor({ kind, slug, title, page, onSaved, onChanged }: PageEditorProps): JSX.Element {
  const path = `knowledge/${kind}/${slug}.md`;
  const fresh = (): Draft => ({ text: page?.text ?? newPageText(title), base: page?.text ?? '', hash: page?.hash });
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
  // Start at the top of the page, not where the browser puts the cursor.
  const whole = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const field = whole.current?.querySelector('textarea');
    field?.focus({ preventScroll: true });
    field?.setSelectionRange(0, 0);
    field?.scrollTo(0, 0);
  }, []);
  // Without unsaved changes there is no conflict: continue with the current page.
  useEffect(() => {
    if (theirs && !changed) setDraft({ text: theirs.text, base: theirs.text, hash: theirs.hash });
  }, [theirs?.hash, changed]);

  const saving = useAction(async (hash: string | undefined) => {
    try {
      const saved = await post('/api/pages/{kind}/{slug}', { path: { kind, slug }, body: { text: draft.text, ...(hash === undefined ? {} : { hash }) } });
      drafts.delete(path);
      onSaved(saved);
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 409)) throw error;
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
        <EditConflict theirs={theirs} draft={draft} busy={saving.busy}
          onTheirs={() => put({ text: theirs.text, base: theirs.text, hash: theirs.hash })}
          onContinue={() => put({ text: draft.text, base: theirs.text, hash: theirs.hash })}
          onMine={() => void saving.run(theirs.hash)} />
      )}
      {saving.failure && <ErrorBox failure={saving.failure} />}
      <div class="buttons">
        <Button kind="main" busy={saving.busy} disabled={!changed || theirs !== undefined} onClick={save}>Save</Button>
        <Button onClick={() => (changed ? setLeaving(true) : back())}>{changed ? 'Discard my changes' : 'Back to the page'}</Button>
        <span class="dim small">{changed ? 'Not saved yet.' : 'Change a line, add one, or strike one through with ~~…~~.'} Ctrl+S saves. Your edits become events in the ledger.</span>
      </div>
      <div class="two">
        <TextField label="The page, in Markdown" value={draft.text} onInput={(text) => put({ ...draft, text })} lines={26} />
        <section class="preview" aria-label="Preview"><h3>Preview</h3><div class="section"><PageText text={draft.text} freshnessOf={() => undefined} /></div></section>
      </div>
      {changed && <Section title="Your changes"><Diff old={draft.base} now={draft.text} label="Your changes" /></Section>}
      <Dialog title="Discard your changes?" open={leaving} onClose={() => setLeaving(false)} foot={<><Button onClick={() => setLeaving(false)}>Keep editing</Button><Button kind="warm" onClick={back}>Discard</Button></>}>
        <p>Your changes to this page since you opened it are lost. The page stays as it is.</p>
      </Dialog>
    </div>
  );
}

/** An edit conflict: their changes, the user's changes, and the ways to resolve it. */
function EditConflict({ theirs, draft, busy, onTheirs, onContinue, onMine }: { theirs: Page; draft: Draft; busy: boolean; onTheirs: () => void; onContinue: () => void; onMine: () => void }): JSX.Element {
  const [tab, setTab] = useState<'theirs' | 'mine' | 'both'>('theirs');
  return (
    <section class={classes('section', 'both')} role="alert" aria-label="Edit conflict">
      <h2>This page changed while you were editing</h2>
      <p>Your changes are not lost and not saved yet. Compare both versions, then choose.</p>
      <Tabs label="Differences" current={tab} onChange={(next) => setTab(next)} tabs={[['theirs', 'Their changes'], ['mine', 'Your changes'], ['both', 'From theirs to yours']]}>
        {tab === 'theirs' && <Diff old={draft.base} now={theirs.text} label="Their changes" />}
        {tab === 'mine' && <Diff old={draft.base} now={draft.text} label="Your changes" />}
        {tab === 'both' && <Diff old={theirs.text} now={draft.text} label="Differences from theirs to yours" />}
      </Tabs>
      <div class="buttons">
        <Button kind="main" busy={busy} onClick={onMine}>Save both</Button>
        <Button onClick={onContinue}>Keep editing</Button>
        <Button onClick={onTheirs}>Use theirs</Button>
      </div>
      <p class="dim small">“Save both” adds your statements and keeps theirs, also those that your text lacks. Where both of you changed one line, both statements remain; strike one through with ~~…~~. “Keep editing” keeps your text and compares it with theirs from now on.</p>
    </section>
  );
}

/** The result of saving. */
export function SavedBar({ saved, onClose }: { saved: Saved; onClose: () => void }): JSX.Element {
  const secrets = Object.values(saved.secrets as Record<string, number>).reduce((sum, one) => sum + one, 0);
  return (
    <div class={classes('savedbar', (saved.held || saved.complaints.length > 0) && 'held')} role="status">
      <div>
        <p>{saved.held ? 'Saved, but a part of it could not be recorded in the ledger:' : saved.learnt.length === 0 ? 'Saved. No new statements, so the ledger did not change.' : <>Saved. {plural(saved.learnt.length, 'event')} recorded in the ledger: {saved.learnt.map((id, at) => <span key={id}>{at > 0 && ', '}<a href={href(['ledger', id], { status: 'any' })}>{id}</a></span>)}. To undo one, retract it there.</>}</p>
        {saved.complaints.length > 0 && <ul>{saved.complaints.map((one) => <li key={one}>{one}</li>)}</ul>}
        {secrets > 0 && <p>{plural(secrets, 'secret')} in it {secrets === 1 ? 'was' : 'were'} redacted before it was stored.</p>}
      </div>
      <Button small kind="quiet" label="Dismiss" onClick={onClose}>✕</Button>
    </div>
  );
}
