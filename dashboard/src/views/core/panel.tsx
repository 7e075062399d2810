// The panel beside the picture: the same layers as a list, the summary of the selected one with the sources of each sentence, and its messages.
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Reply } from '../../lib/api.ts';
import { post, useAction, useGet } from '../../lib/api.ts';
import { bytes, day, label, plural, moment, number, period as periodName } from '../../lib/format.ts';
import { useRows } from '../../lib/keyboard.ts';
import { useLive } from '../../lib/live.ts';
import { href } from '../../lib/route.ts';
import { MarkdownLine } from '../../ui/markdown.tsx';
import { Messages } from '../../ui/messages.tsx';
import { Button, ErrorBox, Loading, RequestView, Tag, classes, showToast } from '../../ui/components.tsx';
import { Sources } from '../../ui/sources.tsx';
import { summarizedLabel, title } from './painter.ts';
import type { Core, Layer } from './model.ts';
import { BY_HAND, FLAGGED, FORGOTTEN, PROVISIONAL } from './model.ts';

const PAGE = 100;
/** The most messages that are listed. */
const MAX_MESSAGES = 1_000;

interface PanelProps {
  core: Core;
  layer: Layer | undefined;
  message: string | undefined;
  unknown: string | undefined;
  onSelect: (layer: Layer | undefined, message?: string) => void;
  onMarked: () => void;
}

function Path({ core, layer, onSelect }: Pick<PanelProps, 'core' | 'layer' | 'onSelect'>): JSX.Element {
  const above = layer ? core.parents(layer) : [];
  return (
    <nav class="path" aria-label="Path of this layer">
      <ol>
        <li>{layer ? <button type="button" onClick={() => onSelect(undefined)}>All</button> : <span aria-current="true">All</span>}</li>
        {above.map((one) => <li key={one.id}><button type="button" onClick={() => onSelect(one)}>{shortTitle(one)}</button></li>)}
        {layer && <li><span aria-current="true">{shortTitle(layer)}</span></li>}
      </ol>
    </nav>
  );
}

function shortTitle(layer: Layer): string {
  if (layer.tier === 'week') return `Week ${Number(layer.id.slice(6))}`;
  if (layer.tier === 'month') return periodName(layer.id).split(' ')[0] ?? layer.id;
  return layer.tier === 'day' ? day(layer.id).replace(/ \d{4}$/, '') : title(layer);
}

function LayerTags({ layer }: { layer: Layer }): JSX.Element {
  return (
    <>
      {(layer.state & FLAGGED) !== 0 && <Tag kind="warm">needs review</Tag>}
      {(layer.state & PROVISIONAL) !== 0 && <Tag title="Written without a model; rewritten as soon as there is one">provisional</Tag>}
      {(layer.state & BY_HAND) !== 0 && <Tag kind="ice">by hand</Tag>}
      {(layer.state & FORGOTTEN) !== 0 && <Tag>forgotten</Tag>}
      {layer.importance === 2 && <Tag kind="strong">important</Tag>}
      {layer.importance === 0 && <Tag>dull</Tag>}
    </>
  );
}

/** The layers within a layer: the picture as a list, for keyboards and screen readers. */
function ChildLayers({ core, layer, onSelect, headlines }: { core: Core; layer: Layer | undefined; onSelect: PanelProps['onSelect']; headlines: ReadonlyMap<string, string> }): JSX.Element | null {
  const rows = useRows<HTMLUListElement>();
  const below = core.children(layer);
  if (below.length === 0) return null;
  const most = Math.max(...below.map((one) => one.bytes), 1);
  return (
    <>
      <h3>{layer ? `${label(below[0]?.tier ?? '')}s in it` : 'Layers'}</h3>
      <ul class="rows layers" ref={rows}>
        {below.map((one) => (
          <li key={one.id}>
            <button type="button" class="row" data-row onClick={() => onSelect(one)}>
              <span class="name"><i class={`ice p${one.pressed}`} aria-hidden="true" />{title(one)} <LayerTags layer={one} /></span>
              <svg class="amount" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect width={Math.max((one.bytes / most) * 100, 0.5)} height="4" /></svg>
              <span class="meta">{plural(one.messages, 'message')}, {bytes(one.bytes)}{one.events > 0 && `, ${plural(one.events, 'event')}`}</span>
              {headlines.get(one.id) && <span class="headline">{headlines.get(one.id)}</span>}
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}

type NodeLine = Reply<'/api/core/{period}'>['lines'][number];

/** A sentence of a summary, with its sources on demand. */
function Sentence({ period, line }: { period: string; line: NodeLine }): JSX.Element {
  const [open, setOpen] = useState(false);
  const why = useGet('/api/core/{period}/why', open ? { path: { period }, query: { line: line.n } } : undefined);
  const text = line.text.replace(/^\s*[-*]\s+/, '');
  const heading = /^#{1,6}\s/.test(text);
  if (heading) return <li class="heading">{text.replace(/^#+\s*/, '')}</li>;
  return (
    <li class={classes(line.n === 0 && 'first', open && 'open')}>
      <div class="sentence" onClick={(event) => { if (!(event.target as Element).closest('a, button')) setOpen(!open); }}>
        <MarkdownLine text={text} />
        <button type="button" class="why" aria-expanded={open} aria-label="why: sources of this sentence" onClick={() => setOpen(!open)}>why</button>
      </div>
      {open && <div class="because">{<RequestView of={why} what="Looking up the sources">{(value) => <Sources because={value.because} />}</RequestView>}</div>}
    </li>
  );
}

/** The messages of a session or a day. */
function LayerMessages({ core, layer, message }: { core: Core; layer: Layer; message: string | undefined }): JSX.Element {
  const [pages, setPages] = useState(1);
  useEffect(() => setPages(1), [layer.id]);
  const session = layer.tier === 'session' ? { conversation: layer.conversation ?? '', session: layer.session ?? '' } : {};
  const messages = useGet('/api/core/{period}/messages', { path: { period: core.date(layer.first) }, query: { ...session, limit: Math.min(pages * PAGE, MAX_MESSAGES) } });
  useLive(['messages'], messages.reload);
  // A link to one message loads as many pages as it takes.
  const missing = message !== undefined && messages.value !== undefined && messages.value.messages.length < Math.min(messages.value.total, MAX_MESSAGES) && !messages.value.messages.some((one) => one.id === message);
  useEffect(() => {
    if (missing) setPages(pages + 1);
  }, [missing, messages.value]);
  return (
    <>
      <h3>Messages</h3>
      <RequestView of={messages} what="Loading the messages">
        {(value) => (
          <>
            <Messages messages={value.messages} highlighted={message} />
            {value.messages.length < Math.min(value.total, MAX_MESSAGES) && <Button onClick={() => setPages(pages + 1)} busy={messages.busy}>Show more of {number(value.total)}</Button>}
            {value.total > MAX_MESSAGES && value.messages.length >= MAX_MESSAGES && <p class="dim small">These are the first {number(MAX_MESSAGES)} of {number(value.total)}; open a session to see the rest.</p>}
          </>
        )}
      </RequestView>
    </>
  );
}

function ImportanceButtons({ layer, onMarked }: { layer: Layer; onMarked: () => void }): JSX.Element {
  const marking = useAction(async (mark: 'important' | 'dull' | 'none') => {
    await post('/api/marks', { body: { date: layer.id, mark } });
    showToast(mark === 'none' ? 'Mark removed' : `Marked as ${mark}: it gets ${mark === 'important' ? 'more' : 'less'} room in summaries`);
    onMarked();
  });
  return (
    <div class="marking" role="group" aria-label="Importance of this day">
      <Button small pressed={layer.importance === 2} busy={marking.busy} onClick={() => void marking.run(layer.importance === 2 ? 'none' : 'important')}>Important</Button>
      <Button small pressed={layer.importance === 0} busy={marking.busy} onClick={() => void marking.run(layer.importance === 0 ? 'none' : 'dull')}>Dull</Button>
      {marking.failure && <ErrorBox failure={marking.failure} />}
    </div>
  );
}

function SelectedLayer({ core, layer, message, onSelect, onMarked }: { core: Core; layer: Layer } & Omit<PanelProps, 'core' | 'layer' | 'unknown'>): JSX.Element {
  const node = useGet('/api/core/{period}', layer.named && layer.tier !== 'session' || layer.version > 0 ? { path: { period: layer.id } } : undefined);
  useLive(['summaries', 'reviews'], node.reload);
  const headlines = new Map((node.value?.children ?? []).flatMap((child) => (child.period && child.headline ? [[child.period, child.headline] as const] : [])));
  return (
    <>
      <header>
        <h2>{layer.tier === 'session' ? title(layer) : periodName(layer.id)}</h2>
        <p class="dim small">{plural(layer.messages, 'message')}, {bytes(layer.bytes)}{layer.events > 0 && <>, <a href={href(['ledger'], { since: core.date(layer.first), until: core.date(layer.last), status: 'any' })}>{plural(layer.events, 'event')}</a></>}, {summarizedLabel(layer)} <LayerTags layer={layer} /></p>
        {layer.tier === 'day' && <ImportanceButtons layer={layer} onMarked={onMarked} />}
      </header>
      {(layer.state & FLAGGED) !== 0 && <p class="warm">A draft of this summary was refused: <a href={href(['runs'], { review: layer.id })}>review it</a>.</p>}
      {node.failure && node.failure.status !== 404 && <ErrorBox failure={node.failure} again={node.reload} />}
      {node.busy && !node.value && <Loading what="Loading the summary" />}
      {node.value && node.value.lines.length > 0 && (
        <>
          <h3>Summary</h3>
          <ul class="sentences">{node.value.lines.map((line) => <Sentence key={`${layer.id} ${line.n}`} period={layer.id} line={line} />)}</ul>
          <p class="dim small">Version {number(node.value.version)}, made by {node.value.made_by ?? 'unknown'}{node.value.created_at && ` on ${moment(node.value.created_at)}`}. Click a sentence to see its sources.</p>
          {node.value.left_out.length > 0 && <p class="dim small">Left out: {node.value.left_out.map((one) => `${one.what} (${one.why})`).join(', ')}</p>}
          {node.value.similar && <p class="dim small">Similar to <a href={href(['core', node.value.similar.period])}>{periodName(node.value.similar.period)}</a>.</p>}
        </>
      )}
      <ChildLayers core={core} layer={layer} onSelect={onSelect} headlines={headlines} />
      {(layer.tier === 'session' || layer.tier === 'day') && layer.messages > 0 && <LayerMessages core={core} layer={layer} message={message} />}
    </>
  );
}

export function Panel({ core, layer, message, unknown, onSelect, onMarked }: PanelProps): JSX.Element {
  const panel = useRef<HTMLElement>(null);
  // A new selection is shown from its beginning; where the list is below the picture, the page scrolls there.
  useEffect(() => {
    panel.current?.scrollTo(0, 0);
    if ((panel.current?.getBoundingClientRect().top ?? 0) < 0) panel.current?.scrollIntoView({ block: 'start' });
  }, [layer?.id]);
  const tops = core.children(undefined);
  const tier = tops[0]?.tier;
  const topHeadlines = useGet('/api/core/headlines', layer || tier === undefined ? undefined : { query: { tier, limit: 200 } });
  const headlines = new Map((topHeadlines.value?.headlines ?? []).map((one) => [one.period, one.headline]));
  return (
    <aside class="panel" ref={panel} aria-label="Layers as a list">
      <Path core={core} layer={layer} onSelect={onSelect} />
      {unknown !== undefined && <p class="warm">There is no layer {unknown}. It may have been forgotten; select another one.</p>}
      {layer
        ? <SelectedLayer key={layer.id} core={core} layer={layer} message={message} onSelect={onSelect} onMarked={onMarked} />
        : (
          <>
            <header><h2>Everything</h2><p class="dim small">{plural(core.messages, 'message')} from {day(core.date(core.ofDay.findIndex((at) => at >= 0)))} to {day(core.date(core.days - 1))}</p></header>
            <ChildLayers core={core} layer={undefined} onSelect={onSelect} headlines={headlines} />
          </>
        )}
    </aside>
  );
}
