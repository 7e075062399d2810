// The components that every view uses.
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import type { RequestState, ApiError } from '../lib/api.ts';
import { Store, useStore } from '../lib/store.ts';

type Classes = string | false | undefined;
/** Joins class names; skips `false` and `undefined`. */
export function classes(...names: Classes[]): string {
  return names.filter(Boolean).join(' ');
}

interface ButtonProps {
  children: ComponentChildren;
  onClick?: (event: MouseEvent) => void;
  kind?: 'plain' | 'main' | 'quiet' | 'warm';
  type?: 'button' | 'submit';
  busy?: boolean;
  disabled?: boolean;
  /** The accessible name, where the content does not say what the button does. */
  label?: string;
  pressed?: boolean;
  small?: boolean;
}

/** A button. While `busy` it is disabled and announced as busy. */
export function Button({ children, onClick, kind = 'plain', type = 'button', busy = false, disabled = false, label, pressed: onKeyDown, small }: ButtonProps): JSX.Element {
  return (
    <button type={type} class={classes('button', kind, small && 'small')} onClick={onClick} disabled={busy || disabled} aria-busy={busy}
      {...(label === undefined ? {} : { 'aria-label': label, title: label })} {...(onKeyDown === undefined ? {} : { 'aria-pressed': onKeyDown })}>
      {children}
    </button>
  );
}

interface FieldProps {
  label: string;
  /** Help text, one line. */
  hint?: string;
  /** The validation error. */
  wrong?: string | undefined;
  /** The label is for screen readers only. */
  bare?: boolean;
  children: (id: string, describedBy: string | undefined) => ComponentChildren;
}

/** A labelled form field; the child renders the control with the given id. */
export function Field({ label, hint, wrong, bare = false, children }: FieldProps): JSX.Element {
  const id = useId();
  const help = wrong ?? hint;
  return (
    <div class={classes('field', wrong !== undefined && 'wrong')}>
      <label for={id} class={bare ? 'unseen' : ''}>{label}</label>
      {children(id, help === undefined ? undefined : `${id}-help`)}
      {help !== undefined && <p id={`${id}-help`} class={wrong === undefined ? 'hint' : 'hint warm'}>{help}</p>}
    </div>
  );
}

interface SelectProps {
  label: string;
  value: string;
  options: readonly (readonly [value: string, label: string])[];
  onChange: (value: string) => void;
  bare?: boolean;
}

/** A select field. */
export function Select({ label, value, options, onChange, bare = false }: SelectProps): JSX.Element {
  return (
    <Field label={label} bare={bare}>
      {(id) => (
        <select id={id} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
          {options.map(([one, option]) => <option key={one} value={one}>{option}</option>)}
        </select>
      )}
    </Field>
  );
}

interface TextFieldProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  type?: 'text' | 'search' | 'password' | 'date' | 'number';
  placeholder?: string;
  hint?: string;
  wrong?: string | undefined;
  bare?: boolean;
  lines?: number;
  autofocus?: boolean;
  required?: boolean;
}

/** A text field of one line, or of several. */
export function TextField({ label, value, onInput, type = 'text', placeholder, hint, wrong, bare = false, lines, autofocus, required }: TextFieldProps): JSX.Element {
  const control = useRef<HTMLInputElement & HTMLTextAreaElement>(null);
  // A dialog looks for the attribute when it opens; elsewhere the browser looked for it before the field existed.
  useEffect(() => {
    if (autofocus) control.current?.focus();
  }, []);
  const more = { ...(hint === undefined ? {} : { hint }), ...(wrong === undefined ? {} : { wrong }) };
  return (
    <Field label={label} bare={bare} {...more}>
      {(id, describedBy) => lines === undefined
        ? <input ref={control} autofocus={autofocus} id={id} type={type} value={value} placeholder={placeholder} required={required} aria-describedby={describedBy}
            aria-invalid={wrong !== undefined} autocomplete="off" spellcheck={false} onInput={(event) => onInput(event.currentTarget.value)} />
        : <textarea ref={control} autofocus={autofocus} id={id} rows={lines} value={value} placeholder={placeholder} required={required} aria-describedby={describedBy}
            aria-invalid={wrong !== undefined} onInput={(event) => onInput(event.currentTarget.value)} />}
    </Field>
  );
}

/** A short label. */
export function Tag({ children, kind = 'plain', title }: { children: ComponentChildren; kind?: 'plain' | 'ice' | 'warm' | 'strong'; title?: string }): JSX.Element {
  return <span class={`tag ${kind}`} title={title}>{children}</span>;
}

/** A section with a heading. */
export function Section({ title, aside, children, wide = false, level = 2 }: { title: string; aside?: ComponentChildren; children: ComponentChildren; wide?: boolean; level?: 2 | 3 }): JSX.Element {
  const id = useId();
  const Heading = `h${level}` as const;
  return (
    <section class={classes('section', wide && 'wide')} aria-labelledby={id}>
      <header><Heading id={id}>{title}</Heading>{aside !== undefined && <div class="aside">{aside}</div>}</header>
      {children}
    </section>
  );
}

/** An empty state: what is missing, and what to do. */
export function EmptyState({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <svg viewBox="0 0 48 48" width="48" height="48" aria-hidden="true"><path d="M24 5v38M8 14.5l32 19M40 14.5l-32 19M24 12l-5-4m5 4 5-4M24 36l-5 4m5-4 5 4M13.500 17.500l-.5-6m.5 6-5.500 2.300M34.500 30.500l.5 6m-.5-6 5.500-2.300M34.500 17.500l.5-6m-.5 6 5.500 2.300M13.500 30.500l-.5 6m.5-6-5.500-2.300" /></svg>
      <p class="lead">{title}</p>
      {children}
    </div>
  );
}

/** An error message with a retry button. */
export function ErrorBox({ failure, again }: { failure: ApiError; again?: (() => void) | undefined }): JSX.Element {
  return (
    <div class="errorbox" role="alert">
      <p>{sentence(failure.message)}</p>
      {again && <Button small onClick={again}>Try again</Button>}
    </div>
  );
}

function sentence(text: string): string {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(begun) ? begun : `${begun}.`;
}

/** A loading indicator. It appears after a short delay, so that fast answers do not flicker. */
export function Loading({ what = 'Loading' }: { what?: string }): JSX.Element {
  return <p class="loading" role="status">{what}…</p>;
}

/** Renders a request: its value, the loading indicator or the error. The old value stays until the new one arrives. */
export function RequestView<T>({ of, what, children }: { of: RequestState<T>; what?: string; children: (value: T) => ComponentChildren }): JSX.Element {
  return (
    <>
      {of.failure && <ErrorBox failure={of.failure} again={of.reload} />}
      {of.value !== undefined ? children(of.value) : of.busy && <Loading {...(what === undefined ? {} : { what })} />}
    </>
  );
}

export interface Column<T> {
  title: string;
  cell: (row: T) => ComponentChildren;
  /** Numbers are right-aligned. */
  figures?: boolean;
}

/** A table; on a narrow screen every row becomes a card. */
export function Table<T>({ caption, columns, rows, id, onOpen, current }: {
  caption: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  id: (row: T) => string;
  onOpen?: (row: T) => void;
  current?: string | undefined;
}): JSX.Element {
  return (
    <div class="tablebox">
      <table>
        <caption class="unseen">{caption}</caption>
        <thead><tr>{columns.map((column) => <th key={column.title} scope="col" class={column.figures ? 'figures' : ''}>{column.title}</th>)}</tr></thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)} class={classes(onOpen && 'opens')} aria-current={current === id(row) ? 'true' : undefined}
              {...(onOpen ? { 'data-row': '', tabIndex: 0, onClick: () => onOpen(row), onKeyDown: (event: KeyboardEvent) => { if (event.key === 'Enter' && event.target === event.currentTarget) onOpen(row); } } : {})}>
              {columns.map((column) => <td key={column.title} data-label={column.title} class={column.figures ? 'figures' : ''}>{column.cell(row)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A modal dialog. Escape and the close button close it. */
export function Dialog({ title, open, onClose, children, foot }: { title: string; open: boolean; onClose: () => void; children: ComponentChildren; foot?: ComponentChildren }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const shown = dialog.current;
    if (!shown) return;
    if (open && !shown.open) shown.showModal();
    if (!open && shown.open) shown.close();
  }, [open]);
  // A dialog that is unmounted while it is open returns the focus, and does not call `onClose`.
  const unmounted = useRef(false);
  useEffect(() => () => {
    unmounted.current = true;
    dialog.current?.close();
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby={id} onClose={() => { if (!unmounted.current) onClose(); }} onClick={(event) => { if (event.target === dialog.current) onClose(); }}>
      {open && (
        <div class="dialog">
          <header><h2 id={id}>{title}</h2><Button kind="quiet" small label="Close" onClick={onClose}>✕</Button></header>
          <div class="within">{children}</div>
          {foot !== undefined && <footer>{foot}</footer>}
        </div>
      )}
    </dialog>
  );
}

/** Tabs. Arrows switch between them. */
export function Tabs<K extends string>({ label, tabs, current, onChange, children }: {
  label: string;
  tabs: readonly (readonly [key: K, title: string])[];
  current: K;
  onChange: (key: K) => void;
  children: ComponentChildren;
}): JSX.Element {
  const id = useId();
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const at = tabs.findIndex(([key]) => key === current);
    const next = tabs[(at + step + tabs.length) % tabs.length];
    if (!next) return;
    event.preventDefault();
    onChange(next[0]);
    document.getElementById(`${id}-${next[0]}`)?.focus();
  };
  return (
    <div class="tabs">
      <div role="tablist" aria-label={label} onKeyDown={onKeyDown}>
        {tabs.map(([key, title]) => (
          <button key={key} id={`${id}-${key}`} type="button" role="tab" aria-selected={key === current} aria-controls={`${id}-panel`} tabIndex={key === current ? 0 : -1} onClick={() => onChange(key)}>{title}</button>
        ))}
      </div>
      <div id={`${id}-panel`} role="tabpanel" aria-labelledby={`${id}-${current}`} tabIndex={0}>{children}</div>
    </div>
  );
}

const currentToast = new Store<{ text: string; at: number }>({ text: '', at: 0 });
let toastTimer: ReturnType<typeof setTimeout> | undefined;
const TOAST_MS = 5_000;

/** Shows a toast: a one-line confirmation. */
export function showToast(text: string): void {
  currentToast.set({ text, at: currentToast.get().at + 1 });
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => currentToast.set({ text: '', at: currentToast.get().at + 1 }), TOAST_MS);
}

/** Renders the toast; mounted once, in the shell. */
export function Toast(): JSX.Element {
  const { text } = useStore(currentToast);
  return <div class={classes('told', text !== '' && 'shown')} role="status" aria-live="polite">{text}</div>;
}

/** A link within the dashboard. */
export function Link({ to, children, label }: { to: string; children: ComponentChildren; label?: string }): JSX.Element {
  return <a href={to} {...(label === undefined ? {} : { 'aria-label': label })}>{children}</a>;
}

/** A copy button; a toast says whether it worked. */
export function CopyButton({ text, children = 'Copy' }: { text: () => string; children?: ComponentChildren }): JSX.Element {
  const copy = (): void => {
    navigator.clipboard.writeText(text()).then(
      () => showToast('Copied'),
      () => showToast('The browser blocked copying; select the text and copy it by hand'),
    );
  };
  return <Button small onClick={copy}>{children}</Button>;
}

/** A keyboard key. */
export function Key({ children }: { children: ComponentChildren }): JSX.Element {
  return <kbd>{children}</kbd>;
}
