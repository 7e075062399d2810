// Labels of the ledger's types, priorities and states, and the filters as they are in the address.
import type { JSX } from 'preact';
import type { Schema } from '../../lib/api.ts';
import type { Query } from '../../lib/route.ts';
import { Tag } from '../../ui/components.tsx';

export type Entry = Schema['LedgerEntry'];
export type EventType = Entry['type'];
export type Priority = Entry['priority'];

export const EVENT_TYPES: readonly EventType[] = ['fact', 'decision', 'preference', 'commitment', 'constraint', 'procedure', 'relationship'];
export const PRIORITIES: readonly Priority[] = ['P0', 'P1', 'P2', 'P3'];
export const PRIORITY_LIFETIMES: Record<Priority, string> = { P0: 'permanent', P1: 'until superseded', P2: '90 days', P3: '30 days' };

const STATUSES = ['active', 'superseded', 'closed', 'retracted', 'quarantined', 'any'] as const;
export type Status = (typeof STATUSES)[number];
export const STATUS_LABELS: readonly (readonly [Status, string])[] = [
  ['active', 'Active'], ['superseded', 'Superseded'], ['closed', 'Closed'], ['retracted', 'Retracted'], ['quarantined', 'Quarantined'], ['any', 'All'],
];

/** The filters of the list. */
export interface Filters {
  text: string;
  status: Status;
  type: EventType[];
  priority: Priority[];
  entity: string;
  tag: string[];
  since: string;
  until: string;
  acts: boolean;
  /** The page, from 1. */
  page: number;
}

function pick<T extends string>(all: readonly T[], found: readonly string[]): T[] {
  return all.filter((one) => found.includes(one));
}

/** Parses the filters of an address; ignores invalid values. */
export function parseFilters(query: URLSearchParams): Filters {
  const page = Number(query.get('page') ?? 1);
  return {
    text: query.get('text') ?? '',
    status: pick(STATUSES, [query.get('status') ?? ''])[0] ?? 'active',
    type: pick(EVENT_TYPES, query.getAll('type')),
    priority: pick(PRIORITIES, query.getAll('priority')),
    entity: query.get('entity') ?? '',
    tag: query.getAll('tag'),
    since: query.get('since') ?? '',
    until: query.get('until') ?? '',
    acts: query.get('acts') === 'true',
    page: Number.isInteger(page) && page > 0 ? page : 1,
  };
}

/** The filters for an address; leaves out the defaults. */
export function filtersToQuery(filters: Filters): Query {
  return { ...filters, status: filters.status === 'active' ? '' : filters.status, page: filters.page === 1 ? '' : filters.page };
}

/** How many filters are set besides text and status, which are always visible. */
export function countExtraFilters(filters: Filters): number {
  return filters.type.length + filters.priority.length + filters.tag.length + [filters.entity, filters.since, filters.until].filter((one) => one !== '').length + (filters.acts ? 1 : 0);
}

const ACT_LABELS: Record<string, string> = { close: 'closing', confirm: 'confirmation', retract: 'retraction', promote: 'promotion' };

/** The label of an event: its type, or its act. */
export function typeLabel(entry: Entry): string {
  return entry.act === undefined || entry.act === 'assert' ? entry.type : ACT_LABELS[entry.act] ?? entry.act;
}

/** Whether it is a statement, not an act on another event. */
export function isStatement(entry: Entry): boolean {
  return entry.act === undefined || entry.act === 'assert';
}

export function PriorityTag({ priority }: { priority: Priority }): JSX.Element {
  return <Tag kind={priority === 'P0' ? 'strong' : priority === 'P1' ? 'ice' : 'plain'} title={`Kept: ${PRIORITY_LIFETIMES[priority]}`}>{priority}</Tag>;
}

export function StateTag({ entry }: { entry: Entry }): JSX.Element | null {
  return entry.standing === 'active' ? null : <Tag>{entry.standing}</Tag>;
}

/** The events that an event supersedes. */
export function supersededIds(entry: Entry): readonly string[] {
  return entry.supersedes === undefined ? [] : typeof entry.supersedes === 'string' ? [entry.supersedes] : entry.supersedes;
}
