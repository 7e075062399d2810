// The quarantine (unconfirmed statements of tools and strangers), and the conflicts between statements.
import type { JSX } from 'preact';
import type { RequestState, Reply } from '../../lib/api.ts';
import { useGet } from '../../lib/api.ts';
import { label, moment } from '../../lib/format.ts';
import { useRows } from '../../lib/keyboard.ts';
import { useLive } from '../../lib/live.ts';
import { href } from '../../lib/route.ts';
import { Button, EmptyState, RequestView, Tag } from '../../ui/components.tsx';
import type { PendingAction } from './actions.tsx';
import { PriorityTag } from './filters.tsx';
import type { Priority } from './filters.tsx';

const ORIGIN_LABELS: Record<string, string> = { tool: 'A tool said', import: 'An import said', assistant: 'An assistant said', file: 'A file said', user: 'A user said' };

export function Quarantine({ of, mayWrite, onAction }: { of: RequestState<Reply<'/api/quarantine'>>; mayWrite: boolean; onAction: (action: PendingAction) => void }): JSX.Element {
  return (
    <RequestView of={of} what="Loading the quarantine">
      {(value) => value.quarantined.length === 0
        ? <EmptyState title="The quarantine is empty."><p>Statements that come only from a tool, a web page or an import appear here first. They count once you confirm them.</p></EmptyState>
        : (
          <>
            <p class="dim intro">Only tools and strangers said this. It does not count until you confirm it.</p>
            <ul class="rows waiting">
              {value.quarantined.map((one) => (
                <li key={one.id}>
                  <div class="words">
                    <p class="meta">{ORIGIN_LABELS[one.origin] ?? label(one.origin)}, {moment(one.said)}: <PriorityTag priority={one.priority as Priority} /> {one.type}{one.as_a_rule && <Tag kind="warm" title="It would tell assistants what to do">looks like a rule</Tag>}</p>
                    <blockquote class="quoted">{one.content}</blockquote>
                    {one.quote !== undefined && one.quote !== one.content && <p class="dim small">From: “{one.quote}”</p>}
                    <p class="meta"><span>{one.source}</span>{one.session !== undefined && <span>{one.session}</span>}<a href={href(['ledger', one.id], { status: 'quarantined' })}>{one.id}</a></p>
                  </div>
                  {mayWrite && (
                    <div class="buttons">
                      <Button label={`Confirm ${one.id}`} onClick={() => onAction({ act: 'accept', id: one.id, content: one.content })}>Confirm</Button>
                      <Button label={`Drop ${one.id}`} onClick={() => onAction({ act: 'drop', id: one.id, content: one.content })}>Drop</Button>
                    </div>
                  )}
                </li>
              ))}
            </ul>
          </>
        )}
    </RequestView>
  );
}

export function Conflicts({ mayWrite, onAction }: { mayWrite: boolean; onAction: (action: PendingAction) => void }): JSX.Element {
  const conflicts = useGet('/api/conflicts', {});
  useLive(['ledger'], conflicts.reload);
  const rows = useRows<HTMLDivElement>();
  return (
    <div ref={rows}>
      <RequestView of={conflicts} what="Loading the conflicts">
        {(value) => value.conflicts.length === 0
          ? <EmptyState title="No conflicts."><p>Statements that give different values for the same thing appear here. icecore never resolves a conflict by itself.</p></EmptyState>
          : (
            <div class="cards">
              {value.conflicts.map((one) => (
                <section key={`${one.about} ${one.events.map((event) => event.id).join(' ')}`} class="section" aria-label={one.about}>
                  <header><h2>{label(one.about)}</h2></header>
                  <ul class="rows">
                    {one.events.map((event) => (
                      <li key={event.id}>
                        <a class="row" data-row href={href(['ledger', event.id])}>{event.content}<span class="meta"><PriorityTag priority={event.priority} />{moment(event.ts)}, {event.id}</span></a>
                        {mayWrite && <p class="beside"><Button small label={`Wrong, retract: ${event.content}`} onClick={() => onAction({ act: 'retract', id: event.id, content: event.content })}>Wrong, retract</Button></p>}
                      </li>
                    ))}
                  </ul>
                </section>
              ))}
            </div>
          )}
      </RequestView>
    </div>
  );
}
