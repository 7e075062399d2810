// A plot of days: uPlot draws it in the theme's colours; the value at the pointer or at the keyboard cursor is shown as text.
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useId, useMemo, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { day as dayName, period as periodName } from '../../lib/format.ts';
import { useSize } from '../../lib/hooks.ts';
import { useStore } from '../../lib/store.ts';
import { theme, token } from '../../lib/theme.ts';
import { Section } from '../../ui/components.tsx';
import { DAY_SECS, alignDays, axisRange, fillDays } from './days.ts';

const HEIGHT = 190;
const MONTH_SECS = 30.4 * DAY_SECS;
/** Beyond this many days a line has no points. */
export const MAX_POINTS = 100;

/** One value per day; `null` where there is none. */
export interface Series {
  label: string;
  values: readonly (number | null)[];
  /** The design token of its colour. */
  colour: string;
  kind: 'bars' | 'line' | 'faint';
}

interface PlotProps {
  title: string;
  days: readonly string[];
  /** Whether these are days, or the first days of months. */
  unit?: 'day' | 'month';
  /** The first one is drawn in the background. */
  series: readonly Series[];
  write: (value: number) => string;
  /** A labelled limit. It is drawn unless all values are far below it. */
  limit?: { value: number; label: string } | undefined;
  note?: string | undefined;
  /** The allowed distances between axis labels; any round number by default. */
  steps?: number[];
  children?: ComponentChildren;
}

/** 13 Feb 2026, or February 2026. */
function axisLabel(at: number, unit: 'day' | 'month'): string {
  const text = new Date(at * 1_000).toISOString();
  return unit === 'day' ? dayName(text) : periodName(text.slice(0, 7));
}

function valuesAt(at: number | undefined, data: uPlot.AlignedData, unit: 'day' | 'month', series: readonly Series[], write: (value: number) => string): string {
  const when = at === undefined ? undefined : data[0][at];
  if (at === undefined || when === undefined) return '';
  const parts = series.map(({ label }, index) => {
    const value = data[index + 1]?.[at];
    return value == null ? undefined : `${label} ${write(value)}`;
  }).filter((one) => one !== undefined);
  return `${axisLabel(when, unit)}: ${parts.length === 0 ? 'nothing' : parts.toReversed().join(', ')}`;
}

export function Plot({ title, days, series, write, limit, note, steps, unit = 'day', children }: PlotProps): JSX.Element {
  const [box, size] = useSize<HTMLDivElement>();
  const plot = useRef<uPlot>();
  const [at, setAt] = useState<number>();
  const shownTheme = useStore(theme);
  const textId = useId();
  const data = useMemo((): uPlot.AlignedData => (unit === 'day' ? fillDays : alignDays)(days, series.map(({ values }) => values)), [days, series, unit]);
  const most = Math.max(0, ...series.flatMap(({ values }) => values.map((value) => value ?? 0)));
  const shownLimit = limit !== undefined && most > limit.value / 4 ? limit : undefined;

  useEffect(() => {
    if (!box.current || size.width === 0) return;
    const font = `12px ${token('--sans')}`;
    const grid = { stroke: token('--line'), width: 1 };
    const axis = { stroke: token('--dim'), font, grid, ticks: { ...grid, size: 4 } };
    const drawn = new uPlot({
      width: size.width,
      height: HEIGHT,
      legend: { show: false },
      tzDate: (ts) => uPlot.tzDate(new Date(ts * 1_000), 'Etc/UTC'),
      cursor: { y: false, drag: { setScale: false, x: false, y: false }, points: { show: false }, sync: { key: 'runs' } },
      scales: {
        x: { range: axisRange(data[0], unit === 'day' ? DAY_SECS : MONTH_SECS) },
        y: { range: [0, Math.max(most, shownLimit?.value ?? 0) * 1.08 || 1] },
      },
      axes: [
        { ...axis, size: 30, space: 70, grid: { show: false }, incrs: [1, 2, 7, 14, 28, 61, 92, 183, 366, 731, 1_461, 3_653].map((count) => count * DAY_SECS), values: (_, splits) => splits.map((one) => unit === 'day' ? axisLabel(one, 'day').replace(/ \d{4}$/, '') : axisLabel(one, 'day').replace(/^\d+ /, '')) },
        // Without data, only the zero is labelled.
        { ...axis, size: (_, values) => 16 + 7 * Math.max(3, ...(values ?? []).map((one) => one.length)), space: 34, ...(steps ? { incrs: steps } : {}), values: (_, splits) => splits.map((one) => most === 0 && shownLimit === undefined && one !== 0 ? '' : write(one)) },
      ],
      series: [{}, ...series.map(({ label, colour, kind }): uPlot.Series => {
        const stroke = token(colour);
        const paths = uPlot.paths.bars?.({ size: [0.72, 36, 2], radius: 0.12 });
        return kind === 'bars'
          ? { label, stroke, fill: stroke, width: 0, points: { show: false }, ...(paths ? { paths } : {}) }
          : { label, stroke, width: kind === 'faint' ? 1 : 2, points: { show: kind === 'line' && days.length <= MAX_POINTS, size: 6, fill: stroke, width: 0 } };
      })],
      hooks: {
        setCursor: [(self) => setAt(self.cursor.idx ?? undefined)],
        draw: [(self) => {
          if (!shownLimit) return;
          const y = Math.round(self.valToPos(shownLimit.value, 'y', true));
          const { ctx, bbox } = self;
          ctx.save();
          ctx.strokeStyle = token('--warm');
          ctx.fillStyle = token('--warm');
          ctx.lineWidth = devicePixelRatio;
          ctx.textAlign = 'left';
          ctx.setLineDash([5, 4]);
          ctx.beginPath();
          ctx.moveTo(bbox.left, y);
          ctx.lineTo(bbox.left + bbox.width, y);
          ctx.stroke();
          ctx.font = `${12 * devicePixelRatio}px ${token('--sans')}`;
          ctx.fillText(shownLimit.label, bbox.left + 6, y + 14 * devicePixelRatio);
          ctx.restore();
        }],
      },
    }, data, box.current);
    plot.current = drawn;
    return () => {
      drawn.destroy();
      plot.current = undefined;
    };
  }, [data, series, size.width, shownTheme, most, shownLimit?.value]);

  const onKeyDown = (event: KeyboardEvent): void => {
    const last = data[0].length - 1;
    const next = { ArrowLeft: (at ?? last + 1) - 1, ArrowRight: (at ?? -1) + 1, Home: 0, End: last }[event.key];
    const chart = plot.current;
    if (next === undefined || !chart) return;
    event.preventDefault();
    const index = Math.min(Math.max(next, 0), last);
    chart.setCursor({ left: chart.valToPos(data[0][index] ?? 0, 'x'), top: 0 });
  };
  return (
    <Section title={title} aside={<span class="plotkeys">{series.length > 1 && series.toReversed().map(({ label, colour }) => <span key={label} class={`plotkey ${colour.slice(2)}`}>{label}</span>)}</span>}>
      <div class="plot" ref={box} role="group" tabIndex={0} aria-label={`${title}, ${dayName(days[0] ?? '')} to ${dayName(days.at(-1) ?? '')}; arrows move from ${unit} to ${unit}, the table below has the same figures`} aria-describedby={textId} onKeyDown={onKeyDown} onBlur={() => plot.current?.setCursor({ left: -10, top: -10 })} />
      <p id={textId} class="plottold" aria-live="polite">{valuesAt(at, data, unit, series, write) || note || '\u00a0'}</p>
      {children}
    </Section>
  );
}
