// Loads the texts of the picture on demand: headlines for layers with enough space, messages for sessions in close view.
import { get } from '../../lib/api.ts';
import { time } from '../../lib/format.ts';
import type { LabelledLayer, MessageLabel, LayerTexts } from './painter.ts';
import type { Core, Layer, Tier } from './model.ts';

/** How long the picture has to stand still before texts are requested. */
const STILL_MS = 110;
/** The height in pixels from which the messages of a session are loaded. */
const MIN_SESSION_PX = 90;
/** The most messages of a session in the picture; the list beside it has all of them. */
const MAX_MESSAGES = 400;
/** The most characters of a message that the picture can show. */
const MAX_CHARACTERS = 2_000;
/** The most sessions whose messages are cached. */
const MAX_CACHED_SESSIONS = 60;

export class TextLoader implements LayerTexts {
  readonly #core: Core;
  readonly #changed: () => void;
  readonly #headlines = new Map<string, string>();
  readonly #requested = new Set<string>();
  readonly #messages = new Map<string, readonly MessageLabel[]>();
  readonly #abort = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(core: Core, changed: () => void) {
    this.#core = core;
    this.#changed = changed;
  }

  headline(layer: Layer): string | undefined {
    return this.#headlines.get(layer.id);
  }

  messages(layer: Layer): readonly MessageLabel[] | undefined {
    return this.#messages.get(layer.id);
  }

  /** Requests the missing texts of these layers, once the picture stands still. */
  request(labelled: readonly LabelledLayer[]): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#fetch(labelled), STILL_MS);
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#abort.abort();
  }

  #fetch(labelled: readonly LabelledLayer[]): void {
    const missing = new Map<Tier, Layer[]>();
    for (const { layer, top, bottom } of labelled) {
      if (layer.tier === 'session' && bottom - top > MIN_SESSION_PX && layer.messages > 0) void this.#fetchMessages(layer);
      if (layer.version === 0 || this.#requested.has(layer.id) || bottom - top < 14) continue;
      const known = missing.get(layer.tier);
      if (known) known.push(layer);
      else missing.set(layer.tier, [layer]);
    }
    for (const [tier, layers] of missing) void this.#fetchHeadlines(tier, layers);
  }

  async #fetchHeadlines(tier: Tier, layers: readonly Layer[]): Promise<void> {
    layers.forEach((layer) => this.#requested.add(layer.id));
    const [first, last] = [Math.min(...layers.map((layer) => layer.first)), Math.max(...layers.map((layer) => layer.last))];
    try {
      const query = { tier, from: this.#core.date(first), to: this.#core.date(last), limit: 1_000 };
      const { headlines } = await get('/api/core/headlines', { query }, this.#abort.signal);
      for (const { period, headline } of headlines) {
        this.#headlines.set(period, headline);
        this.#requested.add(period);
      }
      this.#changed();
    } catch {
      // The picture does without them, and requests them again when it moves.
      layers.forEach((layer) => this.#requested.delete(layer.id));
    }
  }

  async #fetchMessages(layer: Layer): Promise<void> {
    const key = `${layer.id} messages`;
    if (this.#requested.has(key)) return;
    this.#requested.add(key);
    try {
      const query = { conversation: layer.conversation ?? '', session: layer.session ?? '', limit: MAX_MESSAGES, characters: MAX_CHARACTERS };
      const { messages } = await get('/api/core/{period}/messages', { path: { period: this.#core.date(layer.first) }, query }, this.#abort.signal);
      const labels = messages.map((one) => ({ id: one.id, role: one.role, who: one.name ?? one.role, text: one.text, time: time(one.ts), bytes: one.bytes }));
      if (this.#messages.size >= MAX_CACHED_SESSIONS) {
        const oldest = this.#messages.keys().next().value;
        if (oldest !== undefined) {
          this.#messages.delete(oldest);
          this.#requested.delete(`${oldest} messages`);
        }
      }
      this.#messages.set(layer.id, labels);
      this.#changed();
    } catch {
      this.#requested.delete(key);
    }
  }
}
