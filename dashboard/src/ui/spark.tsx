// A sparkline.
import type { JSX } from 'preact';

/** Values from the oldest to the newest; `label` describes them for screen readers. */
export function Sparkline({ values, label, width = 120, height = 28, bars = false }: { values: readonly number[]; label: string; width?: number; height?: number; bars?: boolean }): JSX.Element {
  const most = Math.max(...values, 1);
  const step = values.length > 1 ? width / (bars ? values.length : values.length - 1) : width;
  const y = (value: number): number => height - 2 - (value / most) * (height - 4);
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="img" aria-label={label} preserveAspectRatio="none">
      {bars
        ? values.map((value, at) => <rect key={at} x={at * step + step * 0.1} y={y(value)} width={step * 0.8} height={Math.max(height - 1 - y(value), value > 0 ? 1 : 0.4)} />)
        : values.length > 0 && <polyline points={values.map((value, at) => `${(at * step).toFixed(1)},${y(value).toFixed(1)}`).join(' ')} />}
    </svg>
  );
}
