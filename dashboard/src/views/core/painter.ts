// Paints the core: a column of ice with the newest layer on top, bars for the summaries of each tier at the left and texts at the right.
// A frame recomputes as little as possible: colours are computed once per theme, texts are wrapped once per width, and the ice is one
// column of pixels, however many days it shows.
import { compact, day as dayName, plural, period as periodName } from '../../lib/format.ts';
import { token } from '../../lib/theme.ts';
import type { Camera, Core, Layer, Tier } from './model.ts';
import { FLAGGED, FORGOTTEN, PROVISIONAL, TIERS } from './model.ts';

type Rgb = readonly [number, number, number];

interface Palette {
  ice: readonly Rgb[];
  light: Rgb;
  edge: Rgb;
  ink: string;
  dim: string;
  line: string;
  paper: string;
  snow: string;
  glacier: string;
  strong: string;
  warm: string;
  dark: boolean;
  sans: string;
}

/** A message in the picture. */
export interface MessageLabel {
  id: string;
  role: string;
  /** The name of the speaker, else the role. */
  who: string;
  text: string;
  time: string;
  bytes: number;
}

/** The texts of layers, as far as they are loaded. */
export interface LayerTexts {
  headline(layer: Layer): string | undefined;
  messages(layer: Layer): readonly MessageLabel[] | undefined;
}

/** A layer with enough space for a text, and its position in the picture. */
export interface LabelledLayer {
  layer: Layer;
  top: number;
  bottom: number;
}

export interface Hit {
  layer: Layer;
  /** The message at this point, if messages are shown. */
  message: string | undefined;
}

interface FrameState {
  width: number;
  height: number;
  camera: Camera;
  selected: string | undefined;
  hovered: string | undefined;
  pointer: { x: number; y: number } | undefined;
}

/** The least height of a layer with a text beside it, in pixels. */
const MIN_LABEL_PX = 20;
/** Below this many pixels the layers of a tier cannot be distinguished. */
const MIN_LAYER_PX = 3;
const SLICES = 64;
const COLUMN_GAP = 4;
/** How many pixels beyond the edge are still painted: the ice is curved. */
const OVERSCAN_PX = 60;
/** The most wrapped texts in the cache. */
const MAX_WRAPPED_TEXTS = 4_000;

function rgb(colour: string): Rgb {
  const hex = /^#([\da-f]{2})([\da-f]{2})([\da-f]{2})$/i.exec(colour);
  return hex ? [parseInt(hex[1] ?? '0', 16), parseInt(hex[2] ?? '0', 16), parseInt(hex[3] ?? '0', 16)] : [128, 128, 128];
}

const mix = (one: Rgb, other: Rgb, part: number): Rgb => [one[0] + (other[0] - one[0]) * part, one[1] + (other[1] - one[1]) * part, one[2] + (other[2] - one[2]) * part];
const css = (colour: Rgb, alpha = 1): string => `rgb(${colour[0] | 0} ${colour[1] | 0} ${colour[2] | 0} / ${alpha})`;
const luminance = ([r, g, b]: Rgb): number => (0.299 * r + 0.587 * g + 0.114 * b) / 255;

// A stable pseudo-random number between 0 and 1 per day: natural variation of the ice.
function noise(at: number): number {
  let x = (at + 1) * 2_654_435_761;
  x = (x ^ (x >>> 15)) * 2_246_822_519;
  return ((x ^ (x >>> 13)) >>> 0) / 4_294_967_296;
}

function palette(): Palette {
  const ice = ['--ice-raw', '--ice-session', '--ice-day', '--ice-week', '--ice-month', '--ice-year'].map((name) => rgb(token(name)));
  return {
    ice, light: rgb(token('--ice-light')), edge: rgb(token('--ice-edge')), ink: token('--ink'), dim: token('--dim'), line: token('--line'), paper: token('--paper'),
    snow: token('--snow'), glacier: token('--glacier'), strong: token('--glacier-strong'), warm: token('--warm'), dark: luminance(rgb(token('--snow'))) < 0.5,
    sans: token('--sans'),
  };
}

/** Text is larger on very wide screens, which are viewed from further away. */
const textScale = (width: number): number => (width > 1_250 ? 1.2 : 1);

/** The title of a layer. */
export function title(layer: Layer): string {
  if (layer.tier !== 'session') return periodName(layer.id);
  const clock = (minutes: number): string => `${String(Math.floor(minutes / 60)).padStart(2, '0')}:${String(minutes % 60).padStart(2, '0')}`;
  // Session names often end with their start time, which the title already has.
  const name = (layer.session ?? layer.conversation ?? 'session').replace(/[ T_-]*\d{1,2}:\d{2}(:\d{2})?$/, '') || layer.conversation || 'session';
  return `${clock(layer.from)}–${clock(layer.to)} ${name}`;
}

const SUMMARIZED = ['not summarized yet', 'summarized by session', 'summarized into a day', 'summarized into a week', 'summarized into a month', 'summarized into a year'];

/** The highest tier that a layer is summarized into, as text. */
export function summarizedLabel(layer: Layer): string {
  return SUMMARIZED[layer.pressed] ?? '';
}

export class Painter {
  readonly #canvas: HTMLCanvasElement;
  readonly #context: CanvasRenderingContext2D;
  readonly #strip = document.createElement('canvas');
  readonly #core: Core;
  #palette: Palette;
  #colours = new Float32Array(0);
  #image: ImageData | undefined;
  #sums = new Float32Array(0);
  #shade: { key: string; gradient: CanvasGradient } | undefined;
  #hatch: CanvasPattern | null = null;
  #snow: CanvasPattern | null = null;
  #wrapCache = new Map<string, string[]>();
  #columns: { tier: Tier; x: number; width: number; alpha: number }[] = [];
  #left = 0;
  #coreWidth = 0;
  /** The layers with enough space for a text in the last frame. */
  labelled: LabelledLayer[] = [];
  #messages: { layer: Layer; word: MessageLabel; top: number; bottom: number }[] = [];

  constructor(canvas: HTMLCanvasElement, core: Core) {
    const context = canvas.getContext('2d');
    if (!context) throw new Error('this browser has no canvas; use the list beside the picture');
    this.#canvas = canvas;
    this.#context = context;
    this.#core = core;
    this.#palette = palette();
    this.theme();
  }

  /** Recomputes the colours for the current theme. */
  theme(): void {
    this.#palette = palette();
    this.#shade = undefined;
    const { ice, light, dark } = this.#palette;
    const core = this.#core;
    this.#colours = new Float32Array(core.days * 3);
    const ground = rgb(this.#palette.snow);
    let far = 0;
    for (let at = 0; at < core.days; at += 1) {
      // A day without messages gets the colour of the days around it.
      const silent = core.ofDay[at] === -1;
      if (!silent) far = core.pressed[at] ?? 0;
      let colour = ice[far] ?? (ice[0] as Rgb);
      // Busy days are clearer ice, quiet ones cloudier.
      const loud = Math.min(Math.sqrt((core.bytes[at] ?? 0) / core.usual), 2) - 1;
      colour = mix(colour, ice[Math.min(far + 1, 5)] as Rgb, 0.14 * Math.max(loud, 0) + 0.1 * noise(at));
      if (loud < 0 && !silent) colour = mix(colour, light, -0.16 * loud);
      if (silent) colour = mix(colour, ground, 0.4);
      if (core.importance[at] === 0) colour = mix(colour, ground, 0.16);
      if (core.importance[at] === 2) colour = mix(colour, light, dark ? 0.7 : 0.8);
      this.#colours.set(colour, at * 3);
    }
    this.#hatch = this.#pattern(6, (context) => {
      context.strokeStyle = css(rgb(this.#palette.paper), 0.85);
      context.lineWidth = 1.6;
      context.beginPath();
      for (const x of [-3, 0, 3, 6, 9]) {
        context.moveTo(x - 1, 7);
        context.lineTo(x + 7, -1);
      }
      context.stroke();
    });
    // Air bubbles make it look like ice.
    this.#snow = this.#pattern(96, (context) => {
      for (let at = 0; at < 130; at += 1) {
        const [x, y, size] = [noise(at * 3) * 96, noise(at * 3 + 1) * 96, 0.35 + noise(at * 3 + 2) * 0.9];
        context.fillStyle = at % 3 === 0 ? 'rgb(10 50 80 / 10%)' : 'rgb(255 255 255 / 26%)';
        context.beginPath();
        context.ellipse(x, y, size * 1.6, size, 0, 0, 7);
        context.fill();
      }
    });
  }

  #pattern(size: number, draw: (context: CanvasRenderingContext2D) => void): CanvasPattern | null {
    const tile = document.createElement('canvas');
    tile.width = size;
    tile.height = size;
    const context = tile.getContext('2d');
    if (!context) return null;
    draw(context);
    return this.#context.createPattern(tile, 'repeat');
  }

  /** Paints a frame. */
  paint(frame: FrameState, words: LayerTexts): void {
    const { width, height, camera } = frame;
    const density = Math.min(window.devicePixelRatio || 1, 2);
    const canvas = this.#canvas;
    if (canvas.width !== Math.round(width * density) || canvas.height !== Math.round(height * density)) {
      canvas.width = Math.round(width * density);
      canvas.height = Math.round(height * density);
      this.#shade = undefined;
    }
    const context = this.#context;
    context.setTransform(density, 0, 0, density, 0, 0);
    context.clearRect(0, 0, width, height);
    this.#layout(width, camera);
    this.#findLabels(camera, height, words);
    this.#paintIce(camera, width, height, density);
    for (const column of this.#columns) this.#paintTier(column, frame);
    this.#paintSelection(frame);
    this.#paintTexts(frame, words);
    this.#paintTooltip(frame);
  }

  // Computes the layout. A tier whose layers cannot be distinguished gets no column.
  #layout(width: number, camera: Camera): void {
    const narrow = width < 560;
    const core = this.#core;
    const shown: Tier[] = ['year', 'month', 'week', 'day'];
    const room = narrow ? [17, 17, 15, 15] : [30, 30, 26, 26];
    let x = narrow ? 8 : 20;
    this.#columns = [];
    shown.forEach((tier, at) => {
      const count = core.tiers[tier].length;
      if (count === 0) return;
      const mean = (core.total / count) * camera.scale;
      const alpha = Math.min(Math.max((mean - MIN_LAYER_PX) / 4, 0), 1);
      if (alpha <= 0) return;
      const wide = (room[at] ?? 20) * Math.min(alpha * 1.5, 1);
      this.#columns.push({ tier, x, width: wide, alpha });
      x += wide + COLUMN_GAP;
    });
    this.#left = x + (narrow ? 6 : 14);
    this.#coreWidth = narrow ? 74 : Math.min(Math.max(width * 0.17, 110), 280);
  }

  get #right(): number {
    return this.#left + this.#coreWidth;
  }

  // Finds the layers with enough space for a text: the smallest such ones.
  #findLabels(camera: Camera, height: number, words: LayerTexts): void {
    const core = this.#core;
    this.labelled = [];
    this.#messages = [];
    const visit = (layer: Layer): void => {
      const [top, bottom] = [(layer.top - camera.top) * camera.scale, (layer.bottom - camera.top) * camera.scale];
      if (bottom < -4 || top > height + 4) return;
      const tall = bottom - top;
      if (layer.tier === 'session') {
        const said = words.messages(layer);
        if (said && tall / said.length >= MIN_LABEL_PX) this.#placeMessages(layer, said, top, bottom, height);
      } else if (tall >= MIN_LABEL_PX * 2) {
        const below = TIERS[TIERS.indexOf(layer.tier) + 1] as Tier;
        const count = layer.tier === 'day' ? layer.sessions : core.from(below, layer.last + 1) - core.from(below, layer.first);
        if (count > 0 && (tall / count >= MIN_LABEL_PX * 1.5 || (count === 1 && tall >= MIN_LABEL_PX * 4))) {
          for (const child of core.children(layer)) visit(child);
          return;
        }
      }
      this.labelled.push({ layer, top, bottom });
    };
    const first = TIERS.find((tier) => core.tiers[tier].length > 0);
    if (!first) return;
    const layers = core.tiers[first];
    for (let at = layers.length - 1; at >= 0; at -= 1) visit(layers[at] as Layer);
  }

  #placeMessages(layer: Layer, said: readonly MessageLabel[], top: number, bottom: number, height: number): void {
    const share = (word: MessageLabel): number => Math.sqrt(word.bytes + 60);
    const whole = said.reduce((sum, word) => sum + share(word), 0);
    let lower = bottom;
    for (const word of said) {
      const upper = lower - ((bottom - top) * share(word)) / whole;
      if (lower > -OVERSCAN_PX && upper < height + OVERSCAN_PX) this.#messages.push({ layer, word, top: upper, bottom: lower });
      lower = upper;
    }
  }

  // Paints the column of ice: the colour of a pixel row is the average of its layers, weighted by their share.
  #paintIce(camera: Camera, width: number, height: number, density: number): void {
    const core = this.#core;
    const context = this.#context;
    const { ice, light, edge, dark } = this.#palette;
    const swell = Math.round(this.#coreWidth * 0.07);
    const rows = Math.ceil((height + swell * 2) * density);
    if (!this.#image || this.#image.height !== rows) {
      this.#strip.width = 1;
      this.#strip.height = rows;
      this.#image = new ImageData(1, rows);
      this.#sums = new Float32Array(rows * 4);
    }
    const sums = this.#sums;
    sums.fill(0);
    const scale = camera.scale * density;
    const shift = (swell * 2) * density - camera.top * scale;
    const add = (top: number, bottom: number, r: number, g: number, b: number): void => {
      const [from, to] = [Math.max(top, 0), Math.min(bottom, rows)];
      if (to <= from) return;
      for (let row = Math.floor(from); row < to; row += 1) {
        const covers = Math.min(row + 1, to) - Math.max(row, from);
        const at = row * 4;
        sums[at] = (sums[at] as number) + r * covers;
        sums[at + 1] = (sums[at + 1] as number) + g * covers;
        sums[at + 2] = (sums[at + 2] as number) + b * covers;
        sums[at + 3] = (sums[at + 3] as number) + covers;
      }
    };
    const newest = core.dayAt(Math.max(camera.top - (swell * 2) / camera.scale, 0));
    const oldest = core.dayAt(Math.min(camera.top + (height + swell) / camera.scale, core.total));
    const sessions = core.tiers.session;
    const colours = this.#colours;
    for (let at = newest; at >= oldest; at -= 1) {
      const [top, bottom] = [(core.total - (core.cumulated[at + 1] as number)) * scale + shift, (core.total - (core.cumulated[at] as number)) * scale + shift];
      const [r, g, b] = [colours[at * 3] as number, colours[at * 3 + 1] as number, colours[at * 3 + 2] as number];
      if (bottom - top < 14 * density || core.ofDay[at] === -1) {
        add(top, bottom, r, g, b);
        continue;
      }
      // Close enough to see sessions: each has its own shade.
      let drawn = false;
      for (let index = core.from('session', at); index < sessions.length && sessions[index]?.first === at; index += 1) {
        const session = sessions[index] as Layer;
        const shade = (noise(index * 7) - 0.5) * 0.16;
        const colour = mix([r, g, b], shade > 0 ? light : edge, Math.abs(shade));
        add(session.top * scale + shift, session.bottom * scale + shift, colour[0], colour[1], colour[2]);
        drawn = true;
      }
      if (!drawn) add(top, bottom, r, g, b);
    }
    const pixels = this.#image.data;
    for (let row = 0; row < rows; row += 1) {
      const at = row * 4;
      const covers = sums[at + 3] as number;
      if (covers <= 0) {
        pixels[at + 3] = 0;
        continue;
      }
      pixels[at] = (sums[at] as number) / covers;
      pixels[at + 1] = (sums[at + 1] as number) / covers;
      pixels[at + 2] = (sums[at + 2] as number) / covers;
      pixels[at + 3] = Math.min(covers, 1) * 255;
    }
    const blend = (y: number, thick: number, colour: Rgb, alpha: number): void => {
      const [from, to] = [Math.max(y - thick / 2, 0), Math.min(y + thick / 2, rows)];
      for (let row = Math.floor(from); row < to; row += 1) {
        const part = (Math.min(row + 1, to) - Math.max(row, from)) * alpha;
        const at = row * 4;
        if (pixels[at + 3] === 0) continue;
        pixels[at] = (pixels[at] as number) * (1 - part) + colour[0] * part;
        pixels[at + 1] = (pixels[at + 1] as number) * (1 - part) + colour[1] * part;
        pixels[at + 2] = (pixels[at + 2] as number) * (1 - part) + colour[2] * part;
      }
    };
    // The seams between layers; stronger for higher tiers.
    const seam = dark ? rgb(this.#palette.snow) : mix(ice[5] as Rgb, [0, 0, 0], 0.1);
    TIERS.forEach((tier, rank) => {
      const layers = core.tiers[tier];
      if (layers.length === 0) return;
      const mean = (core.total / layers.length) * camera.scale;
      const alpha = Math.min(Math.max((mean - 5) / 20, 0), 1) * ([0.6, 0.42, 0.3, 0.22, 0.16][rank] ?? 0.1);
      if (alpha <= 0.01) return;
      for (let index = core.from(tier, oldest); index < layers.length; index += 1) {
        const layer = layers[index] as Layer;
        if (layer.first > newest) break;
        if (layer.bottom < core.total - 1e-9) blend(layer.bottom * scale + shift, (rank < 2 ? 1.6 : 1) * density, seam, alpha);
      }
    });
    // Important days stay bright, however thin they are.
    for (let at = newest; at >= oldest; at -= 1) {
      if (core.importance[at] !== 2) continue;
      const [top, bottom] = [(core.total - (core.cumulated[at + 1] as number)) * scale + shift, (core.total - (core.cumulated[at] as number)) * scale + shift];
      if (bottom - top < 3 * density) blend((top + bottom) / 2, 1.6 * density, light, 0.85);
    }
    // Each message is a fine layer.
    for (const { word, top, bottom } of this.#messages) {
      const y = (top + swell * 2) * density;
      const tall = (bottom - top) * density;
      if (word.role === 'user') blend(y + tall / 2, tall - 2 * density, light, 0.45);
      blend((bottom + swell * 2) * density, 1 * density, seam, 0.18);
    }
    const pen = this.#strip.getContext('2d');
    if (!pen) return;
    pen.putImageData(this.#image, 0, 0);
    const [left, wide] = [this.#left, this.#coreWidth];
    const [from, to] = [-camera.top * camera.scale, (core.total - camera.top) * camera.scale];
    this.#paintShadow(left, wide, from, to, swell, height, width);
    // Curves the column: vertical slices, lower towards the middle and narrower at the sides.
    for (let slice = 0; slice < SLICES; slice += 1) {
      const [from, to] = [slice / SLICES, (slice + 1) / SLICES].map((part) => (wide / 2) * (1 - Math.cos(Math.PI * part))) as [number, number];
      const lower = swell * Math.sin(Math.PI * ((slice + 0.5) / SLICES));
      // Half a pixel of overlap, so that no background shows between slices.
      context.drawImage(this.#strip, 0, 0, 1, rows, left + from, lower - swell * 2, Math.min(to - from + 0.5, wide - from), rows / density);
    }
    this.#paintShading(left, wide, Math.max(from, -swell * 3), Math.min(to, height + swell * 3), swell, camera, from > -swell * 2);
  }

  #pathBody(left: number, wide: number, from: number, to: number, swell: number): void {
    const context = this.#context;
    const middle = left + wide / 2;
    context.beginPath();
    context.moveTo(left, from);
    context.lineTo(left, to);
    context.ellipse(middle, to, wide / 2, swell, 0, Math.PI, 0, true);
    context.lineTo(left + wide, from);
    context.ellipse(middle, from, wide / 2, swell, 0, 0, Math.PI);
    context.closePath();
  }

  #paintShadow(left: number, wide: number, from: number, to: number, swell: number, height: number, width: number): void {
    const context = this.#context;
    const { dark } = this.#palette;
    const [upper, lower] = [Math.max(from, -swell * 3), Math.min(to, height + swell * 3)];
    const reach = Math.min(wide * 0.5, width - left - wide);
    const fade = context.createLinearGradient(left + wide, 0, left + wide + reach, 0);
    fade.addColorStop(0, dark ? 'rgb(90 180 230 / 14%)' : 'rgb(20 60 90 / 12%)');
    fade.addColorStop(1, 'rgb(20 60 90 / 0%)');
    context.fillStyle = fade;
    context.fillRect(left + wide - 1, upper + swell, reach, lower - upper);
    if (!dark) return;
    const glow = context.createLinearGradient(left - reach, 0, left, 0);
    glow.addColorStop(0, 'rgb(90 180 230 / 0%)');
    glow.addColorStop(1, 'rgb(90 180 230 / 10%)');
    context.fillStyle = glow;
    context.fillRect(left - reach, upper, reach + 1, lower - upper);
  }

  #paintShading(left: number, wide: number, from: number, to: number, swell: number, camera: Camera, withTop: boolean): void {
    const context = this.#context;
    const { dark, edge, light, ice } = this.#palette;
    context.save();
    this.#pathBody(left, wide, from, to, swell);
    context.clip();
    const key = `${left}|${wide}|${dark}`;
    if (this.#shade?.key !== key) {
      const gradient = context.createLinearGradient(left, 0, left + wide, 0);
      const deep = dark ? '2 12 22' : '12 48 78';
      gradient.addColorStop(0, `rgb(${deep} / ${dark ? 70 : 40}%)`);
      gradient.addColorStop(0.1, `rgb(${deep} / ${dark ? 30 : 15}%)`);
      gradient.addColorStop(0.24, `rgb(${deep} / 2%)`);
      gradient.addColorStop(0.3, `rgb(255 255 255 / ${dark ? 16 : 40}%)`);
      gradient.addColorStop(0.36, `rgb(255 255 255 / ${dark ? 12 : 26}%)`);
      gradient.addColorStop(0.46, `rgb(${deep} / 0%)`);
      gradient.addColorStop(0.78, `rgb(${deep} / ${dark ? 26 : 12}%)`);
      gradient.addColorStop(0.95, `rgb(${deep} / ${dark ? 60 : 34}%)`);
      gradient.addColorStop(1, `rgb(${deep} / ${dark ? 72 : 42}%)`);
      this.#shade = { key, gradient };
    }
    if (this.#snow) {
      // The bubbles move with the ice.
      this.#snow.setTransform(new DOMMatrix().translate(left, ((-camera.top * camera.scale) % 96)));
      context.fillStyle = this.#snow;
      context.fillRect(left, from, wide, to - from + swell);
    }
    context.fillStyle = this.#shade.gradient;
    context.fillRect(left, from, wide, to - from + swell);
    context.restore();
    if (!dark) {
      context.strokeStyle = css(edge, 0.8);
      context.lineWidth = 1;
      this.#pathBody(left + 0.5, wide - 1, from, to, swell);
      context.stroke();
    }
    if (!withTop) return;
    // The top surface.
    const middle = left + wide / 2;
    const snow = context.createRadialGradient(middle - wide * 0.15, from - swell * 0.2, 1, middle, from, wide / 2);
    snow.addColorStop(0, css(light));
    snow.addColorStop(1, css(mix(light, ice[2] as Rgb, dark ? 0.55 : 0.4)));
    context.beginPath();
    context.ellipse(middle, from, wide / 2, swell, 0, 0, Math.PI * 2);
    context.fillStyle = snow;
    context.fill();
    context.strokeStyle = css(edge, dark ? 0.5 : 0.9);
    context.lineWidth = 1;
    context.stroke();
  }

  // Paints the layers of one tier as bars: filled if there is a summary, outlined if not.
  #paintTier(column: { tier: Tier; x: number; width: number; alpha: number }, { camera, height, selected, hovered }: FrameState): void {
    const core = this.#core;
    const context = this.#context;
    const { ice, warm, strong, dark, glacier, sans, ink } = this.#palette;
    const rank = 5 - TIERS.indexOf(column.tier);
    const colour = ice[rank] as Rgb;
    const [fill, open] = [css(colour), css(colour, 0.14)];
    const layers = core.tiers[column.tier];
    const newest = core.dayAt(Math.max(camera.top, 0));
    const oldest = core.dayAt(Math.min(camera.top + height / camera.scale, core.total));
    const bright = luminance(colour) > 0.55 ? '#0b2233' : '#ffffff';
    context.globalAlpha = column.alpha;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    for (let at = core.from(column.tier, oldest); at < layers.length; at += 1) {
      const layer = layers[at] as Layer;
      if (layer.first > newest) break;
      const top = (layer.top - camera.top) * camera.scale;
      const bottom = (layer.bottom - camera.top) * camera.scale;
      const tall = bottom - top;
      if (tall < 0.7) continue;
      const [upper, lower] = [Math.max(top, -6) + 0.5, Math.min(bottom, height + 6) - (tall > 4 ? 1 : 0.2)];
      const { x, width } = column;
      const made = layer.version > 0 && (layer.state & FORGOTTEN) === 0;
      const round = Math.min(4, tall / 3, width / 3);
      context.beginPath();
      if (round > 1) context.roundRect(x, upper, width, lower - upper, round);
      else context.rect(x, upper, width, lower - upper);
      context.fillStyle = made ? fill : open;
      context.fill();
      if (made && (layer.state & PROVISIONAL) !== 0 && this.#hatch && tall > 5) {
        context.fillStyle = this.#hatch;
        context.globalAlpha = column.alpha * (dark ? 0.34 : 0.42);
        context.fill();
        context.globalAlpha = column.alpha;
      }
      const marked = layer.id === selected;
      const flagged = (layer.state & FLAGGED) !== 0;
      if (marked || layer.id === hovered || flagged || (!made && tall > 4) || (!dark && rank < 4 && tall > 6)) {
        context.strokeStyle = marked ? strong : flagged ? warm : layer.id === hovered ? glacier : made ? css(ice[Math.min(rank + 2, 5)] as Rgb, 0.55) : css(ice[Math.max(rank, 3)] as Rgb, 0.6);
        context.lineWidth = marked ? 2.5 : flagged ? 2 : 1;
        context.stroke();
      }
      if (layer.importance === 2 && column.tier === 'day' && tall > 5) {
        context.fillStyle = dark ? '#ffffff' : glacier;
        context.beginPath();
        context.arc(x + width / 2, Math.min(Math.max((upper + lower) / 2 - (tall > 30 ? 11 : 0), upper + 3), lower - 3), 2.2, 0, 7);
        context.fill();
        if (tall < 22) continue;
      }
      const seen = lower - upper;
      if (width < 14 || seen < 11) continue;
      const name = this.#shortTitle(layer, seen, width);
      if (name === '') continue;
      context.fillStyle = made ? bright : ink;
      context.font = `600 11px ${sans}`;
      const upright = name.length <= 2;
      const middle = (upper + lower) / 2;
      if (upright) context.fillText(name, x + width / 2, middle + (layer.importance === 2 && column.tier === 'day' && tall > 30 ? 3 : 0.5));
      else {
        context.save();
        context.translate(x + width / 2, middle);
        context.rotate(-Math.PI / 2);
        context.fillText(name, 0, 0.5);
        context.restore();
      }
    }
    context.globalAlpha = 1;
  }

  #shortTitle(layer: Layer, room: number, width: number): string {
    const fits = (text: string): boolean => room > text.length * 6.8 + 12;
    const from = layer.id;
    const choose = (...names: string[]): string => names.find((name) => (name.length <= 2 ? room >= 12 && width >= 15 : fits(name))) ?? '';
    switch (layer.tier) {
      case 'year':
        return choose(from, from.slice(2));
      case 'month':
        return choose(periodName(from), periodName(from).slice(0, 3), '');
      case 'week':
        return choose(`Week ${Number(from.slice(6))}`, String(Number(from.slice(6))));
      default:
        return choose(String(Number(from.slice(8))));
    }
  }

  // Marks the selection on the ice.
  #paintSelection({ camera, selected, height }: FrameState): void {
    const layer = selected === undefined ? undefined : this.#core.find(selected);
    if (!layer) return;
    const context = this.#context;
    const [top, bottom] = [(layer.top - camera.top) * camera.scale, (layer.bottom - camera.top) * camera.scale];
    const swell = Math.round(this.#coreWidth * 0.07);
    const [left, right] = [this.#left, this.#right];
    context.strokeStyle = this.#palette.glacier;
    context.lineWidth = 2;
    context.beginPath();
    for (const y of [top, bottom]) {
      if (y < -20 || y > height + 20) continue;
      context.moveTo(left - 5, y);
      context.lineTo(left, y);
      context.ellipse((left + right) / 2, y, this.#coreWidth / 2, swell, 0, Math.PI, 0, true);
      context.lineTo(right + 5, y);
    }
    context.moveTo(right + 5, Math.max(top, -4));
    context.lineTo(right + 5, Math.min(bottom, height + 4));
    context.moveTo(left - 5, Math.max(top, -4));
    context.lineTo(left - 5, Math.min(bottom, height + 4));
    context.stroke();
  }

  #paintTexts(frame: FrameState, words: LayerTexts): void {
    const { width, height, selected, hovered } = frame;
    const context = this.#context;
    const { ink, dim, line, warm, strong, glacier, sans } = this.#palette;
    const u = textScale(width);
    const line18 = Math.round(18 * u);
    const [plain, strongFont, small12] = [`${13 * u}px`, `600 ${13 * u}px`, `${12 * u}px`];
    const x = this.#right + 26;
    const room = Math.min(width - x - 16, 960);
    if (room < 60) return;
    context.textAlign = 'left';
    context.textBaseline = 'alphabetic';
    const reading = new Set(this.#messages.map(({ layer }) => layer.id));
    for (const { layer, top, bottom } of this.labelled) {
      const [upper, lower] = [Math.max(top, 0), Math.min(bottom, height)];
      const tall = lower - upper;
      const marked = layer.id === selected || layer.id === hovered;
      context.strokeStyle = layer.id === selected ? glacier : line;
      context.lineWidth = 1;
      if (bottom - top > 7) {
        context.beginPath();
        context.moveTo(this.#right + 8, bottom - 0.5);
        context.lineTo(x - 8, bottom - 0.5);
        if (bottom - top >= MIN_LABEL_PX) context.lineTo(x + room, bottom - 0.5);
        context.stroke();
      }
      if (layer.importance === 2 && layer.tier === 'day' && bottom - top >= 4) this.#paintStar(this.#right + 15, (upper + lower) / 2);
      if (tall < MIN_LABEL_PX - 4 || reading.has(layer.id)) continue;
      const flagged = (layer.state & FLAGGED) !== 0;
      context.font = `${strongFont} ${sans}`;
      context.fillStyle = flagged ? warm : marked ? strong : ink;
      const name = title(layer);
      const base = tall < 30 * u ? upper + tall / 2 + 4.5 * u : upper + 17 * u;
      const [shownName] = this.#wrap(`${layer.id} title`, name, room, strongFont, 1);
      context.fillText(shownName ?? '', x, base);
      const said = words.headline(layer);
      let begins = x + context.measureText(shownName ?? '').width + 10;
      context.font = `${small12} ${sans}`;
      context.fillStyle = flagged ? warm : dim;
      const figures = `${layer.messages > 0 ? plural(layer.messages, 'message') : layer.events > 0 ? plural(layer.events, 'event') : 'no messages'}${flagged ? ', needs review' : ''}`;
      if (begins + 90 < x + room) {
        context.fillText(figures, begins, base);
        begins += context.measureText(figures).width + 12;
      }
      if (said === undefined || said === '') continue;
      if (tall < 38 * u) {
        const rest = x + room - begins;
        if (rest > 120) context.fillText(this.#wrap(`${layer.id} ${layer.version}`, said, rest, small12, 1)[0] ?? '', begins, base);
        continue;
      }
      context.font = `${plain} ${sans}`;
      context.fillStyle = ink;
      const most = Math.max(Math.floor((tall - 22 * u) / line18), 1);
      const lines = this.#wrap(`${layer.id} ${layer.version}`, said, room, plain, Math.min(most, 14));
      lines.forEach((text, at) => context.fillText(text, x, upper + 36 * u + at * line18));
    }
    for (const { word, top, bottom } of this.#messages) {
      const [upper, lower] = [Math.max(top, 0), Math.min(bottom, height)];
      if (lower - upper < 14) continue;
      context.strokeStyle = line;
      context.beginPath();
      context.moveTo(this.#right + 8, bottom - 0.5);
      context.lineTo(x + room, bottom - 0.5);
      context.stroke();
      const small = lower - upper < 42 * u;
      context.font = `600 ${small12} ${sans}`;
      context.fillStyle = word.role === 'user' ? strong : dim;
      const who = `${word.time} ${word.who}`;
      const base = small ? upper + (lower - upper) / 2 + 4 : upper + 16 * u;
      context.fillText(who, x, base);
      context.fillStyle = ink;
      if (small) {
        const begins = x + context.measureText(who).width + 10;
        context.font = `${plain} ${sans}`;
        context.fillText(this.#wrap(word.id, word.text, x + room - begins, plain, 1)[0] ?? '', begins, base);
      } else {
        context.font = `${plain} ${sans}`;
        this.#wrap(word.id, word.text, room, plain, Math.max(Math.floor((lower - upper - 22 * u) / line18), 1)).forEach((text, at) => context.fillText(text, x, upper + 35 * u + at * line18));
      }
    }
  }

  #paintStar(x: number, y: number): void {
    const context = this.#context;
    context.fillStyle = this.#palette.glacier;
    context.beginPath();
    for (let point = 0; point < 8; point += 1) {
      const reach = point % 2 === 0 ? 5 : 1.6;
      context.lineTo(x + reach * Math.sin((point * Math.PI) / 4), y - reach * Math.cos((point * Math.PI) / 4));
    }
    context.fill();
  }

  #wrap(key: string, text: string, room: number, font: string, most: number): string[] {
    const whole = `${key}|${Math.round(room / 4)}|${font}|${most}`;
    const kept = this.#wrapCache.get(whole);
    if (kept) return kept;
    const context = this.#context;
    context.font = `${font} ${this.#palette.sans}`;
    const lines: string[] = [];
    let now = '';
    // Measures only what can be visible.
    const said = text.slice(0, most * 200 + 200).replace(/\s+/g, ' ').trim();
    const fits = (one: string): boolean => context.measureText(one).width <= room;
    for (const word of said.split(' ')) {
      const longer = now === '' ? word : `${now} ${word}`;
      if (fits(longer)) {
        now = longer;
        continue;
      }
      if (now !== '') lines.push(now);
      now = word;
      if (lines.length === most) break;
    }
    if (lines.length < most && now !== '') lines.push(now);
    const last = lines.length - 1;
    if (last >= 0 && (lines.length === most && lines.join(' ').length < said.length || !fits(lines[last] as string))) {
      let cut = lines[last] as string;
      while (cut.length > 1 && !fits(`${cut}…`)) cut = cut.slice(0, -1);
      lines[last] = `${cut.trimEnd()}…`;
    }
    if (this.#wrapCache.size > MAX_WRAPPED_TEXTS) this.#wrapCache.clear();
    this.#wrapCache.set(whole, lines);
    return lines;
  }

  // Paints a tooltip for a layer that is too thin for a text.
  #paintTooltip({ pointer, hovered, width }: FrameState): void {
    const layer = hovered === undefined ? undefined : this.#core.find(hovered);
    if (!pointer || !layer || pointer.x > this.#right + 10) return;
    if (this.labelled.some((one) => one.layer === layer && one.bottom - one.top >= MIN_LABEL_PX)) return;
    const context = this.#context;
    const { paper, line, ink, sans } = this.#palette;
    const text = `${layer.tier === 'day' ? dayName(layer.id) : title(layer)} · ${compact(layer.messages)} messages${(layer.state & PROVISIONAL) !== 0 ? ' · provisional' : ''}${(layer.state & FLAGGED) !== 0 ? ' · needs review' : ''}${layer.importance === 2 ? ' · important' : ''}`;
    context.font = `12px ${sans}`;
    const wide = context.measureText(text).width + 18;
    const x = Math.min(pointer.x + 16, width - wide - 6);
    const y = Math.max(pointer.y - 34, 4);
    context.fillStyle = paper;
    context.strokeStyle = line;
    context.lineWidth = 1;
    context.beginPath();
    context.roundRect(x, y, wide, 25, 6);
    context.fill();
    context.stroke();
    context.fillStyle = ink;
    context.textAlign = 'left';
    context.textBaseline = 'middle';
    context.fillText(text, x + 9, y + 13);
  }

  /** The layer and the message at a point. */
  hit(x: number, y: number, camera: Camera): Hit | undefined {
    const depth = camera.top + y / camera.scale;
    if (depth < 0 || depth > this.#core.total) return undefined;
    const column = this.#columns.find((one) => x >= one.x - 2 && x <= one.x + one.width + 2);
    if (column) {
      const layer = this.#core.at(column.tier, depth);
      return layer && { layer, message: undefined };
    }
    if (x < this.#left - 8) return undefined;
    const message = this.#messages.find((one) => one.top <= y && y <= one.bottom);
    if (message) return { layer: message.layer, message: message.word.id };
    const near = this.labelled.find((one) => one.top <= y && y <= one.bottom);
    if (!near) return undefined;
    // On the ice, the pointer hits days, even without a text.
    if (x <= this.#right && (near.layer.tier === 'year' || near.layer.tier === 'month' || near.layer.tier === 'week')) {
      const day = this.#core.at('day', depth);
      if (day && (day.bottom - day.top) * camera.scale >= 2) return { layer: day, message: undefined };
    }
    return { layer: near.layer, message: undefined };
  }
}
