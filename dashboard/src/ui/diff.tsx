// A unified diff of two texts.
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { diffLines } from '../lib/diff.ts';
import type { DiffLine } from '../lib/diff.ts';
import { plural } from '../lib/format.ts';

/** How many unchanged lines are shown around a change. */
const CONTEXT_LINES = 3;

function groupLines(all: readonly DiffLine[]): (DiffLine[] | number)[] {
  const near = all.map((_, at) => all.slice(Math.max(0, at - CONTEXT_LINES), at + CONTEXT_LINES + 1).some((line) => line.kind !== 'same'));
  const found: (DiffLine[] | number)[] = [];
  all.forEach((line, at) => {
    const last = found.at(-1);
    if (near[at]) {
      if (Array.isArray(last)) last.push(line);
      else found.push([line]);
    } else if (typeof last === 'number') found[found.length - 1] = last + 1;
    else found.push(1);
  });
  return found;
}

/** The changes between `old` and `now`. */
export function Diff({ old, now, label }: { old: string; now: string; label: string }): JSX.Element {
  const all = useMemo(() => groupLines(diffLines(old, now)), [old, now]);
  if (old === now) return <p class="dim">No changes.</p>;
  return (
    <div class="diff" role="group" aria-label={label} tabIndex={0}>
      {all.map((group, at) => typeof group === 'number'
        ? <p key={at} class="skipped">{plural(group, 'unchanged line')}</p>
        : group.map((line, index) => (
          <div key={`${at}-${index}`} class={line.kind}>
            <span class="sign" aria-hidden="true">{{ same: ' ', added: '+', removed: '−' }[line.kind]}</span>
            <span class="unseen">{{ same: '', added: 'added: ', removed: 'removed: ' }[line.kind]}</span>
            <span class="words">{line.parts.map((part, inner) => part.kind === 'same' || line.parts.length === 1 ? part.value
              : part.kind === 'added' ? <ins key={inner}>{part.value}</ins> : <del key={inner}>{part.value}</del>)}{'\n'}</span>
          </div>
        )))}
    </div>
  );
}
