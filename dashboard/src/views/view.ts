// What a view is.
import type { FunctionComponent } from 'preact';
import type { Route } from '../lib/route.ts';

export interface View {
  /** The first word of its address: `#/ledger`. */
  id: string;
  title: string;
  /** The letter after `g` that leads there. */
  key: string;
  /** Its sign in the rail: the path of a 24×24 drawing. */
  icon: string;
  /** What is shown; it is drawn anew whenever the address changes. */
  Page: FunctionComponent<{ route: Route }>;
  /** Whether it takes the whole window, without margins. */
  whole?: boolean;
}
