// The artifacts of a conversation: code, drafts and documents, with a diff between any two versions.
import type { JSX } from 'preact';
import type { Schema } from '../../lib/api.ts';
import { useGet } from '../../lib/api.ts';
import { bytes, label, plural, moment } from '../../lib/format.ts';
import { useRows } from '../../lib/keyboard.ts';
import { go, href } from '../../lib/route.ts';
import type { Route } from '../../lib/route.ts';
import { Diff } from '../../ui/diff.tsx';
import { Select, CopyButton, EmptyState, Section, RequestView } from '../../ui/components.tsx';
import type { Conversation } from './base-truth.tsx';

type ArtifactVersion = Schema['ArtifactVersion'];

function ArtifactText({ name, of }: { name: string; of: ArtifactVersion }): JSX.Element {
  const artifact = useGet('/api/conversations/{name}/artifacts/{which}', { path: { name, which: `${of.name}@v${of.version}` } });
  return (
    <RequestView of={artifact} what="Loading the text">
      {(value) => (
        <>
          <p class="meta"><span>{label(value.artifact.language ?? value.artifact.kind)}</span><span>{plural(value.artifact.lines, 'line')}, {bytes(value.artifact.bytes)}</span><span>{value.artifact.file}</span><CopyButton text={() => value.text} /></p>
          <pre class="artifact" tabIndex={0} aria-label={`${of.name}, version ${of.version}`}><code>{value.text}</code></pre>
        </>
      )}
    </RequestView>
  );
}

function ArtifactDiff({ name, old, now }: { name: string; old: ArtifactVersion; now: ArtifactVersion }): JSX.Element {
  const before = useGet('/api/conversations/{name}/artifacts/{which}', { path: { name, which: `${old.name}@v${old.version}` } });
  const after = useGet('/api/conversations/{name}/artifacts/{which}', { path: { name, which: `${now.name}@v${now.version}` } });
  return <RequestView of={before} what="Loading the versions">{(first) => <RequestView of={after}>{(second) => <Diff old={first.text} now={second.text} label={`From version ${old.version} to version ${now.version}`} />}</RequestView>}</RequestView>;
}

export function Artifacts({ whole, route }: { whole: Conversation; route: Route }): JSX.Element {
  const rows = useRows<HTMLUListElement>();
  const name = whole.conversation;
  const names = [...new Set(whole.artifacts.map((one) => one.name))];
  if (names.length === 0) return <EmptyState title="This conversation has no artifacts."><p>Code blocks, drafts and long documents that a model writes appear here, with all their versions.</p></EmptyState>;
  const chosen = names.find((one) => one === route.query.get('artifact')) ?? names[0] ?? '';
  const versions = whole.artifacts.filter((one) => one.name === chosen).sort((a, b) => a.version - b.version);
  const newest = versions.at(-1);
  const shown = versions.find((one) => String(one.version) === route.query.get('version')) ?? newest;
  const other = versions.find((one) => String(one.version) === route.query.get('against'));
  const choose = (part: { version?: string; against?: string }): void => {
    go(['conversations', name, 'artifacts'], { artifact: chosen, version: route.query.get('version') ?? undefined, against: route.query.get('against') ?? undefined, ...part }, true);
  };
  const versionOption = (one: ArtifactVersion): readonly [string, string] => [String(one.version), `Version ${one.version}, turn ${one.turn}`];
  return (
    <div class="artifacts">
      <ul class="rows section" ref={rows} aria-label="Artifacts">
        {names.map((one) => {
          const of = whole.artifacts.filter((version) => version.name === one);
          return <li key={one}><a class="row" data-row href={href(['conversations', name, 'artifacts'], { artifact: one })} aria-current={one === chosen ? 'true' : undefined}>{one}<span class="meta">{of.at(-1)?.language ?? of.at(-1)?.kind}, {plural(of.length, 'version')}</span></a></li>;
        })}
      </ul>
      {shown && (
        <Section title={chosen} aside={<a href={href(['conversations', name, 'turns'], { open: shown.turn })}>turn {shown.turn}, {moment(shown.ts)}</a>}>
          <div class="between">
            <Select label="Version" value={String(shown.version)} options={versions.map(versionOption).reverse()} onChange={(version) => choose({ version })} />
            {versions.length > 1 && <Select label="Compared with" value={other ? String(other.version) : ''} options={[['', 'nothing'], ...versions.filter((one) => one !== shown).map(versionOption)]} onChange={(against) => choose({ against })} />}
          </div>
          {other && other !== shown ? <ArtifactDiff name={name} old={other} now={shown} /> : <ArtifactText name={name} of={shown} />}
        </Section>
      )}
    </div>
  );
}
