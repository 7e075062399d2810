// The interface of a view.
import type { FunctionComponent } from 'preact';
import type { Route } from '../lib/route.ts';

export interface View {
  /** The first segment of its address: `#/ledger`. */
  id: string;
  title: string;
  /** The letter after `g` that opens it. */
  key: string;
  /** Its icon: the path of a 24×24 drawing. */
  icon: string;
  /** The page; rendered again whenever the address changes. */
  Page: FunctionComponent<{ route: Route }>;
  /** Whether it fills the window, without margins. */
  whole?: boolean;
}
