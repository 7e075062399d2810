// The views, in the order of the navigation rail. An `undefined` view is not shown.
import type { View } from './view.ts';
import { conversations } from './conversations/index.tsx';
import { core } from './core/index.tsx';
import { health } from './health/index.tsx';
import { home } from './home/index.tsx';
import { knowledge } from './knowledge/index.tsx';
import { ledger } from './ledger/index.tsx';
import { packs } from './packs/index.tsx';
import { runs } from './runs/index.tsx';
import { search } from './search/index.tsx';

const ALL: readonly (View | undefined)[] = [home, core, ledger, knowledge, conversations, search, packs, runs, health];

export const VIEWS: readonly View[] = ALL.filter((view) => view !== undefined);
