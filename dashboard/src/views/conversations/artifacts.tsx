// The artifacts of a conversation: code, drafts and documents, with a diff between any two versions.
import type { JSX } from 'preact';
import type { Schema } from '../../lib/api.ts';
import { useGet } from '../../lib/api.ts';
import { bytes, label, many, moment } from '../../lib/format.ts';
import { useRows } from '../../lib/keys.ts';
import { go, href } from '../../lib/route.ts';
import type { Route } from '../../lib/route.ts';
import { Diff } from '../../ui/diff.tsx';
import { Choice, Copy, Empty, Section, Shown } from '../../ui/parts.tsx';
import type { Whole } from './truth.tsx';

type Kept = Schema['Kept'];

function Text({ name, of }: { name: string; of: Kept }): JSX.Element {
  const artifact = useGet('/api/conversations/{name}/artifacts/{which}', { path: { name, which: `${of.name}@v${of.version}` } });
  return (
    <Shown of={artifact} what="Loading the text">
      {(value) => (
        <>
          <p class="meta"><span>{label(value.artifact.language ?? value.artifact.kind)}</span><span>{many(value.artifact.lines, 'line')}, {bytes(value.artifact.bytes)}</span><span>{value.artifact.file}</span><Copy text={() => value.text} /></p>
          <pre class="artifact" tabIndex={0} aria-label={`${of.name}, version ${of.version}`}><code>{value.text}</code></pre>
        </>
      )}
    </Shown>
  );
}

function Between({ name, old, now }: { name: string; old: Kept; now: Kept }): JSX.Element {
  const before = useGet('/api/conversations/{name}/artifacts/{which}', { path: { name, which: `${old.name}@v${old.version}` } });
  const after = useGet('/api/conversations/{name}/artifacts/{which}', { path: { name, which: `${now.name}@v${now.version}` } });
  return <Shown of={before} what="Loading the versions">{(first) => <Shown of={after}>{(second) => <Diff old={first.text} now={second.text} label={`From version ${old.version} to version ${now.version}`} />}</Shown>}</Shown>;
}

export function Artifacts({ whole, route }: { whole: Whole; route: Route }): JSX.Element {
  const rows = useRows<HTMLUListElement>();
  const name = whole.conversation;
  const names = [...new Set(whole.artifacts.map((one) => one.name))];
  if (names.length === 0) return <Empty title="This conversation has no artifacts."><p>Code blocks, drafts and long documents that a model writes appear here, with all their versions.</p></Empty>;
  const chosen = names.find((one) => one === route.query.get('artifact')) ?? names[0] ?? '';
  const versions = whole.artifacts.filter((one) => one.name === chosen).sort((a, b) => a.version - b.version);
  const newest = versions.at(-1);
  const shown = versions.find((one) => String(one.version) === route.query.get('version')) ?? newest;
  const other = versions.find((one) => String(one.version) === route.query.get('against'));
  const choose = (part: { version?: string; against?: string }): void => {
    go(['conversations', name, 'artifacts'], { artifact: chosen, version: route.query.get('version') ?? undefined, against: route.query.get('against') ?? undefined, ...part }, true);
  };
  const said = (one: Kept): readonly [string, string] => [String(one.version), `Version ${one.version}, turn ${one.turn}`];
  return (
    <div class="artifacts">
      <ul class="rows section" ref={rows} aria-label="Artifacts">
        {names.map((one) => {
          const of = whole.artifacts.filter((version) => version.name === one);
          return <li key={one}><a class="row" data-row href={href(['conversations', name, 'artifacts'], { artifact: one })} aria-current={one === chosen ? 'true' : undefined}>{one}<span class="meta">{of.at(-1)?.language ?? of.at(-1)?.kind}, {many(of.length, 'version')}</span></a></li>;
        })}
      </ul>
      {shown && (
        <Section title={chosen} aside={<a href={href(['conversations', name, 'turns'], { open: shown.turn })}>turn {shown.turn}, {moment(shown.ts)}</a>}>
          <div class="between">
            <Choice label="Version" value={String(shown.version)} options={versions.map(said).reverse()} onChange={(version) => choose({ version })} />
            {versions.length > 1 && <Choice label="Compared with" value={other ? String(other.version) : ''} options={[['', 'nothing'], ...versions.filter((one) => one !== shown).map(said)]} onChange={(against) => choose({ against })} />}
          </div>
          {other && other !== shown ? <Between name={name} old={other} now={shown} /> : <Text name={name} of={shown} />}
        </Section>
      )}
    </div>
  );
}
