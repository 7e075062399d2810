// The history of a page: the snapshots that changed it, with a diff between any two.
import type { JSX } from 'preact';
import { post, useAction, useGet } from '../../lib/api.ts';
import { moment } from '../../lib/format.ts';
import { go } from '../../lib/route.ts';
import type { Route } from '../../lib/route.ts';
import { Diff } from '../../ui/diff.tsx';
import { Button, Select, EmptyState, ErrorBox, Section, RequestView, showToast } from '../../ui/components.tsx';

const NOW = 'now';
/** Snapshot times have a precision of one second. */
const SECOND_MS = 1_000;

function VersionDiff({ kind, slug, from, to }: { kind: string; slug: string; from: string; to: string }): JSX.Element {
  const old = useGet('/api/pages/{kind}/{slug}/versions/{snapshot}', { path: { kind, slug, snapshot: from } });
  const now = useGet('/api/pages/{kind}/{slug}/versions/{snapshot}', { path: { kind, slug, snapshot: to } });
  return <RequestView of={old} what="Loading the older version">{(before) => <RequestView of={now} what="Loading the newer version">{(after) => <Diff old={before.text} now={after.text} label="Changes between the versions" />}</RequestView>}</RequestView>;
}

export function History({ kind, slug, changedAt, route, mayWrite }: { kind: string; slug: string; changedAt: string | undefined; route: Route; mayWrite: boolean }): JSX.Element {
  const versions = useGet('/api/pages/{kind}/{slug}/versions', { path: { kind, slug }, query: { limit: 200 } });
  const taking = useAction(async () => {
    const { snapshot } = await post('/api/snapshots', { body: { note: `${kind}/${slug}, by hand` } });
    showToast(snapshot ? 'Snapshot taken' : 'No changes since the last snapshot');
    versions.reload();
  });
  const takeButton = mayWrite && <Button small busy={taking.busy} onClick={() => void taking.run()}>Take snapshot</Button>;
  const choose = (part: { from?: string; to?: string }): void => {
    go(['knowledge', kind, slug, 'history'], { from: route.query.get('from') ?? undefined, to: route.query.get('to') ?? undefined, ...part }, true);
  };
  return (
    <>
      {taking.failure && <ErrorBox failure={taking.failure} />}
      <RequestView of={versions} what="Loading the snapshots">
        {(value) => {
          const all = value.versions;
          if (all.length === 0) return <EmptyState title="No snapshot contains this page yet."><p>The nightly job takes one, and so does <code>icecore snapshot</code>. From the second one on, the changes appear here.</p>{takeButton && <p>{takeButton}</p>}</EmptyState>;
          const [newest] = all;
          // A page that is unchanged since the newest snapshot is listed once, as that snapshot.
          const sameAsNow = newest !== undefined && changedAt !== undefined && Date.parse(changedAt) <= Date.parse(newest.at) + SECOND_MS ? newest : undefined;
          const options = [[NOW, sameAsNow === undefined ? 'Now' : `Now, as in the snapshot of ${moment(sameAsNow.at)}${sameAsNow.note === '' ? '' : `, ${sameAsNow.note}`}`] as const, ...all.filter((one) => one !== sameAsNow).map((one) => [one.id, `${moment(one.at)}${one.note === '' ? '' : `, ${one.note}`}`] as const)];
          const known = (id: string | null): string | undefined => options.find(([one]) => one === id)?.[0];
          const to = known(route.query.get('to')) ?? NOW;
          const from = known(route.query.get('from')) ?? options[1]?.[0] ?? NOW;
          const at = (id: string): number => options.findIndex(([one]) => one === id);
          return (
            <div class="history">
              <Section title="Versions" aside={takeButton}>
                <ol class="rows versions">
                  {options.map(([id, title], index) => {
                    const before = options[index + 1];
                    return (
                      <li key={id}>
                        <button type="button" class="row" aria-current={id === to && before?.[0] === from ? 'true' : undefined} disabled={!before} onClick={() => before && choose({ from: before[0], to: id })}>
                          {title}<span class="meta">{before ? 'show changes' : 'the first version'}</span>
                        </button>
                      </li>
                    );
                  })}
                </ol>
              </Section>
              <Section title="Changes">
                <div class="between">
                  <Select label="From" value={from} options={options} onChange={(next) => choose({ from: next })} />
                  <Select label="To" value={to} options={options} onChange={(next) => choose({ to: next })} />
                  <Button onClick={() => choose({ from: to, to: from })}>Swap</Button>
                </div>
                {at(from) < at(to) && <p class="dim small">The order is reversed: “To” is older than “From”.</p>}
                <VersionDiff kind={kind} slug={slug} from={from} to={to} />
              </Section>
            </div>
          );
        }}
      </RequestView>
    </>
  );
}
