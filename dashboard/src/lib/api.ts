// The API client: typed by the server's OpenAPI document, so that a request to an unknown route does not compile.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import type { components, paths } from './api.gen.ts';
import { Store } from './store.ts';

/** The schemas of the API: `Schema['LedgerEntry']`. */
export type Schema = components['schemas'];

type Method = 'get' | 'post' | 'delete' | 'put';
type PathsWith<M extends Method> = { [P in keyof paths]: paths[P] extends { readonly [K in M]: object } ? P : never }[keyof paths];
type Operation<P extends keyof paths, M extends Method> = paths[P] extends { readonly [K in M]: infer O } ? O : never;
type Json<T> = T extends { content: { readonly 'application/json': infer J } } ? J : unknown;
/** The response of a route. */
export type Reply<P extends keyof paths, M extends Method = 'get'> =
  Operation<P, M> extends { readonly responses: { readonly 200: infer R } } ? Json<R> : unknown;
type PathInput<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { readonly parameters: { readonly path: infer N extends object } } ? { path: N } : { path?: never };
type QueryInput<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { readonly parameters: { readonly query: infer Q extends object } } ? { query: Q }
  : Operation<P, M> extends { readonly parameters: { readonly query?: infer Q } } ? { query?: Exclude<Q, undefined> } : { query?: never };
type BodyInput<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { readonly requestBody: { readonly content: { readonly 'application/json': infer B } } } ? { body: B }
  : Operation<P, M> extends { readonly requestBody?: { readonly content: { readonly 'application/json': infer B } } } ? { body?: B } : { body?: never };
/** The input of a route: path parameters, query, body. */
export type RequestInput<P extends keyof paths, M extends Method> = PathInput<P, M> & QueryInput<P, M> & BodyInput<P, M>;

/** A failed request. The message says what went wrong and what to do. */
export class ApiError extends Error {
  readonly status: number;
  readonly kind: string;

  constructor(status: number, kind: string, message: string) {
    super(message);
    this.name = 'Failure';
    this.status = status;
    this.kind = kind;
  }
}

/** Whether a login is required. */
export const loginRequired = new Store(false);
/** Whether the server answered the last request. */
export const serverReachable = new Store(true);

const UNREACHABLE_MESSAGE = 'The server does not answer. Start it again with `icecore serve`, then reload this page.';
const INVALID_ANSWER_MESSAGE = 'The server sent an answer that is not JSON. If there is a proxy in between, check it; otherwise restart `icecore serve`.';

function requestUrl(path: string, names: Record<string, unknown> | undefined, query: Record<string, unknown> | undefined): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(names?.[name] ?? '')));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (Array.isArray(value)) value.forEach((one) => search.append(name, String(one)));
    else if (value !== undefined && value !== null && value !== '') search.set(name, String(value));
  }
  const text = search.toString();
  return text === '' ? filled : `${filled}?${text}`;
}

async function readApiError(response: Response): Promise<ApiError> {
  const body: unknown = await response.json().catch(() => undefined);
  const error = (body as { error?: { kind?: string; message?: string } } | undefined)?.error;
  const message = error?.message ?? `The server answered ${response.status}. Its log says more.`;
  return new ApiError(response.status, error?.kind ?? 'failure', message);
}

async function sendRequest(method: Method, path: string, input: RequestInput<keyof paths, Method>, signal?: AbortSignal): Promise<unknown> {
  const { path: names, query, body } = input as { path?: Record<string, unknown>; query?: Record<string, unknown>; body?: unknown };
  const headers: Record<string, string> = { accept: 'application/json' };
  if (body !== undefined) headers['content-type'] = 'application/json';
  // Pages of other origins cannot send this header: a cookie alone changes nothing.
  if (method !== 'get') headers['x-icecore-csrf'] = '1';
  let response: Response;
  try {
    response = await fetch(requestUrl(path, names, query), {
      method: method.toUpperCase(),
      headers,
      credentials: 'same-origin',
      cache: 'no-cache',
      redirect: 'error',
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal ? { signal } : {}),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    serverReachable.set(false);
    throw new ApiError(0, 'unreachable', UNREACHABLE_MESSAGE);
  }
  serverReachable.set(true);
  if (!response.ok) {
    const failure = await readApiError(response);
    if (failure.status === 401) loginRequired.set(true);
    throw failure;
  }
  return response.json().catch((error: unknown) => {
    if (signal?.aborted) throw error;
    throw new ApiError(response.status, 'unreadable', INVALID_ANSWER_MESSAGE);
  });
}

/** Sends a GET request. */
export function get<P extends PathsWith<'get'>>(path: P, input: RequestInput<P, 'get'>, signal?: AbortSignal): Promise<Reply<P, 'get'>> {
  return sendRequest('get', path, input as RequestInput<keyof paths, Method>, signal) as Promise<Reply<P, 'get'>>;
}

/** Sends a POST request. */
export function post<P extends PathsWith<'post'>>(path: P, input: RequestInput<P, 'post'>): Promise<Reply<P, 'post'>> {
  return sendRequest('post', path, input as RequestInput<keyof paths, Method>) as Promise<Reply<P, 'post'>>;
}

/** Sends a DELETE request. */
export function del<P extends PathsWith<'delete'>>(path: P, input: RequestInput<P, 'delete'>): Promise<Reply<P, 'delete'>> {
  return sendRequest('delete', path, input as RequestInput<keyof paths, Method>) as Promise<Reply<P, 'delete'>>;
}

/** The state of a request: the last value, the last failure, whether it is running. */
export interface RequestState<T> {
  value: T | undefined;
  failure: ApiError | undefined;
  busy: boolean;
  /** Repeats the request; the old value stays until the new one arrives. */
  reload: () => void;
}

/** Converts anything that was thrown. */
export function toApiError(error: unknown): ApiError {
  return error instanceof ApiError ? error : new ApiError(0, 'failure', error instanceof Error ? error.message : String(error));
}

/**
 * Sends the request whenever `key` changes, and aborts the previous one. Without `asks`, nothing is sent.
 * `key` identifies the resource: when it changes, the old value is no longer shown.
 */
export function useRequest<T>(send: ((signal: AbortSignal) => Promise<T>) | undefined, key: string): RequestState<T> {
  const [state, setState] = useState<{ key: string; value: T | undefined; failure: ApiError | undefined; busy: boolean }>(
    { key, value: undefined, failure: undefined, busy: true });
  const [round, setRound] = useState(0);
  const latestSend = useRef(send);
  latestSend.current = send;
  const enabled = send !== undefined;
  useEffect(() => {
    if (!latestSend.current) return;
    const stop = new AbortController();
    setState((before) => before.key === key ? { ...before, busy: true } : { key, value: undefined, failure: undefined, busy: true });
    latestSend.current(stop.signal).then(
      (value) => { if (!stop.signal.aborted) setState({ key, value, failure: undefined, busy: false }); },
      (error: unknown) => {
        if (!stop.signal.aborted) setState((before) => ({ key, value: before.key === key ? before.value : undefined, failure: toApiError(error), busy: false }));
      },
    );
    return () => stop.abort();
  }, [key, enabled, round]);
  const again = useCallback(() => setRound((before) => before + 1), []);
  const current = state.key === key ? state : { value: undefined, failure: undefined, busy: enabled };
  return { value: current.value, failure: current.failure, busy: current.busy && enabled, reload: again };
}

/** The response of a route, requested again whenever the input changes. */
export function useGet<P extends PathsWith<'get'>>(path: P, input: RequestInput<P, 'get'> | undefined): RequestState<Reply<P, 'get'>> {
  const send = input === undefined ? undefined : (signal: AbortSignal) => get(path, input, signal);
  return useRequest(send, `${path} ${JSON.stringify(input)}`);
}

/** An action of the user: whether it is running, and its failure. */
export interface ActionState<A extends unknown[]> {
  busy: boolean;
  failure: ApiError | undefined;
  /** Runs it; true if it succeeded. */
  run: (...args: A) => Promise<boolean>;
  clear: () => void;
}

export function useAction<A extends unknown[]>(action: (...args: A) => Promise<unknown>): ActionState<A> {
  const [state, setState] = useState<{ busy: boolean; failure: ApiError | undefined }>({ busy: false, failure: undefined });
  const latest = useRef(action);
  latest.current = action;
  const run = useCallback(async (...args: A): Promise<boolean> => {
    setState({ busy: true, failure: undefined });
    try {
      await latest.current(...args);
      setState({ busy: false, failure: undefined });
      return true;
    } catch (error) {
      setState({ busy: false, failure: toApiError(error) });
      return false;
    }
  }, []);
  const clear = useCallback(() => setState({ busy: false, failure: undefined }), []);
  return { ...state, run, clear };
}
