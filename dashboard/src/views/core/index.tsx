// The core: the vault's whole timeline as layers of ice, from years down to single messages.
import type { ComponentChildren, JSX } from 'preact';
import { useCallback, useEffect, useMemo, useRef } from 'preact/hooks';
import { useGet } from '../../lib/api.ts';
import { plural } from '../../lib/format.ts';
import { useSize, useTitle } from '../../lib/hooks.ts';
import { useLive } from '../../lib/live.ts';
import { go } from '../../lib/route.ts';
import type { Route } from '../../lib/route.ts';
import { useStore } from '../../lib/store.ts';
import { theme } from '../../lib/theme.ts';
import { Button, EmptyState, RequestView } from '../../ui/components.tsx';
import type { View } from '../view.ts';
import './core.css';
import { Painter, title } from './painter.ts';
import { TextLoader } from './texts.ts';
import { Core, interpolateCamera, clampCamera, fitLayer, fitAll, zoomCamera } from './model.ts';
import type { Camera, Layer, Timeline } from './model.ts';
import { Panel } from './panel.tsx';

const MOVE_MS = 420;
const WHEEL = 0.0016;
const STEP = 1.6;
/** A pointer movement below this distance is a click. */
const CLICK_PX = 5;
/** Frame times are recorded as performance measures, which are cleared after this many. */
const MAX_MEASURED_FRAMES = 2_000;

interface Point {
  x: number;
  y: number;
}

/** The picture, with pointer, wheel and keyboard control. */
function Picture({ core, selected, onSelect }: { core: Core; selected: string | undefined; onSelect: (layer: Layer | undefined, message?: string) => void }): JSX.Element {
  const [box, size] = useSize<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const shownTheme = useStore(theme);
  const state = useRef({
    camera: { scale: 1, top: 0 } as Camera, moving: undefined as { from: Camera; to: Camera; begun: number } | undefined, hovered: undefined as string | undefined,
    pointer: undefined as Point | undefined, painter: undefined as Painter | undefined, words: undefined as TextLoader | undefined, waiting: 0, ready: false,
    height: 0, width: 0, frames: 0, chosen: selected, core: undefined as Core | undefined,
  });
  const now = state.current;
  now.chosen = selected;
  const reducedMotion = useMemo(() => matchMedia('(prefers-reduced-motion: reduce)').matches, []);

  const frame = useCallback((at: number): void => {
    now.waiting = 0;
    if (!now.painter || !now.words || now.width === 0) return;
    if (now.moving) {
      const part = Math.min((at - now.moving.begun) / MOVE_MS, 1);
      const eased = 1 - (1 - part) ** 3;
      now.camera = part >= 1 ? now.moving.to : interpolateCamera(now.moving.from, now.moving.to, eased, now.height);
      if (part >= 1) now.moving = undefined;
    }
    const begun = performance.now();
    now.painter.paint({ width: now.width, height: now.height, camera: now.camera, selected: now.chosen, hovered: now.hovered, pointer: now.pointer }, now.words);
    performance.measure('core-frame', { start: begun, end: performance.now() });
    now.frames += 1;
    if (now.frames % MAX_MEASURED_FRAMES === 0) performance.clearMeasures('core-frame');
    now.words.request(now.painter.labelled);
    if (now.moving) draw();
  }, []);
  const draw = useCallback((): void => {
    if (now.waiting === 0) now.waiting = requestAnimationFrame(frame);
  }, []);
  const move = useCallback((to: Camera): void => {
    now.moving = reducedMotion ? undefined : { from: now.camera, to, begun: performance.now() };
    if (reducedMotion) now.camera = to;
    draw();
  }, []);

  useEffect(() => {
    if (!canvas.current) return;
    // New layers are added on top: keep the visible part in place, unless everything is visible.
    const before = now.core;
    now.core = core;
    if (before && now.height > 0) {
      const all = Math.abs(now.camera.scale / fitAll(before, now.height).scale - 1) < 1e-6;
      now.camera = all ? fitAll(core, now.height) : clampCamera({ ...now.camera, top: now.camera.top + core.total - before.total }, core, now.height);
      now.moving = undefined;
    }
    now.painter = new Painter(canvas.current, core);
    now.words = new TextLoader(core, draw);
    draw();
    return () => {
      now.words?.close();
      cancelAnimationFrame(now.waiting);
      now.waiting = 0;
      performance.clearMeasures('core-frame');
    };
  }, [core]);
  useEffect(() => {
    now.painter?.theme();
    draw();
  }, [shownTheme]);
  useEffect(() => {
    if (size.width === 0 || size.height === 0) return;
    const first = now.width === 0;
    now.width = size.width;
    now.height = size.height;
    const layer = now.chosen === undefined ? undefined : core.find(now.chosen);
    now.camera = first ? (layer ? fitLayer(layer, core, size.height) : fitAll(core, size.height)) : clampCamera(now.camera, core, size.height);
    now.moving = undefined;
    draw();
  }, [size.width, size.height]);
  // Selecting a layer in the list moves the picture to it.
  useEffect(() => {
    const layer = selected === undefined ? undefined : core.find(selected);
    if (!now.ready) {
      now.ready = true;
      return;
    }
    if (layer) {
      const tall = (layer.bottom - layer.top) * now.camera.scale;
      const top = (layer.top - now.camera.top) * now.camera.scale;
      if (tall < now.height * 0.45 || tall > now.height * 1.4 || top > now.height || top + tall < 0) move(fitLayer(layer, core, now.height));
    } else if (selected === undefined) move(fitAll(core, now.height));
    draw();
  }, [selected]);

  const fingers = useRef(new Map<number, Point>());
  const press = useRef<{ x: number; y: number; moved: number }>();
  const place = (event: PointerEvent | WheelEvent): Point => {
    const corner = canvas.current?.getBoundingClientRect();
    return { x: event.clientX - (corner?.left ?? 0), y: event.clientY - (corner?.top ?? 0) };
  };
  // The wheel listener must not be passive: it prevents the page from scrolling.
  useEffect(() => {
    const shown = canvas.current;
    if (!shown) return;
    const turned = (event: WheelEvent): void => {
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 18 : event.deltaMode === 2 ? 400 : 1;
      now.moving = undefined;
      if (event.shiftKey) now.camera = clampCamera({ ...now.camera, top: now.camera.top + ((event.deltaY || event.deltaX) * unit) / now.camera.scale }, core, now.height);
      else now.camera = zoomCamera(now.camera, Math.exp(-event.deltaY * unit * (event.ctrlKey ? WHEEL * 4 : WHEEL)), place(event).y, core, now.height);
      draw();
    };
    shown.addEventListener('wheel', turned, { passive: false });
    return () => shown.removeEventListener('wheel', turned);
  }, [core]);

  const down = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    canvas.current?.setPointerCapture(event.pointerId);
    fingers.current.set(event.pointerId, place(event));
    press.current = { ...place(event), moved: fingers.current.size > 1 ? Infinity : 0 };
    now.moving = undefined;
  };
  const moved = (event: PointerEvent): void => {
    const at = place(event);
    const before = fingers.current.get(event.pointerId);
    now.pointer = at;
    if (!before) {
      const hovered = now.painter?.hit(at.x, at.y, now.camera)?.layer.id;
      if (hovered !== now.hovered || now.hovered !== undefined) draw();
      now.hovered = hovered;
      if (canvas.current) canvas.current.classList.toggle('points', hovered !== undefined);
      return;
    }
    const others = [...fingers.current].filter(([id]) => id !== event.pointerId);
    const other = others[0]?.[1];
    if (other) {
      const [old, fresh] = [Math.hypot(before.x - other.x, before.y - other.y), Math.hypot(at.x - other.x, at.y - other.y)];
      const middle = (at.y + other.y) / 2;
      now.camera = zoomCamera(now.camera, fresh / Math.max(old, 1), middle, core, now.height);
    }
    now.camera = clampCamera({ ...now.camera, top: now.camera.top - (at.y - before.y) / (other ? 2 : 1) / now.camera.scale }, core, now.height);
    fingers.current.set(event.pointerId, at);
    if (press.current) press.current.moved += Math.abs(at.y - before.y) + Math.abs(at.x - before.x);
    now.hovered = undefined;
    draw();
  };
  const up = (event: PointerEvent): void => {
    const pressed = press.current;
    fingers.current.delete(event.pointerId);
    if (fingers.current.size > 0 || !pressed) return;
    press.current = undefined;
    if (event.type !== 'pointerup' || pressed.moved > CLICK_PX) return;
    const hit = now.painter?.hit(pressed.x, pressed.y, now.camera);
    if (!hit) return;
    // A click on the selected layer goes one layer down.
    const depth = now.camera.top + pressed.y / now.camera.scale;
    const further = hit.layer.id === now.chosen ? core.children(hit.layer).find((layer) => layer.top <= depth && depth <= layer.bottom) : undefined;
    onSelect(further ?? hit.layer, hit.message);
  };
  const left = (): void => {
    now.pointer = undefined;
    now.hovered = undefined;
    draw();
  };
  const key = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const layer = selected === undefined ? undefined : core.find(selected);
    const parents = layer ? core.parents(layer) : [];
    const beside = core.children(parents.at(-1)).filter((one) => !layer || one.tier === layer.tier);
    const at = layer ? beside.findIndex((one) => one.id === layer.id) : -1;
    const does: Record<string, () => void> = {
      '+': () => move(zoomCamera(now.camera, STEP, now.height / 2, core, now.height)),
      '=': () => move(zoomCamera(now.camera, STEP, now.height / 2, core, now.height)),
      '-': () => move(zoomCamera(now.camera, 1 / STEP, now.height / 2, core, now.height)),
      '0': () => onSelect(undefined),
      ArrowDown: () => onSelect(beside[Math.min(at + 1, beside.length - 1)]),
      ArrowUp: () => onSelect(beside[Math.max(at - 1, 0)]),
      ArrowRight: () => { const [first] = core.children(layer); if (first) onSelect(first); },
      Enter: () => { const [first] = core.children(layer); if (first) onSelect(first); },
      ArrowLeft: () => onSelect(parents.at(-1)),
      Escape: () => onSelect(parents.at(-1)),
      PageDown: () => move(clampCamera({ ...now.camera, top: now.camera.top + (now.height * 0.8) / now.camera.scale }, core, now.height)),
      PageUp: () => move(clampCamera({ ...now.camera, top: now.camera.top - (now.height * 0.8) / now.camera.scale }, core, now.height)),
    };
    const step = does[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    step();
  };

  const layer = selected === undefined ? undefined : core.find(selected);
  return (
    <>
    <div class="picture" ref={box}>
      <canvas ref={canvas} tabIndex={0} role="application" aria-roledescription="zoomable picture" aria-describedby="core-help"
        aria-label={`The core: ${plural(core.messages, 'message')} in layers of ice, the newest on top. Selected: ${layer ? title(layer) : 'everything'}.`}
        onPointerDown={down} onPointerMove={moved} onPointerUp={up} onPointerCancel={up} onPointerLeave={left} onKeyDown={key} />
      <p id="core-help" class="unseen">Arrow up and down select the previous or next layer, right goes down a level, left goes up, plus and minus zoom, 0 shows everything. The list beside the picture has the same layers.</p>
    </div>
    <Legend>
      <Button small label="Zoom in" onClick={() => move(zoomCamera(now.camera, STEP * 1.4, now.height / 2, core, now.height))}>+</Button>
      <Button small label="Zoom out" onClick={() => move(zoomCamera(now.camera, 1 / STEP / 1.4, now.height / 2, core, now.height))}>−</Button>
      <Button small label="Show everything" onClick={() => { onSelect(undefined); move(fitAll(core, now.height)); }}>⤢</Button>
    </Legend>
    </>
  );
}

function Legend({ children }: { children: ComponentChildren }): JSX.Element {
  const swatches = [['raw', 'none'], ['session', 'session'], ['day', 'day'], ['week', 'week'], ['month', 'month'], ['year', 'year']] as const;
  return (
    <div class="legend">
      <span class="dim">Summarized into</span>
      {swatches.map(([name, said]) => <span key={name} class="swatch"><i class={`ice ${name}`} />{said}</span>)}
      <span class="swatch"><i class="ice hatched" />provisional</span>
      <span class="swatch"><i class="ice flagged" />needs review</span>
      <span class="swatch"><i class="ice star" />important day</span>
      <span class="dim">Thickness: amount of text</span>
      <span class="zoom">{children}</span>
    </div>
  );
}

function Page({ route }: { route: Route }): JSX.Element {
  const answer = useGet('/api/core', {});
  useLive(['messages', 'summaries', 'reviews', 'ledger', 'config'], answer.reload, 1_500);
  const core = useMemo(() => (answer.value ? new Core(answer.value as Timeline) : undefined), [answer.value]);
  const selected = route.rest[0];
  const layer = selected === undefined ? undefined : core?.find(selected);
  useTitle(layer ? `${title(layer)} · Core` : 'Core');
  const choose = useCallback((next: Layer | undefined, message?: string): void => go(next ? ['core', next.id] : ['core'], { message }), []);
  return (
    <RequestView of={answer} what="Loading the core">
      {() => core && (core.days === 0
        ? (
          <EmptyState title="There are no messages yet.">
            <p>Import earlier conversations with <code>icecore import claude-code</code>, or capture new ones with <code>icecore install claude-code</code>. Add a single transcript with <code>icecore session add talk.md</code>.</p>
          </EmptyState>
        ) : (
          <div class="corepage">
            <h1 class="unseen">The core</h1>
            <Picture core={core} selected={layer?.id} onSelect={choose} />
            <Panel core={core} layer={layer} message={route.query.get('message') ?? undefined} unknown={selected !== undefined && !layer ? selected : undefined} onSelect={choose} onMarked={answer.reload} />
          </div>
        ))}
    </RequestView>
  );
}

export const core: View = {
  id: 'core', title: 'Core', key: 'c', whole: true, Page,
  icon: 'M7.500 4.500c0-1.100 2-2 4.500-2s4.500.9 4.500 2v15c0 1.100-2 2-4.500 2s-4.500-.9-4.500-2zM7.500 4.500c0 1.100 2 2 4.500 2s4.500-.9 4.500-2M7.500 9.500c0 1.100 2 2 4.500 2s4.500-.9 4.500-2M7.500 15c0 1.100 2 2 4.500 2s4.500-.9 4.500-2',
};
